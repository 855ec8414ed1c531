"""Maps of attention as a page holds them: M maps of T words on a grid of h x w, one byte a weight, in base64."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from captioning.errors import CaptioningError
from captioning.files import Frame
from captioning.metrics.scorer import ATTENTION, score_called
from captioning.report.even import looks_alike, places
from captioning.report.page.tested import Described, folder_of
from captioning.report.systems import System
from captioning.runs.kept_attention import FILE, KeptCaption, read

ATTENDED = "attended"
"""Hard attention's place at each word, which a page has as the number of a cell: its path over the photograph."""


def packed_maps(
    systems: Sequence[System], images: Sequence[Described], frames: Sequence[Sequence[Frame]], heads: int
) -> tuple[list[Any], list[str]]:
    """Of each system the maps by the images' places, None where none are kept; and a line on each file left out.

    Args:
        systems: in the order of the table.
        images: in the order of the page.
        frames: of each system and image, where its grid lies on the photograph.
        heads: the images whose every layer and head is shown; others have the mean alone.
    """
    packed: list[Any] = []
    left_out = []
    for place, system in enumerate(systems):
        path = folder_of(system) / FILE
        try:
            kept = {caption.image_id: caption for caption in read(path)} if path.exists() else {}
        except CaptioningError as error:
            left_out.append(f"attention of {system.label}: {error}")
            kept = {}
        packed.append(_of_system(place, images, frames[place], kept, heads) or None)
    return packed, left_out


def state(system: System, maps: Any) -> str:
    """What is to be said of a system's attention: `kept`, `not kept`, or `none` where it has none."""
    if maps:
        return "kept"
    return "not kept" if any(score_called(name).group == ATTENTION for name in system.runs[0].scores) else "none"


def _of_system(
    place: int, images: Sequence[Described], frames: Sequence[Frame], kept: Mapping[Any, KeptCaption], heads: int
) -> dict[int, Any]:
    found: dict[int, Any] = {}
    for number, (image, frame) in enumerate(zip(images, frames, strict=True)):
        line, caption = image.answers.get(place), kept.get(image.image_id)
        if line is None or caption is None or caption.words != tuple(line.caption.split()) or not caption.words:
            continue  # another test has left these maps
        shown = (
            caption.maps if len(found) < heads else {k: m for k, m in caption.maps.items() if k in ("mean", ATTENDED)}
        )
        found[number] = packed(shown, frame)
    return found


def packed(maps: Mapping[str, np.ndarray[Any, Any]], frame: Frame) -> dict[str, Any]:
    """Maps `[T, h, w]` by name as `maps.js` reads them, with the words at which each looks everywhere alike."""
    weights = {name: each for name, each in maps.items() if name != ATTENDED}
    stacked = np.stack(list(weights.values()))
    height, width = stacked.shape[2:]
    cells = places((height, width), frame)
    found = {
        "names": list(weights),
        "grid": [height, width],
        "frame": [round(side, 4) for side in frame],
        "places": cells,
        "even": [np.flatnonzero(even).tolist() for even in looks_alike(stacked, cells)],
        "maps": _bytes(stacked),
    }
    return found | ({"path": [int(taken.argmax()) for taken in maps[ATTENDED]]} if ATTENDED in maps else {})


def _bytes(maps: np.ndarray[Any, Any]) -> str:
    """`[M, T, h, w]`, each word's map in shares of its largest weight."""
    peaks = maps.max(axis=(2, 3), keepdims=True)
    shares = np.divide(maps, peaks, out=np.zeros_like(maps), where=peaks > 0)
    return base64.b64encode(np.round(255 * shares).astype(np.uint8).tobytes()).decode()
