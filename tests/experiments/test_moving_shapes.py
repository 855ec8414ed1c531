"""Drawn clips: captions tell how the pixels move, and nothing but the order of frames tells which
way.
"""

from random import Random

import numpy as np
from PIL import Image

from captioning.data.shapes.dataset import BACKGROUND
from experiments.moving_shapes.moving_clips import (
    WAYS,
    MovingShapesReader,
    described,
    random_movements,
)


def centre(path):
    with Image.open(path) as picture:
        inked = (abs(np.asarray(picture).astype(int) - BACKGROUND) > 30).any(axis=2)
    return np.argwhere(inked).mean(axis=0)[::-1] / inked.shape[0]


def test_a_shape_moves_straight_where_the_captions_say(tmp_path):
    reader = MovingShapesReader(tmp_path, 13, 3, 2, max_objects=1, frames=5, size=64)
    splits = reader()
    assert [len(examples) for examples in splits.values()] == [13, 3, 2]
    for example in splits["train"]:
        frames = sorted(example.path.iterdir())
        assert len(frames) == 5
        steps = np.diff([centre(frame) for frame in frames], axis=0)
        texts = [reference.text for reference in example.references]
        assert len(texts) == 3
        (way,) = [way for way in WAYS if any(text.endswith(f" {way}") for text in texts)]
        expected = np.outer(np.full(4, abs(steps).max(axis=1).mean()), WAYS[way])
        np.testing.assert_allclose(steps, expected, atol=0.02)
    # by their numbers, however many there are
    again = MovingShapesReader(tmp_path / "other", 7, 3, 2, max_objects=1, frames=5, size=64)()
    for one, other in zip(splits["train"][:7], again["train"], strict=True):
        assert one.references == other.references
        for name in ("00.png", "04.png"):
            assert (one.path / name).read_bytes() == (other.path / name).read_bytes()


def test_two_shapes_never_touch_and_ways_are_equally_frequent():
    rng, counts = Random(0), dict.fromkeys(WAYS, 0)
    for _ in range(200):
        movements = random_movements(rng, 2)
        assert described(movements)[0].count(" and ") == 1
        for _, _, way in movements:
            counts[way] += 1
        for share in np.linspace(0, 1, 9):
            one, other = (
                np.array([a.x, a.y]) * (1 - share) + np.array([b.x, b.y]) * share
                for a, b, _ in movements
            )
            assert abs(one - other).max() > movements[0][0].radius + movements[1][0].radius
    assert all(60 < count < 140 for count in counts.values())
