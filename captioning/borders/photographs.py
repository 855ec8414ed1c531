"""Photographs, as all parts agree on them: files and formats, and the square that a network sees."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "PNG", "TIFF", "WEBP")
"""The kinds of files that Pillow may take a photograph for: others, EPS for one, it hands to other programs."""
SUFFIXES = (".avif", ".bmp", ".gif", ".jfif", ".jpe", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
"""Of photographs in a folder; a file that is named itself may be called anything."""

Frame = tuple[float, float, float, float]
"""Left, top, right, bottom of the square in fractions of the photograph."""
WHOLE: Frame = (0.0, 0.0, 1.0, 1.0)


def frame_of(resize: str, width: int, height: int) -> Frame:
    """The square: all of the photograph (`squash`), a part of it (`crop`), or more than it (`pad`)."""
    if resize == "squash":
        return WHOLE
    side = min(width, height) if resize == "crop" else max(width, height)
    left, top = (1 - side / width) / 2, (1 - side / height) / 2
    return left, top, 1 - left, 1 - top


def photographs_below(folder: Path, complain: Callable[[OSError], None]) -> Iterator[Path]:
    """The files of photographs in a folder and all folders in it, without hidden ones.

    Args:
        folder: where to look.
        complain: is told of folders that cannot be looked into.
    """
    for place, folders, files in os.walk(folder, onerror=complain):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for file in (Path(place, name) for name in files if not name.startswith(".")):
            if file.suffix.lower() in SUFFIXES and os.path.isfile(file):  # noqa: PTH113 - `Path.is_file` may raise
                yield file
