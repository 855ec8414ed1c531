"""Colours over photographs, against matplotlib's own palette and places by hand."""

import matplotlib
import pytest
import torch

from captioning.report.overlay import LEAST, MOST, overlay, places, seen

DARK, MIDDLE, BRIGHT = (torch.tensor(matplotlib.colormaps["viridis"](at)[:3]).float() for at in (0.0, 0.5, 1.0))
LEFT_HALF, TALL = (0.0, 0.0, 0.5, 1.0), (-0.5, 0.0, 1.5, 1.0)
"""Of a photograph twice as wide as high, cropped at its left end; of one half as wide as high, padded."""


def lit(colours: torch.Tensor) -> torch.Tensor:
    """How bright `[3, H, W]` is for the eye (Rec. 709)."""
    return torch.einsum("c,chw->hw", torch.tensor([0.2126, 0.7152, 0.0722]), colours)


def test_from_the_darkest_colour_at_zero_to_the_brightest_at_the_peak() -> None:
    photograph = torch.full((3, 60, 90), 0.4)
    maps = torch.zeros(2, 6, 9)
    maps[0, 0, 0] = 0.01  # on a scale of its own
    drawn = overlay(photograph, maps)
    assert drawn.shape == (2, 3, 60, 90)
    torch.testing.assert_close(drawn[0, :, 0, 0], MOST * BRIGHT + (1 - MOST) * 0.4, atol=0.01, rtol=0)
    torch.testing.assert_close(drawn[0, :, -1, -1], LEAST * DARK + (1 - LEAST) * 0.4, atol=0.01, rtol=0)
    assert torch.equal(drawn[1], drawn[1, :, :1, :1].expand(3, 60, 90))  # of zeros, without a NaN
    wild = overlay(torch.rand(3, 6, 9), torch.rand(5, 2, 3))
    assert 0 <= wild.min() <= wild.max() <= 1


@pytest.mark.parametrize("colour", [(0.0, 0.0, 0.0), (1.0, 1.0, 1.0), (0.9, 0.8, 0.1), (0.1, 0.3, 0.8)])
def test_an_even_map_differs_visibly_from_the_photograph(colour: tuple[float, float, float]) -> None:
    photograph = torch.tensor(colour)[:, None, None].expand(3, 8, 8)
    (drawn,) = overlay(photograph, torch.full((1, 4, 4), 1 / 16))
    torch.testing.assert_close(drawn, drawn[:, :1, :1].expand(3, 8, 8))
    assert (drawn - photograph).abs().amax(dim=0).min() > 0.12


def test_what_is_in_the_photograph_stays_visible_below_zero_and_peak() -> None:
    photograph = torch.full((3, 8, 8), 0.2)
    photograph[:, :, 4:] = 0.8
    for maps in (torch.zeros(1, 2, 2), torch.ones(1, 2, 2)):
        bright = lit(overlay(photograph, maps)[0])
        assert bright[:, 4:].min() > bright[:, :4].max() + 0.15


def test_brighter_is_more_and_it_fades_alike_in_all_directions() -> None:
    """As a Gaussian of 0.6 cells: no squares of the grid, no dark ring about a peak."""
    maps = torch.zeros(1, 7, 7)
    maps[0, 3, 3] = 0.2
    drawn = lit(overlay(torch.full((3, 70, 70), 0.5), maps)[0])
    side = (torch.arange(70) + 0.5) / 10 - 3.5
    distance = (side[:, None] ** 2 + side**2).flatten()
    order = distance.argsort(stable=True)
    assert (drawn.flatten()[order].diff() < 0.02).all()
    half = drawn[35, 35 + round(10 * 0.6 * (2 * torch.tensor(2.0).log()).sqrt().item())]  # where the Gaussian is 1/2
    share = (LEAST + MOST) / 2
    expected = lit((share * MIDDLE + (1 - share) * 0.5)[:, None, None])
    assert half.item() == pytest.approx(expected.item(), abs=0.02)


def test_a_map_lies_where_the_network_looked() -> None:
    photograph = torch.full((3, 40, 80), 0.5)
    maps = torch.zeros(1, 4, 4)
    maps[0, 1, 2] = 1.0  # its centre at 3/8 of the height and 5/8 of the width of what is seen
    for frame, column in (((0.0, 0.0, 1.0, 1.0), 50), (LEFT_HALF, 25), ((0.25, 0.0, 0.75, 1.0), 45)):
        colours = overlay(photograph, maps, frame)[0]
        row, found = divmod(int((colours[0] - colours[2]).argmax()), 80)  # yellow is without blue
        assert (row, found) == (pytest.approx(15, abs=2), pytest.approx(column, abs=3))


def test_what_the_network_has_not_seen_is_pale_and_grey() -> None:
    photograph = torch.zeros(3, 40, 80)
    photograph[0] = 1.0
    for drawn in (overlay(photograph, torch.rand(1, 4, 4), LEFT_HALF)[0], seen(photograph, LEFT_HALF)):
        assert torch.equal(drawn[0, :, 40:], drawn[1, :, 40:])
        assert drawn[:, :, 40:].min() > 0.75
        assert (drawn[0, :, :40] != drawn[2, :, :40]).all()
    assert torch.equal(seen(photograph, LEFT_HALF)[:, :, :40], photograph[:, :, :40])


def test_an_even_map_over_a_padded_photograph_is_even() -> None:
    """Cells beside the photograph have no value; an edge of it cuts through cells."""
    frame = (-0.37, 0.0, 1.37, 1.0)
    maps = torch.zeros(1, 8, 8)
    maps[0, :, 2:6] = 1 / 32  # centres at -0.26, -0.04, 0.17, ... of the photograph's width, but for the edges
    drawn = overlay(torch.full((3, 40, 23), 0.5), maps, frame)
    torch.testing.assert_close(drawn, drawn[:, :, :1, :1].expand_as(drawn))


def test_a_map_that_is_nearly_even_is_drawn_as_even() -> None:
    """Of 16 places one with a tenth more than the others: 99.98 % of the even map's entropy. With ten times: 79 %."""
    nearly, peaked = torch.ones(2, 1, 4, 4)
    nearly[0, 1, 2] = 1.1
    peaked[0, 1, 2] = 10.0
    photograph = torch.full((3, 24, 24), 0.5)
    even = overlay(photograph, torch.ones(1, 4, 4) / 16)
    assert torch.equal(overlay(photograph, nearly / nearly.sum()), even)
    assert (overlay(photograph, peaked / peaked.sum()) - even).abs().max() > 0.1


def test_no_words_have_no_pictures() -> None:
    assert overlay(torch.zeros(3, 8, 6), torch.zeros(0, 4, 4)).shape == (0, 3, 8, 6)


def test_places_on_the_photograph() -> None:
    assert places((14, 14), (0.0, 0.0, 1.0, 1.0)) == places((14, 14), LEFT_HALF) == 196
    assert places((8, 8), TALL) == 8 * 4
    assert places((7, 3), (-20.0, 0.0, 21.0, 1.0)) == 7  # so narrow that it meets one cell's centre
    assert places((7, 4), (-20.0, 0.0, 21.0, 1.0)) == 7  # none: those in the middle count
