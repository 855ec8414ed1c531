"""Captioning models: they know tensors only."""

from captioning.models.outputs import Captioner, CaptionOutput, DecodeState, Policy, Step, StochasticCaptioner
from captioning.models.show_attend_tell import ShowAttendTell
from captioning.models.spatial_transformer import SpatialTransformer

__all__ = [
    "CaptionOutput",
    "Captioner",
    "DecodeState",
    "Policy",
    "ShowAttendTell",
    "SpatialTransformer",
    "Step",
    "StochasticCaptioner",
]
