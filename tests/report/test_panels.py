"""Panels of attention, judged from the pixels of the file; colours over photographs, from places by
hand.
"""

import itertools
import math

import numpy as np
import pytest
import torch
from matplotlib.text import Text
from PIL import Image
from torch.testing import assert_close

from captioning.report.figures import DPI
from captioning.report.maps import count_locations
from captioning.report.panels import CELL, overlay, save_panel, seen

FULL_IMAGE, LEFT_HALF, TALL = (0.0, 0.0, 1.0, 1.0), (0.0, 0.0, 0.5, 1.0), (-0.5, 0.0, 1.5, 1.0)


@pytest.fixture
def panel(tmp_path):
    return tmp_path / "panel.png"


def grey(high, wide, light=0.5):
    return torch.full((3, high, wide), light)


def lit_at(*spots, side=4, value=1.0):
    """A map for each spot, zero elsewhere, each on a scale of its own."""
    maps = torch.zeros(len(spots), side, side)
    for number, (row, column) in enumerate(spots):
        maps[number, row, column] = value * (number + 1)
    return maps


def rendered(path):
    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB")).astype(int)


def cells(page):
    """Rows and columns of the pictures in the file, in reading order; the key comes last."""
    boxes = [axes.get_window_extent() for axes in page.axes]
    down = int(page.bbox.height)
    return [
        (slice(down - int(b.y1), down - int(b.y0)), slice(int(b.x0), int(b.x1)))
        for b in boxes
        if b.height > 60
    ]


