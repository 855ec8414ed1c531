"""The digest of a checkpoint's content: of tensors and plain values, nested in any way."""

import hashlib
import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor


def digest(content: Any, limit: float = math.inf) -> str:
    """BLAKE2b over nested mappings and lists: each value, each tensor's bytes, and its place.

    A `ValueError` ends it where a tensor is larger than its storage, or where there are more than
    `limit` bytes, counting a value in each of its places.
    """
    blake = hashlib.blake2b(digest_size=32)
    for path, value in _leaves(content, ""):
        content_bytes: Any = b""
        if isinstance(value, Tensor):
            count = value.numel() * value.element_size()
            if value.layout != torch.strided or count > value.untyped_storage().nbytes():
                raise ValueError(f"{path} is not a tensor as torch.save writes them")
            if count <= limit:
                flat = value.detach().cpu().contiguous().reshape(-1)
                content_bytes = flat.view(torch.uint8).numpy()
            value = (value.dtype, tuple(value.shape))
        text = f"{path}\0{type(value).__name__} {value!r}\0".encode(errors="surrogatepass")
        limit -= len(text) + len(content_bytes)
        if limit < 0:
            raise ValueError("it describes far more than it holds")
        blake.update(text)
        blake.update(content_bytes)
    return blake.hexdigest()


def _leaves(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(node, Mapping | list | tuple):
        yield path, len(node)
        for key, value in node.items() if isinstance(node, Mapping) else enumerate(node):
            yield from _leaves(value, f"{path}/{key!r}")
    else:
        yield path, node
