"""The pointing score by hand, on 2 rows and 3 columns: cells have their centres at x = 1/6, 1/2, 5/6, y = 1/4, 3/4."""

import pytest
import torch

from captioning.metrics.pointing import PointingScore, pointing_hits

GRID = (2, 3)
TOP_LEFT = (0.0, 0.0, 0.33, 0.5)
BOTTOM_RIGHT = (0.7, 0.6, 1.0, 1.0)
BOTTOM_MIDDLE = (0.4, 0.6, 0.6, 0.9)


def attention_with_peaks(shape: tuple[int, int, int], peaks: dict[tuple[int, int, int], int]) -> torch.Tensor:
    attention = torch.full((*shape, 6), 0.1)
    for place, cell in peaks.items():
        attention[place][cell] = 0.5
    return attention


def test_each_noun_is_judged_at_its_own_step_caption_and_image():
    attention = attention_with_peaks((2, 2, 5), {(0, 0, 2): 0, (0, 0, 4): 5, (0, 1, 1): 4, (1, 1, 3): 2})
    nouns = [
        [[(2, TOP_LEFT), (4, TOP_LEFT)], [(1, BOTTOM_MIDDLE)]],
        [[], [(3, (0.8, 0.2, 0.9, 0.3)), (3, BOTTOM_RIGHT)]],
    ]
    assert pointing_hits(attention, nouns, GRID).tolist() == [True, False, True, True, False]


def test_rows_come_before_columns_on_a_grid_that_is_not_square():
    attention = attention_with_peaks((1, 1, 1), {(0, 0, 0): 3})  # second row, first column
    assert pointing_hits(attention, [[[(0, (0.1, 0.7, 0.2, 0.8))]]], (2, 3)).tolist() == [True]
    # The same cell in 3 rows and 2 columns is second row, second column.
    assert pointing_hits(attention, [[[(0, (0.7, 0.45, 0.8, 0.55))]]], (3, 2)).tolist() == [True]
    assert pointing_hits(attention, [[[(0, (0.1, 0.7, 0.2, 0.8))]]], (3, 2)).tolist() == [False]


def test_a_box_that_only_touches_the_cell_is_missed():
    attention = attention_with_peaks((1, 1, 1), {(0, 0, 0): 0})
    assert pointing_hits(attention, [[[(0, (0.2, 0.0, 0.33, 0.5))]]], GRID).tolist() == [False]


def test_the_score_is_a_percentage_over_all_batches():
    score = PointingScore()
    attention = attention_with_peaks((1, 1, 2), {(0, 0, 0): 0, (0, 0, 1): 5})
    score.update(attention, [[[(0, TOP_LEFT), (1, BOTTOM_RIGHT), (1, TOP_LEFT)]]], GRID)
    score.update(attention, [[[(0, BOTTOM_RIGHT)]]], GRID)
    score.update(attention, [[]], GRID)
    assert score.compute().item() == pytest.approx(50.0)  # 2 of 4, not the mean of 66.7 and 0
    assert (score.hits.item(), score.count.item()) == (2, 4)


def test_states_are_summed_over_processes():
    # torchmetrics reduces each state by the function kept here.
    reductions = PointingScore()._reductions
    gathered = torch.tensor([3, 4])
    assert {name: reduce(gathered).item() for name, reduce in reductions.items()} == {"hits": 7, "count": 7}


def test_no_noun_at_all_scores_zero():
    score = PointingScore()
    score.update(torch.rand(2, 1, 3, 6), [[[]], []], GRID)
    assert score.compute().item() == 0


def test_misfits_are_refused():
    attention = torch.rand(1, 1, 3, 6)
    with pytest.raises(ValueError, match="grid of 2 x 2"):
        pointing_hits(attention, [[[]]], (2, 2))
    with pytest.raises(ValueError, match="2 images"):
        pointing_hits(attention, [[[]], [[]]], GRID)
    for nouns in ([[[(3, TOP_LEFT)]]], [[[(-1, TOP_LEFT)]]], [[[], [(0, TOP_LEFT)]]]):
        with pytest.raises(ValueError, match="1 captions of 3 steps"):
            pointing_hits(attention, nouns, GRID)
