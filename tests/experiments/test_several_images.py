"""Images of examples, computed once each, as one context set."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from features.counting import CountingCNN, counted, photographs
from models.tensors import has_gradients
from refusals import refuses
from torch.testing import assert_close

from captioning.backbones.precomputed import Precomputed
from captioning.backbones.scratch import SmallCNN
from captioning.data.columns import data_digest
from captioning.data.example import Example
from captioning.data.example import image_names as names
from captioning.data.views import NAMED
from captioning.features.build import FeatureStore
from experiments.clips_flickr8k.frames import Frames
from experiments.several_images.several_images import SeveralImages
from experiments.two_backbones.side_by_side import ConcatBackbone

V, CELLS = 3, 9


@pytest.fixture
def examples(tmp_path):
    """Of six pictures, some of which are in several examples."""
    files = photographs(tmp_path / "pictures", 6)
    groups = {"a": (3, 0, 3), "b": (5, 4), "c": (2,), "d": (4, 5)}
    return [
        Example(name, files[first], (), further=tuple(files[k] for k in others))
        for name, (first, *others) in groups.items()
    ]


@pytest.mark.parametrize("resize", ["stretch", "pad"])
def test_each_picture_is_computed_once_and_absent_ones_are_masked(resize, examples, tmp_path):
    cnn = CountingCNN(log := tmp_path / "log", resize=resize)
    backbone = SeveralImages(cnn, V)
    backbone.prepare({"train": examples})
    inputs = backbone.open_inputs(examples, FeatureStore(tmp_path / "cache"), "train")
    assert counted(log) == 5
    inputs.fit_scale(backbone)
    assert cnn.scale != 1
    context = backbone.context(inputs.rows([1, 0, 2]))
    assert (context.grid, context.images, backbone.positions) == ((3, 3), V, V * CELLS)
    for row, example in enumerate([examples[1], examples[0], examples[2]]):
        for place in range(V):
            part = slice(place * CELLS, (place + 1) * CELLS)
            found, mask = context.vectors[row, part], context.mask[row, part]
            if place >= len(example.paths):
                assert not mask.any()
            else:
                one = cnn.context(cnn(cnn.read([example.paths[place]])[None]))
                assert mask.all() if one.mask is None else torch.equal(mask, one.mask[0])
                expected = (one.vectors[0] + backbone.embedding[place])[mask]
                assert_close(found[mask], expected, rtol=5e-3, atol=5e-3)
            assert not found[~mask].any()
    pixels = torch.stack([backbone.read(examples[row].paths) for row in (1, 0, 2)])
    assert pixels.shape == (3, V, 4, 12, 12)
    alike = backbone.context_of(pixels)
    assert torch.equal(alike.mask, context.mask)
    assert torch.equal(backbone.valid_mask(pixels), context.mask)
    assert_close(alike.vectors, context.vectors, rtol=5e-3, atol=5e-3)


def test_exchanging_images_and_their_embeddings_exchanges_vectors(examples):
    backbone = SeveralImages(CountingCNN(), 2).double()
    pixels = torch.stack([backbone.read(example.paths) for example in (examples[1], examples[3])])
    context = backbone.context_of(pixels)
    backbone.embedding.data = backbone.embedding.data.flip(0)
    other = backbone.context_of(pixels.flip(1))
    halves = context.vectors.unflatten(1, (2, CELLS)).flip(1).flatten(1, 2)
    assert_close(other.vectors, halves, rtol=0, atol=1e-6)
    assert not torch.equal(other.vectors, context.vectors)


def test_a_trained_backbone_and_the_embedding_learn(examples):
    cnn = SmallCNN(dim=7, size=12, grid=3)
    backbone = SeveralImages(cnn, V)
    inputs = backbone.open_inputs(examples, FeatureStore(Path("unused")), "train")
    rows = inputs.rows([0, 1, 2])
    assert torch.equal(rows, torch.stack([backbone.read(e.paths) for e in examples[:3]]))
    context = backbone.context_of(rows[1:])
    context.vectors.square().sum().backward()
    first, *others = backbone.embedding.grad
    assert first.any()
    assert [bool(gradient.any()) for gradient in others] == [True, False]
    assert has_gradients(cnn)
    frozen = SeveralImages(CountingCNN(), V)
    assert [name for name, p in frozen.named_parameters() if p.requires_grad] == ["embedding"]


def test_pictures_stand_side_by_side_and_names_are_joined(examples):
    backbone = SeveralImages(CountingCNN(), V)
    picture, frame = backbone.picture(examples[1].paths, 30)
    assert (picture.shape, frame) == ((3, 10, 30), (0, 0, 1, 1))
    squares = picture.split(10, dim=2)
    for square, path in zip(squares, examples[1].paths, strict=False):
        expected = replace(backbone.transform, size=10).read(path) / 255
        assert torch.equal(square, expected)
    assert not squares[2].any()
    folder = examples[0].path.parent
    assert names(examples[1:3], folder) == ["5.png+4.png", "2.png"]
    fewer = replace(examples[1], further=())
    assert len({data_digest({"train": [e]}) for e in (examples[1], fewer)}) == 2


def several(**settings):
    return SeveralImages(CountingCNN(), **settings)


def test_what_takes_other_numbers_of_images_is_refused(examples):
    store, splits = FeatureStore(Path("unused")), {"train": examples}
    for backbone in (CountingCNN(), several(images=2)):
        with refuses(r"has 3 images .* backbone\.images=3"):
            backbone.prepare(splits)
        with refuses(r"reads [12]: "):
            backbone.open_inputs(examples, store, "train")
        with refuses(r"backbone\.images=3"):
            backbone.read(examples[0].paths)
    with refuses("views"):
        several().with_transform(NAMED["dark"])
    with pytest.raises(ValueError, match="reads images"):
        SeveralImages(Precomputed("absent"))
    cnn = CountingCNN()
    for build in (SeveralImages, Frames, lambda of: ConcatBackbone(cnn, of)):
        with refuses("one image per example"):
            build(several())
