"""The digest of a checkpoint's content: over every value, every tensor's bytes, and where each stands."""

import hashlib
import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor


def digest(content: Any, most: float = math.inf) -> str:
    """BLAKE2b over the values of a nested structure, over tensors' bytes, and over where each stands.

    Args:
        content: mappings and lists of plain values and tensors.
        most: bytes; a value that occurs in many places counts each time.

    Raises:
        ValueError: a tensor that is larger than its storage, or more than `most` bytes.
    """
    found = hashlib.blake2b(digest_size=32)
    for place, value in _leaves(content, ""):
        content_bytes: Any = b""
        if isinstance(value, Tensor):
            count = value.numel() * value.element_size()
            if value.layout != torch.strided or count > value.untyped_storage().nbytes():
                raise ValueError(f"{place} is no tensor as torch.save writes those of captioning.run")
            if count <= most:
                content_bytes = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
            value = (value.dtype, tuple(value.shape))
        text = f"{place}\0{type(value).__name__} {value!r}\0".encode("utf-8", errors="surrogatepass")
        most -= len(text) + len(content_bytes)
        if most < 0:
            raise ValueError("it describes far more than it holds")
        found.update(text)
        found.update(content_bytes)
    return found.hexdigest()


def _leaves(node: Any, place: str) -> Iterator[tuple[str, Any]]:
    if isinstance(node, Mapping):
        yield place, len(node)
        for key, value in node.items():
            yield from _leaves(value, f"{place}/{key!r}")
    elif isinstance(node, list | tuple):
        yield place, len(node)
        for number, value in enumerate(node):
            yield from _leaves(value, f"{place}/{number}")
    else:
        yield place, node
