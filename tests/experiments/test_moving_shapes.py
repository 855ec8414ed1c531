"""Drawn clips: captions tell how the pixels move, and nothing but the order of frames tells which
way.
"""

from pathlib import Path
from random import Random

import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError

from captioning.data.shapes.dataset import BACKGROUND
from experiments.moving_shapes.moving_clips import (
    WAYS,
    MovingShapesReader,
    described,
    random_movements,
)


def centre(path: Path) -> np.ndarray:
    with Image.open(path) as picture:
        inked = (abs(np.asarray(picture).astype(int) - BACKGROUND) > 30).any(axis=2)
    return np.argwhere(inked).mean(axis=0)[::-1] / inked.shape[0]


def test_a_shape_moves_straight_where_the_captions_say(tmp_path: Path) -> None:
    reader = MovingShapesReader(tmp_path, 13, 3, 2, max_objects=1, frames=5, size=64)
    splits = reader()
    assert [len(examples) for examples in splits.values()] == [13, 3, 2]
    for example in splits["train"]:
        frames = sorted(example.path.iterdir())
        assert len(frames) == 5
        steps = np.diff([centre(frame) for frame in frames], axis=0)
        (way,) = {
            way
            for way in WAYS
            for reference in example.references
            if reference.text.endswith(f" {way}")
        }
        assert len(example.references) == 3
        np.testing.assert_allclose(
            steps, np.outer(np.full(4, abs(steps).max(axis=1).mean()), WAYS[way]), atol=0.02
        )
    again = MovingShapesReader(tmp_path / "other", 7, 3, 2, max_objects=1, frames=5, size=64)()
    for one, other in zip(
        splits["train"], again["train"], strict=False
    ):  # by their numbers, however many there are
        assert one.references == other.references
        for name in ("00.png", "04.png"):
            assert (one.path / name).read_bytes() == (other.path / name).read_bytes()
    with pytest.raises(ValidationError, match="max_objects"):
        MovingShapesReader("", max_objects=3)  # two at most


def test_two_shapes_never_touch_and_ways_are_equally_frequent() -> None:
    rng, counts = Random(0), dict.fromkeys(WAYS, 0)
    for _ in range(200):
        movements = random_movements(rng, 2)
        assert described(movements)[0].count(" and ") == 1
        for _, _, way in movements:
            counts[way] += 1
        for share in np.linspace(0, 1, 9):
            places = [
                np.array([a.x, a.y]) * (1 - share) + np.array([b.x, b.y]) * share
                for a, b, _ in movements
            ]
            assert (
                abs(places[0] - places[1]).max() > movements[0][0].radius + movements[1][0].radius
            )
    assert all(60 < count < 140 for count in counts.values())
