"""Networks that turn images into context sets."""

from captioning.backbones.context import ContextSet

__all__ = ["ContextSet"]
