"""Panels of attention: a photograph with the attention map of each word.

H x W pixels of the photograph, T words, maps on a grid of h x w over the square that the network
saw, which lies on the photograph as `ImageTransform.frame` says: all of it stretched, a part
cropped, or more than all of it padded. The form is that of Figure 2 of Springenberg et al.,
"Image-to-Text Transduction with Spatial Self-Attention" (2018), and of the figures of Xu et al.,
"Show, Attend and Tell" (2015).
"""

import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import interpolate

from captioning.data.images import FULL_IMAGE, CropBox
from captioning.report.figures import DPI, figure, save
from captioning.report.maps import cells_on_image, count_locations, is_uniform

# as in templates/maps.js, which draws the maps of pages
SMOOTH = 0.6  # standard deviation of the Gaussian that spreads a map's values, in cells of its grid
SHADE = 0.3  # the share of the photograph's light that is left where a map is zero
GLOW = 0.4  # the share of white at a map's peak
FADED = 0.1  # the share of the photograph's light that is left where the network saw nothing of it

COLUMNS = 6
# All in inches.
CELL, SMALL_CELL = 1.5, 0.75  # the longer side of a picture, and of one among those of many maps
# the shorter side of a picture, of its longer: a strip thinner than that is shown wider than it is
FLATTEST = 0.2
SPACE = 0.12  # between cells and around the panel
KEY = 0.07  # how high the strip stands that tells what light means
LONGEST = int(2 * CELL * DPI)  # pixels of a photograph's longer side, of which no more can be shown
WORD, TITLE, NOTE = 12.0, 12.0, 7.5  # sizes of letters in points: an inch has 72
PAD = 4  # points between a picture and its word
WORD_LINE, TITLE_LINE, NOTE_LINE = (1.6 * size / 72 for size in (WORD, TITLE, NOTE))
LETTER = 0.6 / 72  # how wide an average letter of the sans-serif font is, of its size
INK, FAINT_INK = "#202020", "#606060"


