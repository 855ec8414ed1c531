"""Learning curves and differences with intervals, asked of the figures, from runs and comparisons written by hand."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from captioning.metrics.bootstrap import Difference
from captioning.report.figures import ALIKE, APART, curves, intervals
from captioning.report.runs import Provenance, Run
from captioning.report.systems import Compared, System

LONG = (
    "Show, Attend and Tell, soft, behind self-attention, small (model.encoder.norm=pre, model.d_feat=512, " + "x" * 90
)


def run(seed: int, rows: Sequence[dict[str, float]]) -> Run:
    known = {"model": "m", "data": "d", "name": "n", "settings": {}, "scores": {}, "provenance": Provenance()}
    return Run.model_construct(folder=Path(), seed=seed, history=list(rows), **known)


def validation(epoch: int, seconds: float, nll: float) -> dict[str, float]:
    return {"epoch": epoch, "step": 10 * epoch + 9, "seconds": seconds, "val/nll": nll, "val/CIDEr": 100 / nll}


def system(label: str, *histories: Sequence[dict[str, float]]) -> System:
    return System(label, tuple(run(seed, rows) for seed, rows in enumerate(histories, start=1)))


def drawn(systems: Sequence[System]) -> Figure:
    page = curves(systems)
    page.draw_without_rendering()
    return page


def test_a_line_for_the_mean_and_a_band_for_the_deviation() -> None:
    first = [validation(0, 60.0, 2.0), validation(1, 120.0, 1.0)]
    second = [validation(0, 120.0, 4.0), validation(1, 240.0, 3.0), validation(2, 360.0, 0.5)]
    page = drawn([system("three", first, second), system("one", [validation(0, 100.0, 2.5)])])
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


def test_hours_where_training_is_long() -> None:
    page = drawn([system("long", [validation(0, 7200.0, 2.0), validation(1, 14400.0, 1.0)])])
    assert page.axes[5].get_xlabel() == "hours of training"
    assert list(page.axes[3].get_lines()[0].get_xdata()) == [2, 4]


@pytest.mark.parametrize("count", [1, 3, 15])
def test_nothing_is_cut_and_no_two_systems_look_alike(count: int) -> None:
    labels = [f"{number} {LONG[: 20 + 60 * (number % 4)]}" for number in range(count)]
    page = drawn([system(label, [validation(e, 60.0 * e, 3.0 - e) for e in range(2)]) for label in labels])
    (legend,) = page.legends
    shown = [text.get_text().replace("\n", "").replace(" ", "") for text in legend.get_texts()]
    assert shown == [label.replace(" ", "") for label in labels]
    drawn_on, (width, height) = page.get_tightbbox(), page.get_size_inches()
    assert min(drawn_on.x0, drawn_on.y0, width - drawn_on.x1, height - drawn_on.y1) > 0.01
    below = legend.get_window_extent()
    assert all(not below.overlaps(axes.get_tightbbox()) for axes in page.axes)
    lines = page.axes[2].get_lines()
    assert len({(line.get_color(), line.get_marker()) for line in lines}) == count
    assert count < 8 or len({line.get_linestyle() for line in lines}) > 1  # apart without markers too


def test_what_was_not_logged_is_said() -> None:
    page = drawn([system("bare", [{"epoch": 0, "step": 9}])])
    assert [text.get_text() for axes in page.axes for text in axes.texts] == ["not logged"] * 6


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
CIDER = {0: 40.0, 1: 60.0, 2: 55.0, 3: 50.0}


def pair(one: int, other: int, low: float, high: float) -> Compared:
    cider = Difference(CIDER[one], CIDER[other], CIDER[one] - CIDER[other], low, high, 0.5)
    bleu = Difference(20.0, 21.0, -1.0, -3.0, 0.5, 0.5)
    return {(one, other): {"BLEU-1": bleu, "BLEU-4": bleu, "CIDEr": cider}}


COMPARED = pair(0, 1, -22, -18) | pair(0, 2, -18, -12) | pair(0, 3, -13, -7)
COMPARED |= pair(1, 2, -1, 11) | pair(1, 3, 7, 13) | pair(2, 3, 2, 9)
NAMES = ["BLEU-4", "METEOR", "CIDEr"]


def test_each_differs_from_the_best_of_those_with_most_runs() -> None:
    """A pair that has it first is turned around: 2 to 9 above is -9 to -2."""
    page = intervals(SYSTEMS, COMPARED, NAMES)
    assert page is not None
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


def test_no_label_of_an_interval_is_cut() -> None:
    page = intervals(SYSTEMS, COMPARED, NAMES)
    assert page is not None
    page.draw_without_rendering()
    drawn_on, (width, height) = page.get_tightbbox(), page.get_size_inches()
    assert min(drawn_on.x0, drawn_on.y0, width - drawn_on.x1, height - drawn_on.y1) > 0.01


@pytest.mark.parametrize("compared", [{}, {(0, 1): {"BLEU-1": Difference(1, 1, 0, 0, 0, 1)}}])
def test_nothing_is_drawn_of_nothing(compared: Compared) -> None:
    assert intervals(SYSTEMS, compared, NAMES) is None
