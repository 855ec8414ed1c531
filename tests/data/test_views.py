"""Drawn views: what they are for each photograph, and which of them an epoch shows."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from numbered import Numbered
from pictures import noise

from captioning.backbones.images import ImageTransform
from captioning.data.dataset import ImageFiles, Views
from captioning.data.views import KERNELS, NAMED, RandomChange

MIRRORED = RandomChange(quality=None, side=None, crop=0, brightness=0, contrast=0, mirror=1)


def shown(views, positions, epoch):
    rows = views.rows(positions, epoch)
    assert rows[:, 0, 0].tolist() == positions
    return rows[:, 0, 1].int().tolist()


@pytest.mark.parametrize("count", [1, 2, 5])
def test_an_epoch_shows_each_view_about_equally_often_whatever_the_batch(count):
    views = Views([Numbered(number) for number in range(count)], seed=5)
    whole = shown(views, list(range(2000)), 0)
    for number in range(count):
        assert whole.count(number) / 2000 == pytest.approx(
            1 / count, abs=0.045
        )  # four standard deviations
    assert shown(views, [1999, 7, 1, 7], 0) == [whole[1999], whole[7], whole[1], whole[7]]
    same = np.mean(np.array(whole) == np.array(shown(views, list(range(2000)), 1)))
    assert same == pytest.approx(1 / count, abs=0.045)


def photograph(path, seed=0):
    noise(path, (40, 30), seed)
    return path


def seen(path, number, changes=None):
    return ImageTransform(24, view=(changes or RandomChange()).view(number)).read(path)


def test_a_view_depends_on_file_name_number_and_seed_alone(tmp_path):
    path, other = (photograph(tmp_path / name / f"{name}.png") for name in ("a", "b"))
    moved = tmp_path / "b" / "a.png"
    shutil.copy(path, moved)
    plain = ImageTransform(24).read(path)
    assert torch.equal(plain, ImageTransform(24).read(other))
    views = [
        plain,
        seen(path, 1),
        seen(path, 2),
        seen(other, 1),
        seen(path, 1, RandomChange(seed=1)),
    ]
    assert torch.equal(views[1], seen(moved, 1))
    assert not any(torch.equal(a, b) for i, a in enumerate(views) for b in views[:i])


def test_drawn_changes_stay_in_their_bounds_and_reach_all_of_them():
    changes = RandomChange([40, 95], [0.5, 2], 0.2, 0.3, 0.1, 0.25)
    drawn = [changes.change(k) for k in range(2000)]
    qualities = [change.quality for change in drawn if change.quality is not None]
    sides = [change.side for change in drawn if change.side is not None]
    for values, low, high in (
        (qualities, 40, 95),
        (sides, 0.5, 2),
        ([change.crop[0] for change in drawn], 0, 0.2),
        ([change.brightness for change in drawn], 0.7, 1.3),
        ([change.contrast for change in drawn], 0.9, 1.1),
    ):
        assert low <= min(values) < low + (high - low) / 20
        assert high - (high - low) / 20 < max(values) <= high
    mirrored = sum(change.mirror for change in drawn)
    for count, share in ((len(qualities), 2 / 3), (len(sides), 2 / 3), (mirrored, 1 / 4)):
        assert count / 2000 == pytest.approx(share, abs=0.045)
    assert {change.kernel for change in drawn} == set(KERNELS)


def test_what_is_left_out_changes_nothing_else_and_equal_settings_are_one_view():
    every, some = RandomChange().change(3, 4), RandomChange(quality=None, crop=0).change(3, 4)
    assert replace(every, quality=None, crop=(0, 0, 0, 0)) == some
    assert (
        RandomChange([40, 95], crop=0).view(1).settings
        == RandomChange((40, 95), crop=0.0).view(1).settings
    )
    different = [
        RandomChange(),
        RandomChange(mirror=0),
        RandomChange(side=None),
        RandomChange(seed=1),
        MIRRORED,
    ]
    texts = [changes.view(number).settings for changes in different for number in (1, 2)]
    texts += [str(change and change.settings) for change in NAMED.values()]
    assert len(set(texts)) == len(texts)


def test_photographs_that_are_read_at_every_step_have_new_views_in_every_epoch(tmp_path):
    paths = [photograph(tmp_path / "a" / f"{seed}.png", seed) for seed in range(12)]
    plain, changed = ImageTransform(24), ImageTransform(24, view=RandomChange().view(1))
    views = Views([ImageFiles(paths, plain), ImageFiles(paths, changed)], seed=5)
    epochs = [views.rows(range(12), epoch) for epoch in range(3)]
    unchanged = [plain.read(path) for path in paths]
    same = [
        [torch.equal(row, whole) for row, whole in zip(rows, unchanged, strict=True)]
        for rows in epochs
    ]
    assert all(0 < sum(each) < 12 for each in same)
    assert torch.equal(epochs[2][[7, 3]], views.rows([7, 3], 2))
    drawn = [
        row
        for rows, kept in zip(epochs, same, strict=True)
        for row, it in zip(rows, kept, strict=True)
        if not it
    ]
    assert not any(torch.equal(a, b) for i, a in enumerate(drawn) for b in drawn[:i])


def test_mirrored_views_are_the_photographs_mirrored_and_nothing_else(tmp_path):
    path = photograph(tmp_path / "a.png")
    assert torch.equal(seen(path, 1, MIRRORED), ImageTransform(24).read(path).flip(-1))
