"""Captioning models: they know tensors only."""

from captioning.models.outputs import Captioner, CaptionOutput, DecodeState, Step
from captioning.models.spatial_transformer import SpatialTransformer

__all__ = ["CaptionOutput", "Captioner", "DecodeState", "SpatialTransformer", "Step"]
