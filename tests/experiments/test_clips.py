"""Frames of clips, computed once each, as context sets in their order."""

import pytest
import torch
from features.counting import CountingCNN, counted, photographs
from refusals import refuses

from captioning.data.example import Example
from captioning.features.build import FeatureStore
from experiments.clips_flickr8k.frames import Frames

K = 5


@pytest.fixture
def examples(tmp_path):
    """Clips of links to the same six pictures, two of them shorter than K, one longer."""
    pictures = photographs(tmp_path / "pictures", 6)
    found = []
    for name, frames in {
        "a": [3, 0, 3],
        "b": [5, 4, 3, 2, 1, 0, 1, 2, 3, 4],
        "c": [2],
        "d": [0, 1, 2, 3, 4],
    }.items():
        (tmp_path / "clips" / name).mkdir(parents=True)
        (tmp_path / "clips" / name / "notes.txt").touch()
        for place, picture in enumerate(frames):
            (tmp_path / "clips" / name / f"{place}.png").symlink_to(pictures[picture])
        found.append(Example(name, tmp_path / "clips" / name, ()))
    return found


def test_each_picture_is_computed_once_and_padding_is_masked(examples, tmp_path):
    cnn = CountingCNN(log := tmp_path / "log", resize="pad")
    backbone = Frames(cnn, K)
    backbone.prepare({"train": examples})
    clips = backbone.open_inputs(examples, FeatureStore(tmp_path / "cache"), "train")
    assert counted(log) == 5
    clips.fit_scale(backbone)
    context = backbone.context(clips.rows([1, 0, 3]))
    assert context.grid == (1, K)
    assert context.mask.sum(dim=1).tolist() == [5, 3, 5]
    means = []
    for name in range(5):
        features = cnn(cnn.transform.read(tmp_path / "pictures" / f"{name}.png")[None])[0]
        means.append(features[~features[:, 0].isnan()].mean(dim=0))
    expected = torch.stack(means)
    expected /= expected.square().mean().sqrt()
    for row, frames in enumerate(
        [[4, 2, 0, 2, 4], [3, 0, 3], [0, 1, 2, 3, 4]]
    ):  # of ten: 1, 3, 5, 7, 9
        torch.testing.assert_close(
            context.vectors[row, : len(frames)], expected[frames], rtol=5e-3, atol=5e-3
        )
        assert not context.vectors[row, len(frames) :].any()


def test_what_is_no_clip_or_no_frozen_backbone_is_refused(tmp_path):
    clip = Example("e", tmp_path / "absent", ())
    with refuses("absent"):
        Frames(CountingCNN(), K).prepare({"train": [clip]})
    cnn = CountingCNN()
    cnn.trainable = True
    with pytest.raises(ValueError, match=r"backbone\.of\.trainable=false"):
        Frames(cnn, K)
