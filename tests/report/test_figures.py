"""Learning curves and differences with intervals, asked of the figures, from runs and comparisons
written by hand.
"""

from pathlib import Path

import pytest
from matplotlib.colors import to_hex

from captioning.metrics.contrasts import IMAGES_ONLY, Difference
from captioning.report.figures import ABOVE, ALIKE, APART, BELOW, curves, intervals, matrix
from captioning.report.runs import Provenance, Run
from captioning.report.systems import System


def run(seed, rows, objective="CrossEntropy"):
    return Run.model_construct(
        folder=Path(),
        seed=seed,
        scores={},
        provenance=Provenance(),
        history=list(rows),
        recorded={"objective._target_": f"captioning.training.objectives.{objective}"},
    )


def validation(epoch, seconds, nll):
    return {
        "epoch": epoch,
        "step": 10 * epoch + 9,
        "seconds": seconds,
        "val/nll": nll,
        "val/CIDEr": 100 / nll,
    }


def system(label, *histories):
    return System(label, tuple(run(seed, rows) for seed, rows in enumerate(histories, start=1)))


def drawn(page):
    """A page on which nothing is cut."""
    page.draw_without_rendering()
    used, (width, height) = page.get_tightbbox(), page.get_size_inches()
    assert min(used.x0, used.y0, width - used.x1, height - used.y1) > 0.01
    return page


def test_a_line_for_the_mean_and_a_band_for_the_deviation():
    first = [validation(0, 60.0, 2.0), validation(1, 120.0, 1.0)]
    second = [validation(0, 120.0, 4.0), validation(1, 240.0, 3.0), validation(2, 360.0, 0.5)]
    page = drawn(
        curves([system("three", first, second), system("one", [validation(0, 100.0, 2.5)])])
    )
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
    assert [text.get_text() for axes in page.axes for text in axes.texts] == [
        "not logged"
    ] * 2  # training loss
    hours = [validation(0, 7200.0, 2.0), validation(1, 14400.0, 1.0)]
    page = drawn(curves([system("long", hours)]))
    assert page.axes[5].get_xlabel() == "hours of training"
    assert list(page.axes[3].get_lines()[0].get_xdata()) == [2, 4]


def test_a_score_of_ones_own_has_a_curve_of_its_own():
    page = drawn(curves([system("one", [validation(0, 60.0, 2.0) | {"val/WordF1": 51.25}])]))
    *_, of_epochs, _ = page.axes
    assert len(page.axes) == 8
    assert of_epochs.get_ylabel() == "validation WordF1"
    assert list(of_epochs.get_lines()[0].get_ydata()) == [51.25]


def test_training_losses_of_different_objectives_are_apart():
    """That of self-critical training is of its own samples; the validation's is of references."""
    logged = [validation(0, 60.0, 2.0) | {"train/nll": 3.0}, validation(1, 120.0, 1.0)]
    page = drawn(
        curves([system("one", logged), System("other", (run(1, logged, "SelfCritical"),))])
    )
    shown = [[len(line.get_xdata()) > 0 for line in axes.get_lines()] for axes in page.axes[:6:2]]
    assert shown == [[True, False], [False, True], [True, True]]
    assert "SelfCritical" in page.axes[2].get_ylabel()


def test_no_two_systems_look_alike():
    long = (
        "Show, Attend and Tell, soft, behind self-attention (model.encoder.norm=pre, " + "x" * 120
    )
    labels = [f"{number} {long[: 20 + 60 * (number % 4)]}" for number in range(15)]
    logged = [validation(epoch, 60.0 * epoch, 3.0 - epoch) for epoch in range(2)]
    page = drawn(curves([system(label, logged) for label in labels]))
    (legend,) = page.legends
    shown = [text.get_text().replace("\n", "").replace(" ", "") for text in legend.get_texts()]
    assert shown == [label.replace(" ", "") for label in labels]
    below = legend.get_window_extent()
    assert all(not below.overlaps(axes.get_tightbbox()) for axes in page.axes)
    lines = page.axes[2].get_lines()
    assert len({(line.get_color(), line.get_marker()) for line in lines}) == 15


