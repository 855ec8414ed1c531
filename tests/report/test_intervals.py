"""The picture of differences, asked of the figure that is saved, from comparisons written by hand."""

from pathlib import Path

import pytest

from captioning.metrics.bootstrap import Difference
from captioning.report.differences import Compared
from captioning.report.intervals import ALIKE, APART, _drawn, save_intervals
from captioning.report.reading import Provenance
from captioning.report.systems import System
from captioning.report.tested_runs import Run


def system(label: str, runs: int) -> System:
    each = (Run(Path(), "m", "d", "n", None, seed, {}, {}, "digest", Provenance(), []) for seed in range(runs))
    return System(label, tuple(each))


SYSTEMS = [system("low", 2), system("lucky", 1), system("good", 2), system("$long_$ " * 20, 2)]
CIDER = {0: 40.0, 1: 60.0, 2: 55.0, 3: 50.0}


def pair(one: int, other: int, low: float, high: float) -> tuple[int, int, dict[str, Difference]]:
    cider = Difference(CIDER[one], CIDER[other], CIDER[one] - CIDER[other], low, high, 0.5)
    bleu = Difference(20.0, 21.0, -1.0, -3.0, 0.5, 0.5)
    return one, other, {"BLEU-1": bleu, "BLEU-4": bleu, "CIDEr": cider}


COMPARED: Compared = [
    pair(0, 1, -22, -18),
    pair(0, 2, -18, -12),
    pair(0, 3, -13, -7),
    pair(1, 2, -1, 11),
    pair(1, 3, 7, 13),
    pair(2, 3, 2, 9),
]


def test_each_differs_from_the_best_of_those_with_most_runs() -> None:
    """A pair that has it first is turned around: 2 to 9 above is -9 to -2."""
    page = _drawn(SYSTEMS, COMPARED)
    assert page is not None
    cider, bleu = page.axes
    assert (cider.get_xlabel(), bleu.get_xlabel()) == ("CIDEr (x 100): 55.0 at 0", "BLEU-4: 21.0 at 0")
    assert "difference from good with" in page.get_suptitle()
    zero, *lines = cider.get_lines()
    assert list(zero.get_xdata()) == [0, 0]
    intervals, points = lines[::2], lines[1::2]
    assert [list(line.get_xdata()) for line in intervals] == [[-1, 11], [-9, -2], [-18, -12]]
    assert [list(line.get_xdata()) for line in points] == [[5], [-5], [-15]]
    assert [line.get_color() for line in intervals] == [ALIKE, APART, APART]
    labels = [text.get_text() for text in cider.get_yticklabels()]
    assert labels[::2] == ["lucky", "low"]
    assert labels[1].split() == ["$long_$"] * 20
    assert cider.get_ylim()[0] > cider.get_ylim()[1]  # the best on top
    assert [list(line.get_xdata()) for line in bleu.get_lines()[1::2]] == [[-3, 0.5], [-0.5, 3], [-3, 0.5]]


def test_nothing_is_cut() -> None:
    page = _drawn(SYSTEMS, COMPARED)
    assert page is not None
    page.draw_without_rendering()
    drawn_on, (width, height) = page.get_tightbbox(), page.get_size_inches()
    assert min(drawn_on.x0, drawn_on.y0, width - drawn_on.x1, height - drawn_on.y1) > 0.01


@pytest.mark.parametrize("compared", [[], [(0, 1, {"BLEU-1": Difference(1, 1, 0, 0, 0, 1)})]])
def test_nothing_is_drawn_of_nothing(compared: Compared, tmp_path: Path) -> None:
    assert save_intervals(tmp_path / "intervals", SYSTEMS, compared) == []


def test_files_beside_each_other(tmp_path: Path) -> None:
    paths = [tmp_path / "intervals.png", tmp_path / "intervals.pdf"]
    assert save_intervals(tmp_path / "intervals", SYSTEMS, COMPARED) == paths
    assert all(path.stat().st_size > 1000 for path in paths)
