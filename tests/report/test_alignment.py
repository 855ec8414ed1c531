"""The alignment picture, read off the pixels of its file and the text of its axes."""

import numpy as np
import pytest
from matplotlib import colormaps
from PIL import Image

from captioning.report.alignment import COLOURS, save_alignment

WEIGHTS = np.array([[0.5, 0.25, 0.25], [0.0, 0.0, 1.0], [1 / 3] * 3], np.float32)


def test_a_row_of_shades_for_each_word_with_its_own_scale(tmp_path):
    labels, words = ["ein", "Hund", "$x^$"], ["a", "$dog^$", "<b>"]
    maps = {"mean": WEIGHTS, "inter 1 1": WEIGHTS}
    page = save_alignment(tmp_path / "a.png", words, maps, labels, "title " * 30, ["A dog."])
    with Image.open(tmp_path / "a.png") as picture:
        pixels = np.asarray(picture.convert("RGB")) / 255
    for axes, name in zip(page.axes, maps, strict=True):
        assert axes.get_title(loc="left") == name
        assert [label.get_text() for label in axes.get_xticklabels()] == labels
        assert [label.get_text() for label in axes.get_yticklabels()] == words
        box = axes.get_window_extent()
        high, wide, upper = box.height / 3, box.width / 3, pixels.shape[0] - box.y1
        for row, shares in enumerate(WEIGHTS / WEIGHTS.max(axis=1, keepdims=True)):
            for column, share in enumerate(shares):
                place = int(upper + (row + 0.5) * high), int(box.x0 + (column + 0.5) * wide)
                expected = colormaps[COLOURS](float(share))[:3]
                assert pixels[place] == pytest.approx(expected, abs=0.02)


def test_no_words_and_many_vectors(tmp_path):
    assert save_alignment(tmp_path / "a.png", (), {"mean": np.zeros((0, 5), np.float32)}).axes
    page = save_alignment(
        tmp_path / "a.png", ("a",), {"mean": np.full((1, 601), 1 / 601, np.float32)}
    )
    assert [label.get_text() for label in page.axes[0].get_xticklabels()][:2] == ["1", "12"]