def brightest(picture):
    """The cell of a grid of 4 x 4 where a picture is brightest."""
    brightness = picture.mean(axis=2)
    high, wide = (length // 4 for length in brightness.shape)
    parts = brightness[: 4 * high, : 4 * wide].reshape(4, high, 4, wide).mean(axis=(1, 3))
    assert parts.max() > 1.4 * np.median(parts) > 0
    row, column = np.unravel_index(parts.argmax(), parts.shape)
    return int(row), int(column)


@pytest.mark.parametrize("many", [False, True])
def test_a_cell_for_the_photograph_and_one_per_word_lit_where_the_map_peaks(panel, many):
    """Of several maps each has a line, with its name and the photograph."""
    spots = [(0, 0), (0, 3), (3, 0), (3, 3), (0, 0), (0, 3), (3, 0)]
    maps = {"inter 1": lit_at(*spots, value=0.01), "inter 2": lit_at(*spots[::-1])}
    found = cells(
        save_panel(panel, grey(56, 56), list("abcdefg"), maps if many else maps["inter 1"])
    )
    picture = rendered(panel)
    assert len(found) == (16 if many else 8)
    for line, expected in enumerate([spots, spots[::-1]] if many else [spots]):
        photograph, *words = found[8 * line : 8 * line + 8]
        assert picture[photograph][4:-4, 4:-4].mean() == pytest.approx(0.5 * 255, abs=3)
        assert np.ptp(picture[photograph][4:-4, 4:-4]) <= 2
        label = picture[photograph[0].start - 36 : photograph[0].start - 4, photograph[1]]
        assert (label < 200).any() == many
        assert [brightest(picture[cell]) for cell in words] == expected


def test_words_leave_gaps_and_nothing_is_clipped(panel):
    words = ["counterrevolutionaries-and-others", "skateboarding", "trampolines", "$5^", "<unk>"]
    title = "a title that is longer than one line of the panel and has to go on below " * 2
    found = cells(save_panel(panel, grey(32, 32), words, torch.ones(5, 2, 2), title))
    picture = rendered(panel)
    for edge in (picture[:2], picture[-2:], picture[:, :2], picture[:, -2:]):
        assert (edge == 255).all()
    for (rows, left), (_, right) in itertools.pairwise(found[1:]):
        gap = picture[rows.start - 48 : rows.start - 2, left.stop + 2 : right.start - 2]
        assert (gap == 255).all()
    assert (picture[:48] < 200).any()
    alone = save_panel(panel, grey(32, 32), [], torch.zeros(0, 7, 7), title="dog")
    assert len(alone.axes) == 1


@pytest.mark.parametrize(
    "size, shown",
    [((200, 400), (0.5, 1)), ((400, 300), (1, 0.75)), ((1, 2000), (0.2, 1)), ((1, 1), (1, 1))],
)
def test_proportions_are_kept_and_a_strip_can_still_be_seen(panel, size, shown):
    page = save_panel(panel, torch.rand(3, *size), ["dog"], torch.ones(1, 2, 4) / 8)
    for extent in (axes.get_window_extent() for axes in page.axes[:2]):
        assert (extent.height, extent.width) == pytest.approx([DPI * CELL * s for s in shown])


def test_references_peaks_and_entropies_stand_on_the_page(panel):
    maps = torch.zeros(2, 14, 14)
    maps[0, 2, 3] = 1.0
    maps[1] = 1 / 196
    references = ["a dog runs", "a brown dog that runs over a lawn with a ball " * 5]
    page = save_panel(panel, torch.rand(3, 30, 20), ["a", "dog"], maps, "a dog", references)
    page.draw_without_rendering()
    texts = {t.get_text(): t for t in page.findobj(Text) if t.get_text()}
    found = {text: drawn.get_window_extent().extents for text, drawn in texts.items()}
    assert {"a", "dog", "a dog", "0", "peak"} <= set(found)
    assert {"peak 100.0 %, 0.00 nats", "peak 0.5 %, 5.28 nats, even"} <= set(found)  # ln 196
    (below,) = [text for text in found if text.startswith("reference: a dog runs\n")]
    assert " ".join(below.split()).count("a brown dog that runs") == 5
    assert "even map of 196 places: 0.5 %, 5.28 nats" in " ".join(below.split())
    right, top = page.bbox.size
    for text, box in found.items():
        assert min(box[0], box[1], right - box[2], top - box[3]) >= 2, text
    below_cell = page.axes[0].get_window_extent().y0
    assert found[below][3] < found["peak 100.0 %, 0.00 nats"][1] < below_cell
    padded = save_panel(panel, torch.rand(3, 40, 20), ["dog"], torch.ones(1, 8, 8) / 32, frame=TALL)
    whole = " ".join(word for text in padded.texts for word in text.get_text().split())
    assert "even map of 32 places: 3.1 %, 3.47 nats" in whole


def luminance(colours):
    """How bright `[3, H, W]` is for the eye (Rec. 709)."""
    return torch.einsum("c,chw->hw", torch.tensor([0.2126, 0.7152, 0.0722]), colours)


def test_from_a_dark_photograph_at_zero_to_a_bright_one_at_the_peak():
    maps = torch.zeros(2, 6, 9)
    maps[0, 0, 0] = 0.01  # on a scale of its own
    drawn = overlay(grey(60, 90, 0.4), maps)
    assert drawn.shape == (2, 3, 60, 90)
    assert drawn[0, :, 0, 0].tolist() == pytest.approx([0.6 * 0.4 + 0.4] * 3, abs=0.01)
    assert drawn[0, :, -1, -1].tolist() == pytest.approx([0.3 * 0.4] * 3, abs=0.01)
    assert torch.equal(drawn[1], drawn[1, :, :1, :1].expand(3, 60, 90))  # of zeros, without a NaN
    wild = overlay(torch.rand(3, 6, 9), torch.rand(5, 2, 3))
    assert 0 <= wild.min() <= wild.max() <= 1
    assert overlay(torch.zeros(3, 8, 6), torch.zeros(0, 4, 4)).shape == (0, 3, 8, 6)  # of no words


def test_brighter_is_more_and_it_fades_alike_in_all_directions():
    """As a Gaussian of 0.6 cells: no squares of the grid, no dark ring about a peak."""
    drawn = luminance(overlay(grey(70, 70), lit_at((3, 3), side=7, value=0.2))[0])
    side = (torch.arange(70) + 0.5) / 10 - 3.5
    order = (side[:, None] ** 2 + side**2).flatten().argsort(stable=True)
    assert (drawn.flatten()[order].diff() < 0.02).all()
    half = 35 + round(10 * 0.6 * (2 * math.log(2)) ** 0.5)  # where the Gaussian is 1/2
    between = (0.6 * 0.5 + 0.4 + 0.3 * 0.5) / 2  # the peak's and zero's
    assert drawn[35, half].item() == pytest.approx(between, abs=0.03)


def test_a_map_lies_where_the_network_looked_and_the_rest_is_nearly_black():
    """The centre of its peak at 3/8 of the height and 5/8 of the width of what is seen."""
    for frame, column in ((FULL_IMAGE, 50), (LEFT_HALF, 25), ((0.25, 0.0, 0.75, 1.0), 45)):
        colours = overlay(grey(40, 80), lit_at((1, 2)), frame)[0]
        row, found = divmod(int(luminance(colours).argmax()), 80)
        assert (row, found) == (pytest.approx(15, abs=2), pytest.approx(column, abs=3))
    photograph = grey(40, 80)
    lit = overlay(photograph, torch.rand(1, 4, 4), LEFT_HALF)[0]
    for drawn in (lit, seen(photograph, LEFT_HALF)):
        assert_close(drawn[:, :, 40:], 0.1 * photograph[:, :, 40:])
    assert torch.equal(seen(photograph, LEFT_HALF)[:, :, :40], photograph[:, :, :40])


def test_even_and_nearly_even_maps_are_drawn_as_even():
    """Of 16 places one with a tenth more has 99.98 % of the even map's entropy, with ten times 79
    %; of a padded photograph cells beside it have no value, and an edge of it cuts through cells.
    """
    nearly, peaked, even = torch.ones(3, 1, 4, 4)
    nearly[0, 1, 2], peaked[0, 1, 2] = 1.1, 10.0
    drawn, other, expected = (
        overlay(grey(24, 24), maps / maps.sum()) for maps in (nearly, peaked, even)
    )
    assert torch.equal(drawn, expected)
    assert (other - expected).abs().max() > 0.1
    maps = torch.zeros(1, 8, 8)
    # centres at -0.26, -0.04, 0.17, ... of the photograph's width, but for the edges
    maps[0, :, 2:6] = 1 / 32
    drawn = overlay(grey(40, 23), maps, (-0.37, 0.0, 1.37, 1.0))
    assert_close(drawn, drawn[:, :, :1, :1].expand_as(drawn))
    assert count_locations((14, 14), LEFT_HALF) == 196
    assert count_locations((8, 8), TALL) == 8 * 4
    assert (
        count_locations((7, 3), (-20.0, 0.0, 21.0, 1.0)) == 7
    )  # so narrow that it meets one cell's centre
    assert count_locations((7, 4), (-20.0, 0.0, 21.0, 1.0)) == 7  # none: those in the middle count
