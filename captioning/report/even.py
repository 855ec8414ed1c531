"""Maps of attention that look everywhere alike, which no picture may stretch to a peak.

Maps on a grid of h x w, of whose cells L lie on the photograph.
"""

from typing import Any

import numpy as np

from captioning.files import Frame

ALIKE = 0.99
"""Of log L: a map of at least this entropy is drawn as even.

(D) Its largest weight is then 1.6 to 1.8 times the even 1 / L on the maps that were recorded on Flickr8k, and its
entropy in nats, printed with a digit behind the point, is that of the even map.
"""


def looks_alike(maps: np.ndarray[Any, Any], places: int) -> np.ndarray[Any, Any]:
    """Which of the maps `[..., h, w]`, not negative, look at all of L places alike: bool `[...]`."""
    *which, h, w = maps.shape
    cells = maps.reshape(*which, h * w).astype(np.float64)  # of a caption without words there are none
    sums = cells.sum(axis=-1, keepdims=True)
    shares = np.divide(cells, sums, out=np.zeros_like(cells), where=sums > 0)
    entropy = -(shares * np.log(shares, out=np.zeros_like(shares), where=shares > 0)).sum(axis=-1)
    return np.asarray(entropy >= ALIKE * np.log(places))


def places(grid: tuple[int, int], frame: Frame) -> int:
    """How many cells of the grid lie on the photograph."""
    left, top, right, bottom = frame
    return int(on_photograph(grid[0], top, bottom).sum() * on_photograph(grid[1], left, right).sum())


def on_photograph(cells: int, start: float, end: float) -> np.ndarray[Any, Any]:
    """Which cells along a side lie on the photograph, by the rule of `backbones.partial.on_photograph`."""
    centres = start + (np.arange(cells) + 0.5) / cells * (end - start)
    found = (centres > -1e-6) & (centres < 1 + 1e-6)
    return found if found.any() else np.arange(cells) == cells // 2
