"""`attention.npz`: every attention map of the first captions of a test, in 8 bits.

NumPy's zip holds `captions`, JSON as bytes, and for the i-th of them `maps_i` uint8 `[M, T, h, w]`
and `scale_i` float32 `[M, T]`, the largest weight of each map; a weight is `maps / 255 * scale`.
Nothing is unpickled.

M maps, T words, on a grid of (h, w).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import BaseModel, Field, TypeAdapter

from captioning.files import LARGEST_MAPS, atomic_write, read_arrays, refuse_damage

FILE = "attention.npz"


@dataclass(frozen=True)
class AttentionRecord:
    """A caption with its attention maps.

    Maps are float32 `[T, h, w]` by name, each row a distribution: first `mean`, which panels show;
    then `attended`, what hard attention has taken in its place; then those of every layer and head,
    such as `inter 1 5`.
    """

    image_id: int | str
    words: tuple[str, ...]
    maps: dict[str, np.ndarray]
    labels: tuple[str, ...] = ()  # of the vectors, if they have no place on a photograph


class _Entry(BaseModel, strict=True):
    image_id: int | str
    words: list[str]
    maps: Annotated[list[str], Field(min_length=1)]
    labels: list[str] = []


def write(path: Path, captions: Sequence[AttentionRecord]) -> None:
    """Write the file atomically."""
    entries, arrays = [], {}
    for number, caption in enumerate(captions):
        maps = np.nan_to_num(np.stack(list(caption.maps.values()), dtype=np.float32), posinf=0.0)
        scale = maps.max(axis=(-2, -1))
        units = np.divide(
            255, scale, out=np.zeros_like(scale), where=scale >= np.finfo(np.float32).tiny
        )
        arrays[f"maps_{number}"] = np.rint(maps * units[..., None, None]).astype(np.uint8)
        arrays[f"scale_{number}"] = scale
        entry = {"image_id": caption.image_id, "words": caption.words, "maps": list(caption.maps)}
        if caption.labels:
            entry["labels"] = caption.labels
        entries.append(entry)
    arrays["captions"] = np.frombuffer(json.dumps(entries).encode(), np.uint8)
    with atomic_write(path) as file:
        np.savez_compressed(file, **arrays)


def read(path: Path) -> list[AttentionRecord]:
    """Read the captions in the order in which they were written."""
    advice = "test the run again (captioning.evaluate), or take the file away"
    with refuse_damage(path, advice):
        arrays = read_arrays(path, LARGEST_MAPS)
        entries = TypeAdapter(list[_Entry]).validate_json(arrays["captions"].tobytes())
        return [
            _caption(entry, arrays[f"maps_{i}"], arrays[f"scale_{i}"])
            for i, entry in enumerate(entries)
        ]


def _caption(entry: _Entry, maps: np.ndarray, scale: np.ndarray) -> AttentionRecord:
    expected = len(entry.maps), len(entry.words)
    formed = (
        maps.dtype == np.uint8
        and maps.ndim == 4
        and all(maps.shape[2:])
        and scale.dtype == np.float32
    )
    fitting = maps.shape[:2] == scale.shape == expected and entry.maps[0] == "mean"
    if not formed or not fitting or not ((scale >= 0) & np.isfinite(scale)).all():
        raise ValueError(
            f"maps {maps.dtype} {maps.shape} and scales {scale.dtype} {scale.shape} are no weights"
        )

    return AttentionRecord(
        entry.image_id,
        tuple(entry.words),
        dict(zip(entry.maps, maps * (scale / np.float32(255))[..., None, None], strict=True)),
        tuple(entry.labels),
    )
