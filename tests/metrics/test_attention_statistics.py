"""Scores of attention by hand: statistics on L = 5 locations, pointing on a grid of 2 x 3.

The grid's cells have their centres at x = 1/6, 1/2, 5/6, y = 1/4, 3/4.
"""

import math

import pytest
import torch
from torch.nn.functional import one_hot

from captioning.metrics.attention import AttentionStatistics, PointingScore, pointing_hits

L = 5
EVEN = torch.full((3, L), 1 / L)
HIGH, LOW = math.log(2), -0.75 * math.log(0.75) - 0.25 * math.log(0.25)
ALTERNATING = (HIGH + LOW) / 2, ((HIGH - LOW) / 2) ** 2


def looking_at(*locations):
    """`[T, L]`, one location at each step."""
    return one_hot(torch.tensor(locations), L).float()


def statistics(*batches):
    metric = AttentionStatistics()
    for maps in batches:
        metric.update(maps)
    return {
        name.removeprefix("attention "): value.item() for name, value in metric.compute().items()
    }


@pytest.mark.parametrize(
    "maps, expected",
    [
        ([EVEN], (math.log(5), 0, 0, 100)),
        ([looking_at(2, 2, 2)], (0, 0, 0, 20)),
        ([looking_at(0, 3, 4)], (0, 0, 1, 60)),
        ([looking_at(0, 0, 4)], (0, 0, 1 / 2, 40)),
        ([looking_at(1)], (0, 0, math.nan, 20)),  # of one step, without movement
        ([looking_at(1), looking_at(0, 3)], (0, 0, 1, 30)),
        (
            [looking_at(*[0] * 8), EVEN[:1]],
            (math.log(5) / 2, 0, 0, 60),
        ),  # every caption has the same weight
        ([], (math.nan, math.nan, math.nan, math.nan)),
        # a quarter moves from one location to another: log 2 and the entropy of (3/4, 1/4)
        # alternate
        (
            [torch.tensor([[*pair, 0, 0, 0] for pair in [(0.5, 0.5), (0.75, 0.25)] * 2])],
            (*ALTERNATING, 1 / 4, 40),
        ),
    ],
)
def test_by_hand(maps, expected):
    found = [*statistics(maps).values()]
    assert found == pytest.approx([*expected], rel=1e-6, abs=1e-6, nan_ok=True)


def test_a_location_is_attended_from_its_even_share_on_at_one_step():
    steps = torch.tensor([[0.21, 0.19, 0.6, 0, 0], [0.19, 0.19, 0.02, 0.6, 0]])
    assert statistics([steps])["coverage"] == pytest.approx(60)


@pytest.mark.parametrize("size", [7, 49, 196])
def test_rounding_does_not_decide_about_even_maps(size):
    even = torch.full((2, size), 0.1).log_softmax(dim=-1).exp()
    assert statistics([even])["coverage"] == 100
    assert statistics([even * (1 - 1e-6)])["coverage"] == 100


def test_order_and_batching_do_not_matter():
    generator = torch.Generator().manual_seed(0)
    maps = [
        (3 * torch.randn(steps, L, generator=generator)).softmax(dim=-1)
        for steps in (4, 1, 7, 2, 3)
    ]
    together = statistics(maps)
    assert statistics(maps[::-1]) == pytest.approx(together, rel=1e-12)
    assert statistics(maps[:1], [], maps[1:4], maps[4:]) == pytest.approx(together, rel=1e-12)
    alone = [statistics([m])["entropy"] for m in maps]
    assert together["entropy"] == pytest.approx(sum(alone) / 5, rel=1e-12)


GRID = (2, 3)
TOP_LEFT = (0.0, 0.0, 0.33, 0.5)
BOTTOM_RIGHT = (0.7, 0.6, 1.0, 1.0)
BOTTOM_MIDDLE = (0.4, 0.6, 0.6, 0.9)


def attention_with_peaks(shape, peaks):
    attention = torch.full((*shape, 6), 0.1)
    for place, cell in peaks.items():
        attention[place][cell] = 0.5
    return attention


def test_each_noun_is_judged_at_its_own_step_caption_and_image():
    attention = attention_with_peaks(
        (2, 2, 5), {(0, 0, 2): 0, (0, 0, 4): 5, (0, 1, 1): 4, (1, 1, 3): 2}
    )
    nouns = [
        [[(2, TOP_LEFT), (4, TOP_LEFT)], [(1, BOTTOM_MIDDLE)]],
        [[], [(3, (0.8, 0.2, 0.9, 0.3)), (3, BOTTOM_RIGHT)]],
    ]
    assert pointing_hits(attention, nouns, GRID).tolist() == [True, False, True, True, False]


@pytest.mark.parametrize(
    "box, grid, hit",
    [
        ((0.1, 0.7, 0.2, 0.8), (2, 3), True),  # second row, first column
        ((0.7, 0.45, 0.8, 0.55), (3, 2), True),  # the same cell is second row, second column
        ((0.1, 0.7, 0.2, 0.8), (3, 2), False),
        ((0.2, 0.5, 0.33, 1.0), (2, 3), False),  # which only touches the cell
    ],
)
def test_rows_come_before_columns_on_a_grid_that_is_not_square(box, grid, hit):
    attention = attention_with_peaks((1, 1, 1), {(0, 0, 0): 3})
    assert pointing_hits(attention, [[[(0, box)]]], grid).tolist() == [hit]


@pytest.mark.parametrize("edge", range(4), ids=["left", "top", "right", "bottom"])
def test_the_edges_of_a_box_belong_to_it(edge):
    """Each in turn goes through the centre of the cell in the second row and column."""
    box = [0.25, 0.5, 0.625, 0.875]
    box[edge] = (0.5, 0.75)[edge % 2]
    attention = attention_with_peaks((1, 1, 1), {(0, 0, 0): 4})
    assert pointing_hits(attention, [[[(0, tuple(box))]]], GRID).tolist() == [True]


def test_the_score_is_a_percentage_over_all_batches():
    score = PointingScore()
    attention = attention_with_peaks((1, 1, 2), {(0, 0, 0): 0, (0, 0, 1): 5})
    score.update(attention, [[[(0, TOP_LEFT), (1, BOTTOM_RIGHT), (1, TOP_LEFT)]]], GRID)
    score.update(attention, [[[(0, BOTTOM_RIGHT)]]], GRID)
    score.update(attention, [[]], GRID)
    assert score.compute().item() == pytest.approx(50.0)  # 2 of 4, not the mean of 66.7 and 0
    assert (score.mean_value.item(), score.weight.item()) == (200, 4)