def save_panel(
    path: Path,  # of a PNG; its folder exists
    image: Tensor,  # `[3, H, W]`, 0..1, in its own aspect ratio
    words: Sequence[str],  # T words, without `<eos>`
    maps: Tensor
    | Mapping[str, Tensor],  # `[T, h, w]`, each a distribution; or several by name, a line each
    title: str = "",
    references: Sequence[str] = (),
    frame: CropBox = FULL_IMAGE,  # where the maps lie on the photograph
) -> Figure:
    """Save a panel as PNG and PDF: the photograph, then each word's map over it.

    Every map has a scale of its own, from zero to its peak, and is smoothed by a Gaussian; one that
    looks everywhere alike is drawn as even. Beneath it stand the largest weight of a cell and the
    entropy.
    """
    many = isinstance(maps, Mapping)
    cell = SMALL_CELL if many else CELL
    longer = max(image.shape[1:])
    high, wide = (cell * max(side / longer, FLATTEST) for side in image.shape[1:])
    shape = round(DPI * high), round(DPI * wide)
    image = image.detach().to("cpu", torch.float32)[None]
    image = interpolate(image, shape, mode="bicubic", antialias=True)[0].clamp(0, 1)
    cells, even = list[tuple[Tensor, str, str]](), ""  # pictures, and what is above and below them
    for name, weights in maps.items() if isinstance(maps, Mapping) else [("", maps)]:
        weights = weights.detach().to("cpu", torch.float32)
        places = count_locations((weights.shape[1], weights.shape[2]), frame)
        notes = map(note, weights, is_uniform(weights.numpy(), places))
        cells.append((seen(image, frame), name, ""))
        cells += zip(overlay(image, weights, frame), words, notes, strict=True)
        even = f"an even map of {places} places: {100 / places:.1f} %, {math.log(places):.2f} nats"

    columns = 1 + len(words) if many else min(COLUMNS, len(cells))
    across = SPACE + columns * (wide + SPACE)
    above = wrapped(title, across, TITLE)
    below = [line for text in references for line in wrapped(f"reference: {text}", across, NOTE)]
    below += wrapped(f"Each map has a scale of its own; {even}", across, NOTE) if words else []
    row_height = WORD_LINE + high + NOTE_LINE
    head = SPACE / 2 + len(above) * TITLE_LINE
    rows_end = head + -(-len(cells) // columns) * row_height
    down = rows_end + SPACE + len(below) * NOTE_LINE
    page = figure(across, down)
    left, top = SPACE / across, SPACE / 2 / down
    page.text(left, 1 - top, "\n".join(above), size=TITLE, color=INK, va="top", parse_math=False)
    page.text(
        left, top, "\n".join(below), size=NOTE, color=FAINT_INK, va="bottom", parse_math=False
    )
    for number, (picture, label, remark) in enumerate(cells):
        row, column = divmod(number, columns)
        x, y = SPACE + column * (wide + SPACE), head + (row + 1) * row_height - NOTE_LINE
        box = x / across, 1 - y / down, wide / across, high / down
        axes = page.add_axes(box, frame_on=False, xticks=[], yticks=[])
        axes.imshow(picture.permute(1, 2, 0).numpy(), interpolation="lanczos", aspect="auto")
        axes.set_title(
            label, size=_fitting(label, wide, WORD), color=INK, pad=PAD, parse_math=False
        )
        size = _fitting(remark, wide, NOTE)
        axes.set_xlabel(remark, size=size, color=FAINT_INK, labelpad=PAD / 2, parse_math=False)
    if words:  # the key, beneath the photograph
        key = page.axes[0].inset_axes((0.25, -(NOTE_LINE + KEY) / 2 / high, 0.5, KEY / high))
        shades = lit(torch.full((1, 256, 3), 0.5), torch.linspace(0, 1, 256)[:, None])
        key.imshow(shades.numpy(), aspect="auto")
        key.set_axis_off()
        letters: Any = {
            "size": _fitting("peak", wide / 4, NOTE),
            "color": FAINT_INK,
            "va": "center",
        }
        key.text(-0.05, 0.5, "0", ha="right", transform=key.transAxes, **letters)
        key.text(1.05, 0.5, "peak", transform=key.transAxes, **letters)
    save(page, path)
    return page


def note(weights: Tensor, even: bool) -> str:
    """The largest weight and the entropy of a distribution."""
    entropy = torch.special.entr(weights.double()).sum().item()
    return f"peak {100 * weights.max():.1f} %, {entropy:z.2f} nats{', even' if even else ''}"


def wrapped(text: str, across: float, points: float) -> list[str]:
    return textwrap.wrap(text, max(12, int((across - 2 * SPACE) / (LETTER * points))))


def _fitting(text: str, across: float, points: float) -> float:
    """Return the font size at which a text fits `across` inches."""
    return min(points, 0.92 * across / LETTER / max(1, len(text)))


def overlay(image: Tensor, maps: Tensor, frame: CropBox = FULL_IMAGE) -> Tensor:
    """Light a photograph `[3, H, W]` by maps `[T, h, w]`.

    It is dark where a map is zero, bright at its peak.

    An even map, and one that is nearly even, is bright all over. `[T, 3, H, W]`, 0..1.
    """
    left, top, right, bottom = frame
    (high, wide), (rows, columns) = image.shape[1:], maps.shape[1:]
    even = torch.from_numpy(is_uniform(maps.numpy(), count_locations((rows, columns), frame)))
    maps = maps.masked_fill(even[:, None, None], 1)
    # [T, H, W]
    smooth = _spread(high, rows, top, bottom) @ maps @ _spread(wide, columns, left, right).T
    peaks = smooth.masked_fill(~_inside(high, wide, frame), 0).amax(dim=(1, 2), keepdim=True)
    strength = (smooth / peaks.clamp(min=torch.finfo(smooth.dtype).tiny)).clamp(max=1)
    return seen(lit(image, strength[:, None]), frame, image)


def lit(image: Tensor, light: Tensor) -> Tensor:
    """A photograph in a light of 0..1."""
    return image * (SHADE + (1 - SHADE - GLOW) * light) + GLOW * light


def seen(pictures: Tensor, frame: CropBox, image: Tensor | None = None) -> Tensor:
    """Darken the parts of pictures `[..., 3, H, W]` that the network has not seen.

    Of maps, these are of their `image`.
    """
    faded = FADED * (pictures if image is None else image)
    return torch.where(_inside(pictures.shape[-2], pictures.shape[-1], frame), pictures, faded)


def _inside(high: int, wide: int, frame: CropBox) -> Tensor:
    """`[H, W]` bool: the pixels that the network saw."""
    left, top, right, bottom = frame
    down, across = (torch.arange(high) + 0.5) / high, (torch.arange(wide) + 0.5) / wide
    return ((down > top) & (down < bottom))[:, None] & ((across > left) & (across < right))


def _spread(pixels: int, cells: int, start: float, end: float) -> Tensor:
    """Return the weight of each cell at each pixel of a side, `[pixels, cells]`; rows sum to 1."""
    # bicubic interpolation would show the cells as squares, and undershoot beside a peak
    centres = start + (torch.arange(cells) + 0.5) / cells * (end - start)
    distances = ((torch.arange(pixels) + 0.5) / pixels)[:, None] - centres
    distances *= cells / (end - start)  # in cells
    # cells beside the photograph have no value, which is not the value 0
    beside = torch.from_numpy(~cells_on_image(cells, start, end))
    return (-(distances**2) / (2 * SMOOTH**2)).masked_fill(beside, -torch.inf).softmax(dim=1)
