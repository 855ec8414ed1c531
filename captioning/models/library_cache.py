"""Keys and values of images and captions, in caches of the library `transformers`.

B images, N captions per image, t tokens so far, P vectors of the image, H heads of A features.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers.cache_utils import DynamicLayer

from captioning.models.parts.multi_head import KeyValue


class EncodedPrefix(NamedTuple):
    """Inputs of the layers from the images, computed once for all captions."""

    layers: tuple[KeyValue, ...]  # `[B, H, P, A]` of each layer
    mask: Tensor | None  # `[B, P]` bool
    begin: Tensor | None = None  # `[B, E]`, in place of the embedding of BOS


class CaptionLayer(DynamicLayer):
    """The library's cache of a layer for N captions per image, behind the image if that is a
    prefix.
    """

    def __init__(self, image: KeyValue | None, text: KeyValue | None, n: int):
        super().__init__()
        self.image, self.n = image, n
        if text is not None:
            keys, values = (part.flatten(0, 1) for part in text)
            self.lazy_initialization(keys, values)
            self.keys, self.values = keys, values

    def update(self, keys: Tensor, values: Tensor, *_: Any, **__: Any) -> tuple[Tensor, ...]:
        """Keep the words alone, and return image and words."""
        words = super().update(keys, values)
        if self.image is None:
            return words
        pairs = zip(self.image, words, strict=True)
        return tuple(torch.cat((repeated(part, self.n), own), dim=-2) for part, own in pairs)

    def get_seq_length(self) -> int:
        return super().get_seq_length() + (self.image.key.shape[-2] if self.image else 0)


class ImageLayer(DynamicLayer):
    """The library's cache of a layer of cross-attention, repeated for N captions."""

    keys = property(lambda self: repeated(self.image.key, self.n))
    values = property(lambda self: repeated(self.image.value, self.n))

    def __init__(self, image: KeyValue, n: int):
        self.image, self.n = image, n

    def get_seq_length(self) -> int:
        return self.image.key.shape[-2]


def repeated(x: Tensor, n: int) -> Tensor:
    """`[B, ...]` to `[B N, ...]`."""
    return x.repeat_interleave(n, dim=0)
