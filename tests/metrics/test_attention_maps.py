"""Statistics of attention by hand, on L = 5 locations."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from captioning.metrics.attention import STATISTICS, AttentionStatistics

L = 5
EVEN = torch.full((3, L), 1 / L)


def looking_at(*locations: int) -> Tensor:
    """`[T, L]`, one location at each step."""
    return one_hot(torch.tensor(locations), L).float()


def statistics(*batches: list[Tensor]) -> dict[str, float]:
    metric = AttentionStatistics()
    for maps in batches:
        metric.update(maps)
    return {name.removeprefix("attention "): value.item() for name, value in metric.compute().items()}


def values(entropy: float, variance: float, movement: float, coverage: float) -> dict[str, float]:
    found = {"entropy": entropy, "entropy variance": variance, "movement": movement, "coverage": coverage}
    return pytest.approx(found, rel=1e-6, abs=1e-6, nan_ok=True)


def test_even_map() -> None:
    assert statistics([EVEN]) == values(math.log(5), 0, 0, 100)


def test_one_location_for_the_whole_caption() -> None:
    assert statistics([looking_at(2, 2, 2)]) == values(0, 0, 0, 20)


def test_one_location_that_moves() -> None:
    assert statistics([looking_at(0, 3, 4)]) == values(0, 0, 1, 60)
    assert statistics([looking_at(0, 0, 4)]) == values(0, 0, 1 / 2, 40)
    assert statistics([looking_at(0, 4, 0, 4)]) == values(0, 0, 1, 40)


def test_maps_that_overlap() -> None:
    """A quarter moves from one location to another; log 2 and the entropy of (3/4, 1/4) alternate."""
    maps = torch.tensor([[0.5, 0.5, 0, 0, 0], [0.75, 0.25, 0, 0, 0], [0.5, 0.5, 0, 0, 0], [0.75, 0.25, 0, 0, 0]])
    high, low = math.log(2), -0.75 * math.log(0.75) - 0.25 * math.log(0.25)
    assert statistics([maps]) == values((high + low) / 2, ((high - low) / 2) ** 2, 1 / 4, 40)


def test_location_counts_as_attended_from_its_even_share_on() -> None:
    above, below = 0.21, 0.19
    assert statistics([torch.tensor([[above, below, 0.6, 0, 0]])])["coverage"] == pytest.approx(40)
    steps = torch.tensor([[above, below, 0.6, 0, 0], [below, below, 0.02, 0.6, 0]])  # not the sum over the steps
    assert statistics([steps])["coverage"] == pytest.approx(60)


@pytest.mark.parametrize("size", [7, 49, 196])
def test_rounding_does_not_decide_about_even_maps(size: int) -> None:
    even = torch.full((2, size), 0.1).log_softmax(dim=-1).exp()
    assert statistics([even])["coverage"] == 100
    assert statistics([even * (1 - 1e-6)])["coverage"] == 100


def test_captions_of_one_step_have_no_movement() -> None:
    assert statistics([looking_at(1)]) == values(0, 0, math.nan, 20)
    assert statistics([looking_at(1), looking_at(0, 3)]) == values(0, 0, 1, 30)


def test_every_caption_has_the_same_weight_whatever_its_length() -> None:
    long, short = looking_at(0, 0, 0, 0, 0, 0, 0, 0), torch.full((1, L), 1 / L)
    assert statistics([long, short]) == values(math.log(5) / 2, 0, 0, 60)


def test_order_and_batching_do_not_matter() -> None:
    generator = torch.Generator().manual_seed(0)
    maps = [(3 * torch.randn(steps, L, generator=generator)).softmax(dim=-1) for steps in (4, 1, 7, 2, 3)]
    together = statistics(maps)
    assert statistics(maps[::-1]) == pytest.approx(together, rel=1e-12)
    assert statistics(maps[:1], [], maps[1:4], maps[4:]) == pytest.approx(together, rel=1e-12)
    assert statistics(iter(maps)) == together
    alone = [statistics([m]) for m in maps]
    assert together["entropy"] == pytest.approx(sum(found["entropy"] for found in alone) / 5, rel=1e-12)
    moving = [found["movement"] for found in alone if not math.isnan(found["movement"])]
    assert together["movement"] == pytest.approx(sum(moving) / 4, rel=1e-12)


def test_nothing_is_not_a_number() -> None:
    assert statistics([], []) == values(math.nan, math.nan, math.nan, math.nan)


def test_reset_forgets() -> None:
    metric = AttentionStatistics()
    metric.update([EVEN])
    metric.reset()
    metric.update([looking_at(2, 2)])
    assert metric.compute()["attention entropy"].item() == 0


def test_states_are_summed_over_processes() -> None:
    # torchmetrics reduces each state by the function kept here
    gathered = torch.tensor([[1.0, 2.0, 3.0, 4.0], [1.0, 1.0, 0.0, 1.0]])
    reductions = AttentionStatistics()._reductions
    found = {name: reduce(gathered).tolist() for name, reduce in reductions.items()}
    assert found == {"sums": [2, 3, 3, 5], "counts": [2, 3, 3, 5]}
    assert len(STATISTICS) == 4
