"""Learning curves and differences with intervals, asked of the figures, from runs and comparisons written by hand."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from captioning.metrics.bootstrap import Difference
from captioning.report.figures import ALIKE, APART, curves, intervals
from captioning.report.runs import Provenance, Run
from captioning.report.systems import Compared, System

Rows = Sequence[dict[str, float]]
LONG = "Show, Attend and Tell, soft, behind self-attention, small (model.encoder.norm=pre, model.d_feat=512, "
LONG += "x" * 90


def run(seed: int, rows: Rows) -> Run:
    return Run.model_construct(folder=Path(), seed=seed, scores={}, provenance=Provenance(), history=list(rows))


def validation(epoch: int, seconds: float, nll: float) -> dict[str, float]:
    return {"epoch": epoch, "step": 10 * epoch + 9, "seconds": seconds, "val/nll": nll, "val/CIDEr": 100 / nll}


def system(label: str, *histories: Rows) -> System:
    return System(label, tuple(run(seed, rows) for seed, rows in enumerate(histories, start=1)))


def drawn(page: Figure | None) -> Figure:
    """A page on which nothing is cut."""
    assert page
    page.draw_without_rendering()
    used, (width, height) = page.get_tightbbox(), page.get_size_inches()
    assert min(used.x0, used.y0, width - used.x1, height - used.y1) > 0.01
    return page


def test_a_line_for_the_mean_and_a_band_for_the_deviation() -> None:
    first = [validation(0, 60.0, 2.0), validation(1, 120.0, 1.0)]
    second = [validation(0, 120.0, 4.0), validation(1, 240.0, 3.0), validation(2, 360.0, 0.5)]
    page = drawn(curves([system("three", first, second), system("one", [validation(0, 100.0, 2.5)])]))
    epochs, time = page.axes[2:4]
    assert "validation loss" in epochs.get_ylabel()
    mean, single = epochs.get_lines()
    assert list(mean.get_xdata()) == [1, 2, 3]
    assert list(mean.get_ydata()) == [3, 2, 0.5]
    assert list(single.get_ydata()) == [2.5]
    (band,) = epochs.collections
    # deviations of 2 and 4, of 1 and 3 with the divisor n - 1: the root of 2
    assert band.get_datalim(epochs.transData).extents == pytest.approx([1, 0.5, 3, 3 + 2**0.5])
    assert list(time.get_lines()[0].get_xdata()) == [1.5, 3, 6]
    assert page.axes[5].get_xlabel() == "minutes of training"
    assert [text.get_text() for axes in page.axes for text in axes.texts] == ["not logged"] * 2  # training loss


def test_hours_where_training_is_long() -> None:
    page = drawn(curves([system("long", [validation(0, 7200.0, 2.0), validation(1, 14400.0, 1.0)])]))
    assert page.axes[5].get_xlabel() == "hours of training"
    assert list(page.axes[3].get_lines()[0].get_xdata()) == [2, 4]


@pytest.mark.parametrize("count", [1, 15])
def test_no_two_systems_look_alike(count: int) -> None:
    labels = [f"{number} {LONG[: 20 + 60 * (number % 4)]}" for number in range(count)]
    page = drawn(curves([system(label, [validation(e, 60.0 * e, 3.0 - e) for e in range(2)]) for label in labels]))
    (legend,) = page.legends
    shown = [text.get_text().replace("\n", "").replace(" ", "") for text in legend.get_texts()]
    assert shown == [label.replace(" ", "") for label in labels]
    below = legend.get_window_extent()
    assert all(not below.overlaps(axes.get_tightbbox()) for axes in page.axes)
    lines = page.axes[2].get_lines()
    assert len({(line.get_color(), line.get_marker()) for line in lines}) == count
    assert count < 8 or len({line.get_linestyle() for line in lines}) > 1  # apart without markers too


def test_training_loss_is_the_mean_up_to_a_validation_or_the_end_of_an_epoch() -> None:
    def train(epoch: int, step: int, nll: float) -> dict[str, float]:
        return {"epoch": epoch, "step": step, "train/nll": nll}

    rows = [train(0, 4, 4.0), train(0, 9, 3.0), train(1, 14, 2.0), train(1, 19, 1.0)]
    rows += [{"epoch": 1, "step": 19, "seconds": 200.0, "val/nll": 2.0}, train(2, 24, 1.0), train(2, 29, 0.5)]
    rows += [{"epoch": 2, "step": 29, "seconds": 400.0, "val/nll": 2.0}, train(3, 34, 0.1)]
    assert run(1, rows).training_loss("epoch") == ([0, 1, 2], [3.5, 1.5, 0.75])
    places, means = run(1, rows).training_loss("seconds")
    assert places == pytest.approx([200 * 9 / 19, 200, 400])  # steps of equal length from the beginning on
    assert means == [3.5, 1.5, 0.75]
    assert run(1, rows[:4]).training_loss("seconds") == ([], [])


SYSTEMS = [system("low", [], []), system("lucky", []), system("good", [], []), system("$long_$ " * 20, [], [])]
CIDER = (40.0, 60.0, 55.0, 50.0)
SPANS = {(0, 1): (-22, -18), (0, 2): (-18, -12), (0, 3): (-13, -7), (1, 2): (-1, 11), (1, 3): (7, 13), (2, 3): (2, 9)}
BLEU = Difference(20.0, 21.0, -1.0, -3.0, 0.5, 0.5)
COMPARED: Compared = {
    (one, other): {"BLEU-1": BLEU, "BLEU-4": BLEU}
    | {"CIDEr": Difference(CIDER[one], CIDER[other], CIDER[one] - CIDER[other], *span, 0.5)}
    for (one, other), span in SPANS.items()
}
NAMES = ["BLEU-4", "METEOR", "CIDEr"]


def test_each_differs_from_the_best_of_those_with_most_runs() -> None:
    """A pair that has it first is turned around: 2 to 9 above is -9 to -2."""
    page = drawn(intervals(SYSTEMS, COMPARED, NAMES))
    cider, bleu = page.axes
    assert (cider.get_xlabel(), bleu.get_xlabel()) == ("CIDEr (x 100): 55.0 at 0", "BLEU-4: 21.0 at 0")
    assert "difference from good with" in page.get_suptitle()
    zero, *lines = cider.get_lines()
    assert list(zero.get_xdata()) == [0, 0]
    spans, points = lines[::2], lines[1::2]
    assert [list(line.get_xdata()) for line in spans] == [[-1, 11], [-9, -2], [-18, -12]]
    assert [list(line.get_xdata()) for line in points] == [[5], [-5], [-15]]
    assert [line.get_color() for line in spans] == [ALIKE, APART, APART]
    labels = [text.get_text() for text in cider.get_yticklabels()]
    assert labels[::2] == ["lucky", "low"]
    assert labels[1].split() == ["$long_$"] * 20
    assert cider.get_ylim()[0] > cider.get_ylim()[1]  # the best on top
    assert [list(line.get_xdata()) for line in bleu.get_lines()[1::2]] == [[-3, 0.5], [-0.5, 3], [-3, 0.5]]


@pytest.mark.parametrize("compared", [{}, {(0, 1): {"BLEU-1": Difference(1, 1, 0, 0, 0, 1)}}])
def test_nothing_is_drawn_of_nothing(compared: Compared) -> None:
    assert intervals(SYSTEMS, compared, NAMES) is None
