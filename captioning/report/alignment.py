"""Pictures of attention to vectors without a place on a photograph: frames of a clip, source words,
sound.

T words, L vectors. The form is that of Figure 3 of Bahdanau, Cho, Bengio, "Neural Machine
Translation by Jointly Learning to Align and Translate" (2015): a row for each word, a column for
each vector.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from matplotlib.figure import Figure

from captioning.report.figures import COLOURS, figure, save
from captioning.report.maps import Array, is_uniform
from captioning.report.panels import FAINT_INK, NOTE, TITLE, WORD, note, wrapped

# inches: of a word; of each map beside its words; beside the columns
ROW, HEAD, REST = 0.3, 0.9, 2.4
NARROW, WIDE, COLUMN = 2.5, 9.0, 0.25  # inches: the least and most of all columns, and of one
MOST_LABELS = 60  # columns that have room for a label of each
FULL = 0.9  # of a row's height, at its peak


def save_alignment(
    path: Path,  # of a PNG; its folder exists
    words: Sequence[str],  # T words, without `<eos>`
    maps: Mapping[str, Array],  # `[T, L]` by name, each row a distribution; one below the other
    labels: Sequence[str] = (),  # of the L vectors; none: their numbers
    title: str = "",
    references: Sequence[str] = (),
) -> Figure:
    """Save the weights of each word as bars, as PNG and PDF; each row has a scale of its own, from
    zero to its peak.
    """
    count = next(iter(maps.values())).shape[1]
    across = min(WIDE, max(NARROW, COLUMN * count))
    below = [
        line for text in references for line in wrapped(f"reference: {text}", across + REST, NOTE)
    ]
    down = len(maps) * (HEAD + ROW * len(words)) + ROW * len(below) / 2
    page = figure(across + REST, down, layout="constrained")
    for axes, (name, weights) in zip(
        page.subplots(len(maps), squeeze=False)[:, 0], maps.items(), strict=True
    ):
        for row, shares in enumerate(weights):
            peak = shares.max()
            heights = shares / peak if peak > 0 else shares
            # upwards from the row's lower edge, as the axis counts downwards
            axes.stairs(row + 0.5 - FULL * heights, baseline=row + 0.5, fill=True, color=COLOURS[0])
        axes.set(xlim=(0, count), ylim=(max(1, len(words)) - 0.5, -0.5))
        axes.hlines(
            [row + 0.5 for row in range(len(words))], 0, count, color=FAINT_INK, linewidth=0.4
        )
        axes.set_yticks(range(len(words)), words, fontsize=WORD, parse_math=False)
        axes.tick_params(length=0)
        every = -(-count // MOST_LABELS)
        shown = [*(labels or map(str, range(1, count + 1)))][::every]
        turned = 90 if max(map(len, shown)) > 2 else 0
        ticks = [column + 0.5 for column in range(0, count, every)]
        axes.xaxis.tick_top()
        axes.set_xticks(ticks, shown, fontsize=NOTE, rotation=turned, parse_math=False)
        axes.spines[:].set_visible(False)
        beside = axes.secondary_yaxis("right")
        notes = [*map(note, torch.from_numpy(weights), is_uniform(weights[:, None], count))]
        beside.set_yticks(range(len(words)), notes, fontsize=NOTE, color=FAINT_INK)
        beside.tick_params(length=0)
        beside.spines[:].set_visible(False)
        if len(maps) > 1:
            axes.set_title(name, fontsize=NOTE, loc="left", parse_math=False)
    axes.set_xlabel("\n".join(below), fontsize=NOTE, color=FAINT_INK, loc="left", parse_math=False)
    page.suptitle("\n".join(wrapped(title, across + REST, TITLE)), fontsize=TITLE, parse_math=False)
    save(page, path)
    return page
