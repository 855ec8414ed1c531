"""Captioning models on tensors."""

from captioning.models.protocol import (
    Captioner,
    CaptionOutput,
    DecodeState,
    Policy,
    Step,
)
from captioning.models.recurrent import Recurrent
from captioning.models.transformer import Transformer

__all__ = [
    "CaptionOutput",
    "Captioner",
    "DecodeState",
    "Policy",
    "Recurrent",
    "Step",
    "Transformer",
]
