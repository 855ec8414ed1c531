"""Panels of attention, judged from the pixels of the file."""

import itertools

import numpy as np
import pytest
import torch
from PIL import Image

from captioning.report.panels import light, save_panel


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
        if rows.stop - rows.start > 40:
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
    assert picture[found[0]].mean() == pytest.approx(0.5 * 255, abs=3)
    assert np.ptp(picture[found[0]][4:-4, 4:-4]) <= 2
    for (row, column), cell in zip(corners, found[1:], strict=True):
        brightness = picture[cell].mean(axis=2)
        high, wide = (side // 4 for side in brightness.shape)
        parts = brightness[: 4 * high, : 4 * wide].reshape(4, high, 4, wide).mean(axis=(1, 3))
        assert np.unravel_index(parts.argmax(), parts.shape) == (row, column)
        assert parts.max() > 2 * np.median(parts) > 0


def test_the_photograph_stays_visible_in_the_dark_and_its_proportions_are_kept(tmp_path):
    photograph = torch.full((3, 40, 80), 0.8)
    photograph[:, :, :40] = 0.2
    maps = torch.zeros(1, 2, 4)
    maps[0, 1, 3] = 1.0
    save_panel(tmp_path / "panel.png", photograph, ["dog"], maps)
    picture = rendered(tmp_path / "panel.png")
    (rows, columns) = cells(picture)[1]
    assert (columns.stop - columns.start) / (rows.stop - rows.start) == pytest.approx(2, rel=0.04)
    upper = picture[rows, columns][5:25].mean(axis=(0, 2))
    assert upper[20] + 15 < upper[90]


def test_of_a_padded_photograph_the_photograph_is_shown(tmp_path):
    photograph = torch.full((4, 40, 40), 0.3)
    photograph[3] = 0
    photograph[3, 10:30] = 1
    photograph[:3, 10:30, :20] = 0.8
    maps = torch.zeros(1, 4, 4)
    maps[0, 1, 3] = 1.0
    save_panel(tmp_path / "panel.png", photograph, ["dog"], maps)
    picture = rendered(tmp_path / "panel.png")
    plain, (rows, columns) = cells(picture)
    assert (columns.stop - columns.start) / (rows.stop - rows.start) == pytest.approx(2, rel=0.04)
    halves = np.split(picture[plain].mean(axis=(0, 2))[:148], 2)
    assert [half.mean() for half in halves] == pytest.approx([0.8 * 255, 0.3 * 255], abs=6)
    lit = picture[rows, columns].mean(axis=2)
    high, wide = lit.shape
    assert lit[: high // 2, -wide // 4 :].mean() > lit[high // 2 :, -wide // 4 :].mean() + 15


def test_an_even_map_lights_all_of_a_padded_photograph_alike():
    photograph = torch.full((4, 40, 40), 0.5)
    photograph[3] = 0
    photograph[3, 8:31] = 1  # the edges cut through cells
    maps = torch.zeros(1, 8, 8)
    maps[0, 2:6] = 0.1  # centres at 2.5, 7.5, 12.5, ...
    lit = light(photograph, maps)
    assert lit.shape == (1, 3, 23, 40)
    torch.testing.assert_close(lit, torch.full_like(lit, lit.max()))


def test_light_is_full_at_the_peak_dim_at_zero_and_never_out_of_range():
    photograph = torch.full((3, 6, 9), 0.4)
    maps = torch.zeros(2, 2, 3)
    maps[0, 0, 0] = 5.0
    lit = light(photograph, maps)
    assert lit.shape == (2, 3, 6, 9)
    assert lit[0].amax() == lit[0, 0, 0, 0] > 0.4
    assert 0 < lit[0, 0, 5, 8] < 0.2
    assert torch.equal(lit[1], lit[1, 0, 0, 0].expand(3, 6, 9))  # a map of zeros is dark all over, without a NaN
    assert light(torch.rand(3, 6, 9), torch.rand(5, 2, 3)).min() >= 0
    assert light(torch.ones(3, 6, 9), torch.rand(5, 2, 3)).max() <= 1


def test_light_fades_alike_in_all_directions():
    """As a Gaussian of 0.6 cells: no squares of the grid, no dark ring about a peak."""
    maps = torch.zeros(1, 7, 7)
    maps[0, 3, 3] = 0.2
    lit = light(torch.full((3, 70, 70), 0.5), maps)[0, 0]
    side = (torch.arange(70) + 0.5) / 10 - 3.5
    expected = torch.exp(-(side[:, None] ** 2 + side**2) / (2 * 0.6**2))
    torch.testing.assert_close((lit - lit.min()) / (lit.max() - lit.min()), expected, atol=0.01, rtol=0)
    even = light(torch.full((3, 6, 9), 0.5), torch.full((1, 2, 3), 0.1))
    torch.testing.assert_close(even, even.mean().expand(1, 3, 6, 9))


def test_neighbouring_words_leave_a_gap(tmp_path):
    words = ["counterrevolutionaries", "skateboarding", "trampolines", "wakeboarding", "weightlifting"]
    save_panel(tmp_path / "panel.png", torch.full((3, 32, 32), 0.5), words, torch.ones(5, 2, 2))
    picture = rendered(tmp_path / "panel.png")
    found = cells(picture)
    for (rows, left), (_, right) in itertools.pairwise(found[1:]):
        assert (picture[rows.start - 24 : rows.start, left.stop + 2 : right.start - 2] == 255).all()


def test_long_words_titles_and_marks_are_not_clipped(tmp_path):
    words = ["counterrevolutionaries-and-others", "$5^", "<unk>", "a"]
    title = "a title that is longer than one line of the panel and therefore has to go on below, twice " * 2
    save_panel(tmp_path / "panel.png", torch.full((3, 32, 32), 0.5), words, torch.ones(4, 2, 2), title=title)
    picture = rendered(tmp_path / "panel.png")
    edge = np.concatenate([picture[:2].ravel(), picture[-2:].ravel(), picture[:, :2].ravel(), picture[:, -2:].ravel()])
    assert (edge == 255).all()
    long_word = picture[cells(picture)[1][0].start - 20 : cells(picture)[1][0].start - 2]
    ink = np.flatnonzero((long_word < 200).any(axis=(0, 2)))
    assert ink.min() >= cells(picture)[1][1].start - 12


def test_no_words_give_the_photograph_alone_and_a_title_gives_height(tmp_path):
    photograph = torch.full((3, 32, 32), 0.5)
    save_panel(tmp_path / "plain.png", photograph, [], torch.zeros(0, 7, 7))
    save_panel(tmp_path / "titled.png", photograph, [], torch.zeros(0, 7, 7), title="dog")
    plain, titled = rendered(tmp_path / "plain.png"), rendered(tmp_path / "titled.png")
    assert len(cells(plain)) == len(cells(titled)) == 1
    assert titled.shape[0] > plain.shape[0]
    assert (titled[:24] < 200).any()


def test_of_several_maps_each_has_a_line_in_their_order(tmp_path):
    maps = {"inter 1": torch.zeros(2, 2, 2), "inter 2": torch.zeros(2, 2, 2)}
    lit = {"inter 1": [(0, 0), (0, 1)], "inter 2": [(1, 0), (1, 1)]}
    for name, places in lit.items():
        for word, (row, column) in enumerate(places):
            maps[name][word, row, column] = 1.0
    save_panel(tmp_path / "panel.png", torch.full((3, 32, 32), 0.5), ["a", "dog"], maps)
    picture = rendered(tmp_path / "panel.png")
    found = cells(picture)
    assert len(found) == 6
    for line, places in enumerate(lit.values()):
        photograph, *words = found[3 * line : 3 * line + 3]
        assert np.ptp(picture[photograph][4:-4, 4:-4]) <= 2
        label = picture[photograph[0].start - 20 : photograph[0].start - 2, photograph[1]]
        assert (label < 200).any()  # the map's name
        for place, cell in zip(places, words, strict=True):
            brightness = picture[cell].mean(axis=2)
            high, wide = (side // 2 for side in brightness.shape)
            parts = brightness[: 2 * high, : 2 * wide].reshape(2, high, 2, wide).mean(axis=(1, 3))
            assert np.unravel_index(parts.argmax(), parts.shape) == place


def test_two_panels_of_the_same_are_the_same_file(tmp_path):
    arguments = torch.rand(3, 16, 16), ["a", "dog"], torch.rand(2, 4, 4)
    save_panel(tmp_path / "a.png", *arguments)
    save_panel(tmp_path / "b.png", *arguments)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_misfits_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"\[3, H, W\]"):
        save_panel(tmp_path / "x.png", torch.rand(1, 8, 8), ["a"], torch.rand(1, 2, 2))
    with pytest.raises(ValueError, match="T = 2 words"):
        save_panel(tmp_path / "x.png", torch.rand(3, 8, 8), ["a", "dog"], torch.rand(3, 2, 2))
