"""Maps of attention as colour over the photograph that they belong to.

H x W pixels of the whole photograph, T maps on a grid of h x w over the square that the network saw, which lies on the
photograph as `ImageTransform.frame` says: all of it squashed, a part cropped, or more than all of it padded.
"""

import matplotlib
import torch
from torch import Tensor

from captioning.files import WHOLE, Frame
from captioning.report.even import looks_alike, on_photograph, places

PALETTE = torch.tensor(matplotlib.colormaps["viridis"].colors)  # type: ignore[attr-defined]
"""`[colours, 3]` from zero to a peak: perceptually uniform, and to be told apart by the colour-blind and in grey."""

SMOOTH = 0.6  # standard deviation of the Gaussian that spreads a map's values, in cells of its grid
LEAST, MOST = 0.45, 0.62  # the share of colour in what is shown, where a map is zero and at its peak
GREY = 0.6  # the share of the photograph's own colours that is taken out beneath a map
FADED = 0.25  # the share of the photograph that is left where the network saw nothing of it


def overlay(photograph: Tensor, maps: Tensor, frame: Frame = WHOLE) -> Tensor:
    """Lays each map over the photograph, coloured and ever less transparent from zero to its own peak.

    So an even map has the peak's colour all over, one that is nearly even too (`report.even`), and nowhere does a map
    look like the photograph alone.

    Args:
        photograph: `[3, H, W]`, 0..1.
        maps: `[T, h, w]`, not negative.
        frame: where the grid lies on the photograph.

    Returns:
        `[T, 3, H, W]`, 0..1.
    """
    left, top, right, bottom = frame
    (high, wide), (rows, columns) = photograph.shape[1:], maps.shape[1:]
    even = torch.from_numpy(looks_alike(maps.numpy(), places((rows, columns), frame)))
    maps = maps.masked_fill(even[:, None, None], 1)
    smooth = _spread(high, rows, top, bottom) @ maps @ _spread(wide, columns, left, right).T  # [T, H, W]
    peaks = smooth.masked_fill(~_inside(high, wide, frame), 0).amax(dim=(1, 2), keepdim=True)
    strength = (smooth / peaks.clamp(min=torch.finfo(smooth.dtype).tiny)).clamp(max=1)[:, None]  # [T, 1, H, W]
    last = len(PALETTE) - 1
    colours = PALETTE[(strength[:, 0] * last).round().long()].permute(0, 3, 1, 2)
    share = LEAST + (MOST - LEAST) * strength
    beneath = photograph.lerp(photograph.mean(dim=0, keepdim=True), GREY)
    return seen(beneath.lerp(colours, share), frame)


def seen(pictures: Tensor, frame: Frame) -> Tensor:
    """Pictures `[..., 3, H, W]` of which that is faded to a light grey which the network has not seen."""
    faded = 1 - FADED * (1 - pictures.mean(dim=-3, keepdim=True))
    return torch.where(_inside(pictures.shape[-2], pictures.shape[-1], frame), pictures, faded)


def _inside(high: int, wide: int, frame: Frame) -> Tensor:
    """`[H, W]` bool: the pixels that the network saw."""
    left, top, right, bottom = frame
    down, across = (torch.arange(high) + 0.5) / high, (torch.arange(wide) + 0.5) / wide
    return ((down > top) & (down < bottom))[:, None] & ((across > left) & (across < right))


def _spread(pixels: int, cells: int, start: float, end: float) -> Tensor:
    """What each of a grid's cells counts for at each pixel of one side: `[pixels, cells]`, rows of sum one.

    Bicubic interpolation would show the cells as squares, and undershoot beside a peak. Cells beside the photograph
    have no value, which is not the value 0.
    """
    centres = start + (torch.arange(cells) + 0.5) / cells * (end - start)
    distances = ((torch.arange(pixels) + 0.5) / pixels)[:, None] - centres
    distances *= cells / (end - start)  # in cells
    beside = torch.from_numpy(~on_photograph(cells, start, end))
    return (-(distances**2) / (2 * SMOOTH**2)).masked_fill(beside, -torch.inf).softmax(dim=1)
