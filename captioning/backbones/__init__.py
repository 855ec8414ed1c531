"""Networks that turn images into context sets."""

from captioning.backbones.base import Backbone
from captioning.backbones.context import ContextSet

__all__ = ["Backbone", "ContextSet"]
