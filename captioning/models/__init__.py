"""Captioning models on tensors."""

from captioning.models.protocol import Captioner, CaptionOutput, Step
from captioning.models.recurrent import Recurrent
from captioning.models.transformer import Transformer

__all__ = ["CaptionOutput", "Captioner", "Recurrent", "Step", "Transformer"]
