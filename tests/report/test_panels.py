"""Panels of attention, judged from the pixels of the file; colours over photographs, from places by hand."""

import itertools

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image

from captioning.report.figures import DPI
from captioning.report.maps import places
from captioning.report.panels import CELL, LEAST, MOST, overlay, save_panel, seen


def rendered(path) -> np.ndarray:
    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB")).astype(int)


def cells(picture: np.ndarray) -> list[tuple[slice, slice]]:
    """The pictures of a panel in reading order: runs of rows, then of columns, wide enough to be no text."""

    def runs(used: np.ndarray) -> list[slice]:
        edges = np.flatnonzero(np.diff(np.concatenate(([0], used.astype(int), [0]))))
        return [slice(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True)]

    painted = (picture < 250).any(axis=2)
    found = []
    for rows in runs(painted.any(axis=1)):
        if rows.stop - rows.start > 60:
            found += [(rows, columns) for columns in runs(painted[rows].any(axis=0))]
    return found


def test_one_cell_for_the_photograph_and_one_per_word_lit_where_the_map_peaks(tmp_path):
    photograph = torch.full((3, 56, 56), 0.5)
    maps = torch.zeros(7, 4, 4)
    corners = [(0, 0), (0, 3), (3, 0), (3, 3), (0, 0), (0, 3), (3, 0)]
    for number, (row, column) in enumerate(corners):
        maps[number, row, column] = 0.01 * (number + 1)  # each on a scale of its own
    save_panel(tmp_path / "panel.png", photograph, list("abcdefg"), maps)
    picture = rendered(tmp_path / "panel.png")
    found = cells(picture)
    assert len(found) == 8
    assert picture[found[0]][4:-4, 4:-4].mean() == pytest.approx(0.5 * 255, abs=3)
    assert np.ptp(picture[found[0]][4:-4, 4:-4]) <= 2
    for (row, column), cell in zip(corners, found[1:], strict=True):
        brightness = picture[cell][..., :2].mean(axis=2)  # the darkest colour is violet, the brightest yellow
        high, wide = (side // 4 for side in brightness.shape)
        parts = brightness[: 4 * high, : 4 * wide].reshape(4, high, 4, wide).mean(axis=(1, 3))
        assert np.unravel_index(parts.argmax(), parts.shape) == (row, column)
        assert parts.max() > 1.5 * np.median(parts) > 0


def test_neighbouring_words_leave_a_gap(tmp_path):
    words = ["counterrevolutionaries", "skateboarding", "trampolines", "wakeboarding", "weightlifting"]
    save_panel(tmp_path / "panel.png", torch.full((3, 32, 32), 0.5), words, torch.ones(5, 2, 2))
    picture = rendered(tmp_path / "panel.png")
    found = cells(picture)
    for (rows, left), (_, right) in itertools.pairwise(found[1:]):
        assert (picture[rows.start - 48 : rows.start, left.stop + 2 : right.start - 2] == 255).all()


def test_long_words_titles_and_marks_are_not_clipped(tmp_path):
    words = ["counterrevolutionaries-and-others", "$5^", "<unk>", "a"]
    title = "a title that is longer than one line of the panel and therefore has to go on below, twice " * 2
    save_panel(tmp_path / "panel.png", torch.full((3, 32, 32), 0.5), words, torch.ones(4, 2, 2), title=title)
    picture = rendered(tmp_path / "panel.png")
    edge = np.concatenate([picture[:2].ravel(), picture[-2:].ravel(), picture[:, :2].ravel(), picture[:, -2:].ravel()])
    assert (edge == 255).all()
    photograph, (rows, columns) = cells(picture)[:2]
    ink = np.flatnonzero((picture[rows.start - 40 : rows.start - 4] < 200).any(axis=(0, 2)))
    assert photograph[1].stop < columns.start - 12 <= ink.min()


def test_no_words_give_the_photograph_alone_and_a_title_gives_height(tmp_path):
    photograph = torch.full((3, 32, 32), 0.5)
    save_panel(tmp_path / "plain.png", photograph, [], torch.zeros(0, 7, 7))
    save_panel(tmp_path / "titled.png", photograph, [], torch.zeros(0, 7, 7), title="dog")
    plain, titled = rendered(tmp_path / "plain.png"), rendered(tmp_path / "titled.png")
    assert len(cells(plain)) == len(cells(titled)) == 1
    assert titled.shape[0] > plain.shape[0]
    assert (titled[:48] < 200).any()


def test_of_several_maps_each_has_a_line_in_their_order(tmp_path):
    maps = {"inter 1": torch.zeros(2, 2, 2), "inter 2": torch.zeros(2, 2, 2)}
    lit = {"inter 1": [(0, 0), (0, 1)], "inter 2": [(1, 0), (1, 1)]}
    for name, spots in lit.items():
        for word, (row, column) in enumerate(spots):
            maps[name][word, row, column] = 1.0
    save_panel(tmp_path / "panel.png", torch.full((3, 32, 32), 0.5), ["a", "dog"], maps)
    picture = rendered(tmp_path / "panel.png")
    found = cells(picture)
    assert len(found) == 6
    for line, spots in enumerate(lit.values()):
        photograph, *words = found[3 * line : 3 * line + 3]
        assert np.ptp(picture[photograph][4:-4, 4:-4]) <= 2
        label = picture[photograph[0].start - 40 : photograph[0].start - 4, photograph[1]]
        assert (label < 200).any()  # the map's name
        for place, cell in zip(spots, words, strict=True):
            brightness = picture[cell][..., :2].mean(axis=2)
            high, wide = (side // 2 for side in brightness.shape)
            parts = brightness[: 2 * high, : 2 * wide].reshape(2, high, 2, wide).mean(axis=(1, 3))
            assert np.unravel_index(parts.argmax(), parts.shape) == place


def test_two_panels_of_the_same_are_the_same_files(tmp_path):
    arguments = torch.rand(3, 16, 16), ["a", "dog"], torch.rand(2, 4, 4)
    save_panel(tmp_path / "a.png", *arguments)
    save_panel(tmp_path / "b.png", *arguments)
    for suffix in ("png", "pdf"):
        assert (tmp_path / f"a.{suffix}").read_bytes() == (tmp_path / f"b.{suffix}").read_bytes()
    assert (tmp_path / "a.pdf").read_bytes().startswith(b"%PDF")
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.width > 3 * 300


def test_misfits_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"\[3, H, W\]"):
        save_panel(tmp_path / "x.png", torch.rand(4, 8, 8), ["a"], torch.rand(1, 2, 2))
    with pytest.raises(ValueError, match="T = 2 words"):
        save_panel(tmp_path / "x.png", torch.rand(3, 8, 8), ["a", "dog"], torch.rand(3, 2, 2))


def texts(page: Figure) -> dict[str, tuple[float, float, float, float]]:
    """Where each text stands, left, bottom, right, top, in pixels."""
    return {text.get_text(): text.get_window_extent().extents for text in page.texts if text.get_text()}


def test_proportions_are_kept_and_a_strip_can_still_be_seen(tmp_path) -> None:
    for (high, wide), (shown_high, shown_wide) in {
        (200, 400): (CELL / 2, CELL),
        (400, 300): (CELL, 0.75 * CELL),
        (1, 2000): (CELL / 5, CELL),
        (1, 1): (CELL, CELL),
    }.items():
        page = save_panel(
            tmp_path / "x.png",
            torch.rand(3, high, wide),
            ["dog"],
            torch.ones(1, 2, 4) / 8,
            "",
            (),
            (0.0, 0.0, 1.0, 1.0),
        )
        extents = [axes.get_window_extent() for axes in page.axes[:2]]
        for extent in extents:
            assert (extent.height, extent.width) == pytest.approx((DPI * shown_high, DPI * shown_wide))
        shown = page.axes[0].images[0].get_array()
        assert shown.shape[:2] == (round(DPI * shown_high), round(DPI * shown_wide))


def test_references_peaks_and_entropies_stand_on_the_page(tmp_path) -> None:
    maps = torch.zeros(2, 14, 14)
    maps[0, 2, 3] = 1.0
    maps[1] = 1 / 196
    references = ["a dog runs", "a brown dog that runs over a lawn with a ball " * 5]
    page = save_panel(
        tmp_path / "x.png", torch.rand(3, 30, 20), ["a", "dog"], maps, "a dog", references, (0.0, 0.0, 1.0, 1.0)
    )
    found = texts(page)
    assert {"a", "dog", "a dog", "reference: a dog runs", "0", "peak"} <= set(found)
    assert {"peak 100.0 %, 0.00 nats", "peak 0.5 %, 5.28 nats, even"} <= set(found)  # ln 196 = 5.278
    whole = " ".join(found)
    assert whole.count("a brown dog that runs") == 5
    assert "even map of 196 places: 0.5 %, 5.28 nats" in whole
    right, top = page.bbox.size
    for text, box in found.items():
        assert min(box[0], box[1], right - box[2], top - box[3]) >= 2, text
    below_cell = page.axes[0].get_window_extent().y0
    assert found["reference: a dog runs"][3] < found["peak 100.0 %, 0.00 nats"][1] < below_cell


def test_a_padded_photograph_has_the_places_that_lie_on_it(tmp_path) -> None:
    frame = (-0.5, 0.0, 1.5, 1.0)
    page = save_panel(tmp_path / "x.png", torch.rand(3, 40, 20), ["dog"], torch.ones(1, 8, 8) / 32, "", (), frame)
    assert "even map of 32 places: 3.1 %, 3.47 nats" in " ".join(texts(page))  # ln 32 = 3.466


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
