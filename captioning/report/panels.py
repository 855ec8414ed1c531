"""Panels of attention: a photograph and, word by word, where the model looked.

H x W pixels, T words, maps on a grid of h x w. The form is that of Figure 2 of Springenberg et al., "Image-to-Text
Transduction with Spatial Self-Attention" (2018), and of the figures of Xu et al., "Show, Attend and Tell" (2015).
"""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from torch import Tensor

from captioning.backbones.partial import on_photograph

COLUMNS = 6
DPI = 100
# All in inches.
CELL, SMALL_CELL = 1.5, 0.75  # the longer side of a picture, and of one among those of many maps
SPACE = 0.12  # between cells and around the panel
WORD_LINE = 0.27
TITLE_LINE = 0.24
WORD_POINTS, TITLE_POINTS = 12.0, 11.0
INK, FAINT_INK = "#202020", "#707070"

SMOOTH = 0.6  # standard deviation of the Gaussian that spreads a map's values, in cells of its grid
SHADE = 0.3  # the share of the photograph's light that is left where a map is zero
GLOW = 0.4  # the share of white at a map's peak, so that a peak on a dark object shows too


def save_panel(
    path: Path,
    photograph: Tensor,
    words: Sequence[str],
    maps: Tensor | Mapping[str, Tensor],
    title: str | None = None,
) -> None:
    """Saves a PNG: the photograph, then for each word the photograph lit where the word's map is high.

    Every map has a scale of its own, from zero (a dark photograph) to its maximum (full light), and is smoothed by a
    Gaussian.

    Args:
        path: the file to write; its folder exists.
        photograph: `[3, H, W]`, 0..1, as the network saw it (before normalisation); of one with a fourth channel the
            part is shown where that is not 0.
        words: T words, without `<eos>`.
        maps: `[T, h, w]`, not negative; or several by their names, such as those of every layer and head, for which
            there is a line each.
        title: a line, or more where it is long, above the panel.

    Raises:
        ValueError: the shapes do not fit.
    """
    if photograph.dim() != 3 or photograph.shape[0] not in (3, 4):
        raise ValueError(f"the photograph must be [3, H, W] or [4, H, W], not {list(photograph.shape)}")
    photograph = photograph.detach().to("cpu", torch.float32).clamp(0, 1)
    plain, pictures, labels = photograph[:3, *_shown(photograph)], [], []
    for name, each in maps.items() if isinstance(maps, Mapping) else [("", maps)]:
        if each.dim() != 3 or len(each) != len(words):
            raise ValueError(f"maps must be [T, h, w] for T = {len(words)} words, not {list(each.shape)}")
        pictures += [plain, *light(photograph, each.detach().to("cpu", torch.float32))]
        labels += [name, *words]

    shape = plain.shape[1:]
    scale = (SMALL_CELL if isinstance(maps, Mapping) else CELL) / max(shape)
    high, wide = (scale * side for side in shape)
    columns = 1 + len(words) if isinstance(maps, Mapping) else min(COLUMNS, len(pictures))
    rows = -(-len(pictures) // columns)
    across = SPACE + columns * (wide + SPACE)
    # An average letter of the sans-serif font is about 0.6 of its size wide, and an inch has 72 points.
    title_lines = textwrap.wrap(title or "", max(12, int((across - 2 * SPACE) * 72 / (0.6 * TITLE_POINTS))))
    head = SPACE + TITLE_LINE * len(title_lines)
    down = head + rows * (WORD_LINE + high + SPACE)

    figure = Figure(figsize=(across, down), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    for number, title_line in enumerate(title_lines):
        y = 1 - (SPACE / 2 + TITLE_LINE * (number + 0.5)) / down
        figure.text(
            SPACE / across, y, title_line, fontsize=TITLE_POINTS, color=FAINT_INK, va="center", parse_math=False
        )
    for number, (picture, label) in enumerate(zip(pictures, labels, strict=True)):
        row, column = divmod(number, columns)
        left = SPACE + column * (wide + SPACE)
        bottom = down - head - row * (WORD_LINE + high + SPACE) - WORD_LINE - high
        axes = figure.add_axes((left / across, bottom / down, wide / across, high / down))
        axes.imshow(picture.permute(1, 2, 0).numpy(), interpolation="lanczos", aspect="auto")
        axes.set_axis_off()
        points = min(WORD_POINTS, wide * 72 / (0.65 * max(1, len(label))))
        middle, line = (left + wide / 2) / across, (bottom + high + WORD_LINE / 2) / down
        figure.text(middle, line, label, fontsize=points, color=INK, ha="center", va="center", parse_math=False)
    figure.savefig(path, format="png", pil_kwargs={"optimize": True})


def _shown(photograph: Tensor) -> tuple[slice, slice]:
    """The rows and columns where the photograph lies."""
    on = photograph[3] > 0 if len(photograph) > 3 else torch.ones(photograph.shape[1:], dtype=torch.bool)
    rows, columns = (on.any(dim=dim).nonzero().flatten().tolist() for dim in (1, 0))
    return slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1)


def light(photograph: Tensor, maps: Tensor) -> Tensor:
    """Lays each map over the photograph as light.

    Args:
        photograph: `[3, H, W]`, 0..1, or as `save_panel` takes it.
        maps: `[T, h, w]`, not negative.

    Returns:
        `[T, 3, H, W]`, 0..1, of what is shown.
    """
    part, (_, high, wide), (_, rows, columns) = _shown(photograph), photograph.shape, maps.shape
    down, across = _spread(high, rows)[part[0]], _spread(wide, columns)[part[1]].T
    smooth = down @ maps @ across  # [T, H, W]
    if len(photograph) > 3:  # cells beside the photograph have no value, which is not the value 0
        present = on_photograph(photograph[None, 3], (rows, columns)).view(rows, columns)
        smooth = smooth / (down @ present.to(maps.dtype) @ across)
    photograph = photograph[:3, *part]
    peaks = smooth.amax(dim=(1, 2), keepdim=True)
    strength = (smooth / peaks.clamp(min=torch.finfo(smooth.dtype).tiny))[:, None]  # [T, 1, H, W]
    return photograph * (SHADE + (1 - SHADE - GLOW) * strength) + GLOW * strength


def _spread(pixels: int, cells: int) -> Tensor:
    """What each of a grid's cells counts for at each pixel of one side: `[pixels, cells]`, rows of sum one.

    Bicubic interpolation would show the cells as squares, and undershoot beside a peak.
    """
    centres = (torch.arange(pixels) + 0.5) * cells / pixels - 0.5  # of the pixels, in cells
    distances = centres[:, None] - torch.arange(cells)
    return (-(distances**2) / (2 * SMOOTH**2)).softmax(dim=1)