def test_training_loss_is_the_mean_up_to_a_validation_or_the_end_of_an_epoch():
    losses = {4: 4.0, 9: 3.0, 14: 2.0, 19: 1.0, 24: 1.0, 29: 0.5, 34: 0.1}  # by step
    rows = [{"epoch": s // 10, "step": s, "train/nll": nll} for s, nll in losses.items()]
    for place, epoch, step in ((4, 1, 19), (7, 2, 29)):
        rows.insert(place, {"epoch": epoch, "step": step, "seconds": 200.0 * epoch, "val/nll": 2.0})
    assert run(1, rows).training_loss("epoch") == ([0, 1, 2], [3.5, 1.5, 0.75])
    seconds, means = run(1, rows).training_loss("seconds")
    assert seconds == pytest.approx([200 * 9 / 19, 200, 400])  # steps of equal length
    assert means == [3.5, 1.5, 0.75]
    assert run(1, rows[:4]).training_loss("seconds") == ([], [])


NAMES = ("lucky", "good", "$long_$ " * 20, "low")
CIDERS = (60.0, 55.0, 50.0, 40.0)
SPANS = {(0, 1): (-1, 11), (0, 2): (7, 13), (0, 3): (18, 22)}
SPANS |= {(1, 2): (2, 9), (1, 3): (12, 18), (2, 3): (7, 13)}


@pytest.fixture
def systems():
    """Of two runs each, but for the first, the best, which may be so by luck."""
    return [system(name, *[[]] * (1 if name == "lucky" else 2)) for name in NAMES]


@pytest.fixture
def compared():
    """The last differs from all others after correction."""
    bleu = Difference(20.0, 21.0, -1.0, -3.0, 0.5, 0.5)
    found = {}
    for (one, other), span in SPANS.items():
        both = CIDERS[one], CIDERS[other], CIDERS[one] - CIDERS[other]
        adjusted = 0.06 if other < 3 else 0.04
        cider = Difference(*both, *span, 0.5, IMAGES_ONLY, adjusted=adjusted)
        found[one, other] = {"BLEU-4": bleu, "CIDEr": cider}
    return found


@pytest.fixture
def of_intervals(systems, compared):
    return drawn(intervals(systems, compared, ["BLEU-4", "CIDEr"]))


def test_each_differs_from_the_first_of_those_with_most_runs(of_intervals):
    """The best comes first in a column of names, and the main score in a row of panels."""
    cider, others = of_intervals.axes
    assert cider.get_xlabel() == "CIDEr (x 100):\n55.0 at 0"
    assert others.get_xlabel() == "BLEU-4:\n21.0 at 0"
    assert "difference from good" in of_intervals.get_suptitle()
    labels = [text.get_text() for text in cider.get_yticklabels()]
    assert labels[::2] == ["lucky", "low"]
    assert labels[1].split() == ["$long_$"] * 20
    assert cider.get_ylim()[0] > cider.get_ylim()[1]


def test_an_interval_that_holds_0_is_grey(of_intervals):
    """A pair that has the first system first is turned around: 2 to 9 above is -9 to -2."""
    _, *lines = of_intervals.axes[0].get_lines()
    spans, places = lines[::2], lines[1::2]
    assert [list(line.get_xdata()) for line in spans] == [[-1, 11], [-9, -2], [-18, -12]]
    assert [list(line.get_xdata()) for line in places] == [[5], [-5], [-15]]
    assert [line.get_color() for line in spans] == [ALIKE, APART, APART]


def test_cells_of_pairs_that_are_told_apart_are_coloured(systems, compared):
    (cells,) = drawn(matrix(systems, compared, "CIDEr")).axes
    numbers = {text.get_position()[::-1]: text.get_text() for text in cells.texts}
    assert (len(numbers), numbers[0, 3], numbers[3, 0]) == (12, "+20.0", "-20.0")
    coloured = {
        (bar.get_y() + 0.5, bar.get_x() + 0.5): to_hex(bar.get_facecolor()) for bar in cells.patches
    }
    expected = {(place, 3): ABOVE for place in range(3)}
    assert coloured == expected | {(3, place): BELOW for place in range(3)}
    assert cells.get_yticklabels()[3].get_text() == "4  low"
