"""Features that a frozen backbone computes in every step, against those of a cache."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from counting import COUNT, CountingCNN, unfinish
from pictures import noise
from refusals import refuses
from support import FROZEN, MODEL, QUIET, called, flickr8k, rows_of
from torch.testing import assert_close

from captioning import evaluate, run
from captioning.data.example import Example
from captioning.data.views import RandomChange
from captioning.features.build import FeatureStore, MissingFeatures
from experiments.several_images.several_images import SeveralImages
from experiments.two_backbones.side_by_side import ConcatBackbone

pytestmark = QUIET
ULP = 2**-10
"""Of half precision, relative: twice the error of a number that was rounded to it."""


def one(resize):
    return CountingCNN(resize=resize)


def two(resize):
    return ConcatBackbone(CountingCNN(resize=resize), CountingCNN(factor=3, resize=resize))


def several(resize):
    torch.manual_seed(1)
    return SeveralImages(CountingCNN(resize=resize), 2)


@pytest.mark.parametrize("build", [one, two, several])
@pytest.mark.parametrize("resize", ["stretch", "pad"])
def test_context_sets_and_scale_are_those_of_a_cache(build, resize, paths, tmp_path):
    cached, uncached = build(resize), build(resize)
    further = {3: (paths[0],), 5: (paths[9],)} if build is several else {}
    examples = [Example(i, path, (), further=further.get(i, ())) for i, path in enumerate(paths)]
    stored = cached.open_inputs(examples, FeatureStore(tmp_path / "cache"), "train")
    store = FeatureStore(tmp_path / "none", in_steps=True)
    read = uncached.open_inputs(examples, store, "train")
    stored.fit_scale(cached)
    read.fit_scale(uncached)
    scales = [{k: v for k, v in b.named_buffers() if "scale" in k} for b in (cached, uncached)]
    assert_close(scales[1], scales[0], rtol=1e-5, atol=0)
    assert any(scale != 1 for scale in scales[0].values())
    rows = [*range(COUNT)][::-1]
    features, images = stored.rows(rows), read.rows(rows)
    assert images.dtype == torch.uint8
    with torch.autocast("cpu", torch.bfloat16):  # of the model alone
        expected, found = cached.context_of(features), uncached.context_of(images)
    assert_close(found.vectors, expected.vectors, rtol=ULP, atol=ULP)
    assert (found.mask is None) == (expected.mask is None)
    assert found.mask is None or torch.equal(found.mask, expected.mask)
    assert found.vectors.requires_grad == (build is several)  # whose embedding is learned
    assert not (tmp_path / "none").exists()


def test_views_are_drawn_again_in_each_epoch(paths):
    examples = [Example(i, path, ()) for i, path in enumerate(paths)]
    change = RandomChange().view(1)
    for backbone in (one("stretch"), two("stretch")):
        viewed = backbone.with_transform(change)
        read = viewed.open_inputs(examples, FeatureStore(Path("unused"), in_steps=True), "train")
        first, again, second = (read.at(epoch).rows([0, 4]) for epoch in (1, 1, 2))
        assert torch.equal(first, again)
        assert not torch.equal(first, second)


def trained(*settings):
    """The folder of a run on photographs of two epochs."""
    called(run.main, *FROZEN, *MODEL, *RUN, *settings)
    return max(Path("runs").iterdir(), key=lambda folder: folder.stat().st_mtime)


RUN = [
    *("data.vocabulary.min_count=1", "data.num_workers=0", "trainer=cpu", "trainer.max_epochs=2"),
    *("trainer.precision=32-true", "data.batch_size=2", "metrics.val=[CIDEr]"),
    *("metrics.test=[BLEU,CIDEr]", "callbacks.attention.images=1", "trainer.log_every_n_steps=1"),
]


def test_a_run_without_a_cache_learns_what_one_with_a_cache_learns(elsewhere):
    flickr8k(elsewhere / "data")
    for number, path in enumerate(sorted(Path("data/images").iterdir())):
        noise(path, (60, 40), number)
    without = trained("data.cache_features=false")
    assert not Path("cache/features").exists()
    cached = trained()
    assert Path("cache/features").exists()
    assert without != cached
    losses = [
        [row["train/nll"] for row in rows_of(folder) if "train/nll" in row]
        for folder in (without, cached)
    ]
    assert len(losses[0]) == 4
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    assert (without / "captions.jsonl").read_text() == (cached / "captions.jsonl").read_text()
    checkpoint = f"checkpoint={without}/checkpoints/best.ckpt"
    called(evaluate.main, "device=cpu", checkpoint, "metrics=[BLEU]")


def test_a_cache_that_does_not_fit_is_refused_before_a_feature_is_computed(elsewhere, monkeypatch):
    """The four images of training in two views, one of validation and one of the test."""
    flickr8k(elsewhere / "data")
    row, free = 512 * 2 * 2 * 2, [0]  # bytes of an image, free on the disk
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=free[0]))
    views = ["data.views=2", "data/view=mirrored"]
    free[0] = 10 * row - 1
    with refuses(r"cache=FOLDER.*data\.cache_features=false"):
        trained(*views)
    assert not list(Path("cache/features").iterdir())
    trained(*views, "data.cache_features=false")
    assert not list(Path("cache/features").iterdir())
    free[0] = 10 * row
    trained(*views)
    free[0] = 0
    trained(*views, "seed=2")  # all is there
    trained("data.train_images=3")  # a part of it
    with refuses(r"data\.cache_features=false"):
        trained("data.views=3", "data/view=mirrored")


@pytest.mark.parametrize("build", [one, two, several])
def test_what_is_missing_is_counted_to_the_byte(build, paths, tmp_path):
    backbone, row = build("stretch"), 9 * 7 * 2
    members = 2 if build is two else 1

    def missing(chosen):
        store = MissingFeatures(tmp_path)
        examples = [Example(i, path, ()) for i, path in enumerate(chosen)]
        backbone.open_inputs(examples, store, "train")
        return store.size

    assert missing(paths) == COUNT * row * members
    examples = [Example(i, path, ()) for i, path in enumerate(paths[:4])]
    stored = backbone.open_inputs(examples, FeatureStore(tmp_path), "val")
    assert missing(paths[:4]) == 0
    assert missing(paths) == COUNT * row * members
    if build is one:  # of an unfinished one, rows that are there
        unfinish(stored)
        assert missing(paths) == (COUNT - 4) * row


def test_what_reads_no_images_needs_the_cache(elsewhere):
    flickr8k(elsewhere / "data")
    features = ["data=flickr8k", "data.root=data", "backbone=features", "backbone.path=data"]
    with refuses(r"data\.cache_features=false"):
        called(run.main, *features, *RUN, *MODEL, "data.cache_features=false")
