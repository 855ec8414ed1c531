"""Attention kept with a run: `attention.npz`, each map in 8 bits beside its largest weight; M of h x w for T words."""

import json
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from captioning.borders.files import atomic_write
from captioning.errors import CaptioningError, quoted


@dataclass(frozen=True)
class KeptCaption:
    """The maps of one caption: name -> float32 `[T, h, w]`, `mean` first."""

    image_id: int | str
    words: tuple[str, ...]
    maps: dict[str, np.ndarray]


def write(path: Path, captions: Sequence[KeptCaption]) -> None:
    """Writes the file, whole or not at all."""
    head = [{"image_id": c.image_id, "words": c.words, "maps": list(c.maps)} for c in captions]
    arrays = {"captions": np.frombuffer(json.dumps(head).encode(), np.uint8)}
    for i, caption in enumerate(captions):
        maps = np.stack(list(caption.maps.values()))  # [M, T, h, w]
        scale = maps.max(axis=(2, 3))
        shares = maps / np.maximum(scale, np.finfo(np.float32).tiny)[:, :, None, None]
        arrays |= {f"maps_{i}": np.round(255 * shares).astype(np.uint8), f"scale_{i}": scale.astype(np.float32)}
    with atomic_write(path) as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def read(path: Path) -> list[KeptCaption]:
    """What the file holds.

    Raises:
        CaptioningError: it is damaged.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            head = json.loads(file["captions"].tobytes())
            found = []
            for i, caption in enumerate(head):
                scale = file[f"scale_{i}"][:, :, None, None]
                maps = dict(zip(caption["maps"], file[f"maps_{i}"] / np.float32(255) * scale, strict=True))
                found.append(KeptCaption(caption["image_id"], tuple(caption["words"]), maps))
            return found
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise CaptioningError(f"{path} is damaged ({quoted(error)}): test the run again") from error
