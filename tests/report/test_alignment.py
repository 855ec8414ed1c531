"""The alignment picture, read off the pixels of its file and the text of its axes."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from PIL import Image

from captioning.report.alignment import FULL, save_alignment
from captioning.report.figures import COLOURS

WEIGHTS = np.array([[0.5, 0.25, 0.25], [0.0, 0.0, 1.0], [1 / 3] * 3], np.float32)


def test_a_row_of_bars_for_each_word_with_its_own_scale(tmp_path: Path) -> None:
    labels, words = ["ein", "Hund", "$x^$"], ["a", "$dog^$", "<b>"]
    maps = {"mean": WEIGHTS, "inter 1 1": WEIGHTS}
    page = save_alignment(tmp_path / "a.png", words, maps, labels, "title " * 30, ["A dog."])
    with Image.open(tmp_path / "a.png") as picture:
        distance = abs(np.asarray(picture.convert("RGB")) / 255 - to_rgb(COLOURS[0]))
    ink = (distance < 0.02).all(axis=2)
    for axes, name in zip(page.axes, maps, strict=True):
        assert axes.get_title(loc="left") == name
        assert [label.get_text() for label in axes.get_xticklabels()] == labels
        assert [label.get_text() for label in axes.get_yticklabels()] == words
        notes = [label.get_text() for label in axes.child_axes[0].get_yticklabels()]
        assert notes[1:] == ["peak 100.0 %, 0.00 nats", "peak 33.3 %, 1.10 nats, even"]
        box = axes.get_window_extent()
        high, wide, upper = box.height / 3, box.width / 3, ink.shape[0] - box.y1
        for row, expected in enumerate(WEIGHTS / WEIGHTS.max(axis=1, keepdims=True)):
            for column, height in enumerate(expected):
                rows = slice(int(upper + row * high), int(upper + (row + 1) * high))
                bar = ink[rows, int(box.x0 + (column + 0.5) * wide)]
                assert bar.mean() == pytest.approx(FULL * height, abs=0.05)


def test_no_words_and_many_vectors(tmp_path: Path) -> None:
    assert save_alignment(tmp_path / "a.png", (), {"mean": np.zeros((0, 5), np.float32)}).axes
    page = save_alignment(
        tmp_path / "a.png", ("a",), {"mean": np.full((1, 601), 1 / 601, np.float32)}
    )
    assert [label.get_text() for label in page.axes[0].get_xticklabels()][:2] == ["1", "12"]
