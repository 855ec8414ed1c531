"""Attention maps for pictures and pages.

M maps, T words, a grid of h x w, L cells on the photograph.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from captioning.data.images import CropBox

Array = np.ndarray
Shown = dict[str, Any]
"""Plain values, as templates and scripts have them."""
# hard attention's place at each word, which a page has as the number of a cell: its path over the
# photograph
ATTENDED = "attended"
# Of log L: a map of at least this entropy is drawn as even. (D) Its largest weight is then 1.6 to
# 1.8 times the even 1 / L on the maps recorded on Flickr8k, and its entropy in nats, printed with
# one decimal, is the even map's.
ALIKE = 0.99


def is_uniform(maps: Array, locations: int) -> Array:
    """Find nearly even maps among `[..., h, w]`, nonnegative, over L locations: bool `[...]`."""
    from scipy.special import entr  # here, because it takes a third of a second

    cells = maps.astype(np.float64)
    sums = cells.sum(axis=(-2, -1), keepdims=True)
    shares = np.divide(cells, sums, out=np.zeros_like(cells), where=sums > 0)
    return np.asarray(entr(shares).sum(axis=(-2, -1)) >= ALIKE * np.log(locations))


def count_locations(grid: tuple[int, int], frame: CropBox) -> int:
    """Count the grid cells on the photograph."""
    left, top, right, bottom = frame
    rows = cells_on_image(grid[0], top, bottom).sum()
    return int(rows * cells_on_image(grid[1], left, right).sum())


def cells_on_image(cells: int, start: float, end: float) -> Array:
    """Find the cells of a side on the photograph, as `backbones.context.on_image` does."""
    centres = start + (np.arange(cells) + 0.5) / cells * (end - start)
    within = (centres > -1e-6) & (centres < 1 + 1e-6)
    return within if within.any() else np.arange(cells) == cells // 2


def quantise(maps: Mapping[str, Array], frame: CropBox, labels: Sequence[str] = ()) -> Shown:
    """Pack named maps `[T, h, w]` for `maps.js`.

    Bytes `[M, T, h, w]`, relative to each map's largest weight.
    """
    weights = {name: values for name, values in maps.items() if name != ATTENDED}
    stacked = np.stack(list(weights.values()))
    peaks = stacked.max(axis=(2, 3), keepdims=True)
    shares = np.divide(stacked, peaks, out=np.zeros_like(stacked), where=peaks > 0)
    height, width = stacked.shape[2:]
    cells = count_locations((height, width), frame)
    packed = {
        "names": list(weights),
        "grid": [height, width],
        "frame": [round(side, 4) for side in frame],
        "places": cells,
        # the words, of each map
        "even": [np.flatnonzero(even).tolist() for even in is_uniform(stacked, cells)],
        "maps": base64.b64encode(np.round(255 * shares).astype(np.uint8).tobytes()).decode(),
    }
    if labels:
        packed["labels"] = labels
    if ATTENDED in maps:
        packed["path"] = [int(taken.argmax()) for taken in maps[ATTENDED]]
    return packed
