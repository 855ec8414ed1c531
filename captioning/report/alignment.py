"""Pictures of attention to vectors without a place on a photograph.

Such are the frames of a clip, source words, and sound.

T words, L vectors. The form is that of Figure 3 of Bahdanau, Cho, Bengio, "Neural Machine
Translation by Jointly Learning to Align and Translate" (2015): a row for each word, a column for
each vector.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from captioning.report.figures import figure, save
from captioning.report.maps import Array
from captioning.report.panels import NOTE, TITLE, WORD, wrapped

# inches: of a word; of each map beside its words; beside the columns
ROW, HEAD, REST = 0.3, 0.9, 2.4
NARROW, WIDE, COLUMN = 2.5, 9.0, 0.25  # inches: the least and most of all columns, and of one
MOST_LABELS = 60  # columns that have room for a label of each
COLOURS = "Blues"  # white is 0
TINY = 1e-30  # in place of a peak of 0


def save_alignment(
    path: Path,  # of a PNG; its folder exists
    words: Sequence[str],  # T words, without `<eos>`
    maps: Mapping[str, Array],  # `[T, L]` by name, each row a distribution; one below the other
    labels: Sequence[str] = (),  # of the L vectors; none: their numbers
    title: str = "",
    references: Sequence[str] = (),
) -> Figure:
    """Save the weights of each word as shades, as PNG and PDF; each row is darkest at its peak.

    The weights 0.2, 0.5, 0.3 of a word over L = 3 vectors are shades of 0.4, 1.0, 0.6, and those of
    an even row are all 1.0.
    """
    count = next(iter(maps.values())).shape[1]
    across = min(WIDE, max(NARROW, COLUMN * count))
    below = [
        line for text in references for line in wrapped(f"reference: {text}", across + REST, NOTE)
    ]
    down = len(maps) * (HEAD + ROW * len(words)) + ROW * len(below) / 2
    page = figure(across + REST, down, layout="constrained")
    every = -(-count // MOST_LABELS)
    shown = [*(labels or map(str, range(1, count + 1)))][::every]
    turned = 90 if max(map(len, shown)) > 2 else 0
    rows = page.subplots(len(maps), squeeze=False)[:, 0]
    for axes, (name, weights) in zip(rows, maps.items(), strict=True):
        if words:
            shares = weights / weights.max(axis=1, keepdims=True, initial=TINY)
            axes.imshow(shares, COLOURS, aspect="auto", vmin=0, vmax=1)
        axes.set_yticks(range(len(words)), words, fontsize=WORD, parse_math=False)
        axes.set_xticks(
            range(0, count, every), shown, fontsize=NOTE, rotation=turned, parse_math=False
        )
        axes.xaxis.tick_top()
        axes.tick_params(length=0)
        if len(maps) > 1:
            axes.set_title(name, fontsize=NOTE, loc="left", parse_math=False)
    axes.set_xlabel("\n".join(below), fontsize=NOTE, loc="left", parse_math=False)
    page.suptitle("\n".join(wrapped(title, across + REST, TITLE)), fontsize=TITLE, parse_math=False)
    save(page, path)
    return page
