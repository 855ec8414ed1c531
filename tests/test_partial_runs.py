"""Runs whose context sets are not full, from their data to captions and pictures."""

import math
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from pictures import noise
from refusals import refuses
from support import QUIET, called, captions_of, composed, make_photographs, miniature, small_run

import captioning
from captioning import evaluate, predict, run
from captioning.data.example import Example, Reference
from captioning.data.module import check_lengths
from captioning.runs.evaluation.attention_file import read
from captioning.serve.captions import load_captioners
from captioning.training.objectives.cross_entropy import doubly_stochastic
from experiments.onnx.graphs import captioner_graphs

pytestmark = QUIET
TWO = Path(__file__).parents[1] / "experiments" / "two_backbones"
MODULE = "experiments.two_backbones.side_by_side"
CLIPS = f"hydra.searchpath=[file://{TWO.with_name('clips_flickr8k')}]"
SEVERAL = f"hydra.searchpath=[file://{TWO.with_name('several_images')}]"
SEVERAL_MODULES = ["experiments.several_images.several_images", "experiments.several_images.r2gen"]
WIDE = (60, 20)
TEST = ["test=true", "model=sat_soft", "trainer.max_epochs=1", "callbacks.attention.images=1"]


@pytest.fixture(autouse=True)
def _home(elsewhere):
    """Photographs three times as wide as high."""
    make_photographs(Path("photographs"))
    for number, path in enumerate(sorted(Path("photographs/images").glob("*.jpg"))):
        noise(path, WIDE, number)


def trained(*overrides, data="csv", **backbone):
    """The folder of a run on the photographs."""
    config = miniature(composed(f"data={data}", "data.root=photographs", *TEST, *overrides))
    config.test, config.metrics.test = True, ["BLEU"]
    config.backbone.update(backbone)
    run.main.__wrapped__(config)
    (folder,) = Path("runs").glob(f"{data}-*")
    return folder


def captions(folder):
    return [line["caption"] for line in captions_of(folder)]


def evaluated(folder, *overrides):
    """Evaluate a run's checkpoint."""
    checkpoint = f"checkpoint={folder / 'checkpoints' / 'best.ckpt'}"
    config = composed("device=cpu", checkpoint, "metrics=[BLEU]", *overrides, name="evaluate")
    evaluate.main.__wrapped__(config)


@pytest.mark.parametrize("trainable", [False, True])
def test_padded_photographs_are_looked_at_and_drawn_alone(trainable, monkeypatch):
    masks = []

    def recorded(output, batch, context):
        masks.append(context.mask)
        return doubly_stochastic(output, batch, context)

    monkeypatch.setattr("captioning.training.objectives.cross_entropy.doubly_stochastic", recorded)
    chosen = ["backbone=small_cnn", "backbone.resize=pad", "data.views=2"]
    folder = trained(*chosen, f"backbone.trainable={trainable}", size=48, grid=6)
    rows = torch.zeros(6, 6, dtype=torch.bool)
    rows[2:4] = True  # 16 of 48 rows: from 16 to 32; centres at 4, 12, 20, 28, ...
    assert masks
    assert all((mask == rows.flatten()).all() for mask in masks)
    (found,) = captioning.load(folder / "checkpoints" / "best.ckpt", "cpu").caption(
        ["photographs/images/3.jpg"]
    )
    assert [found.caption] == captions(folder)
    assert not found.attention[:, ~rows].any()
    assert found.attention[:, rows].gt(0).all()
    with refuses("are read from none"):
        evaluated(folder, "features=anywhere")
    assert len(list((folder / "attention").glob("*.png"))) == 1


def test_captions_that_are_all_too_long_are_refused():
    example = Example(1, Path("1.jpg"), (Reference("a red dog", ("a", "red", "dog")),))
    check_lengths([example], 3)
    with refuses(r"data\.max_words=2 words, the shortest has 3"):
        check_lengths([example], 2)


def test_features_of_ones_own_train_are_evaluated_where_they_lie_and_take_no_photographs():
    Path("features").mkdir()
    for number in range(4):
        array = np.random.default_rng(number).normal(size=(1 + number % 3, 7))
        np.save(f"features/{number}.npy", array.astype(np.float32))
    chosen = ["backbone=features", "backbone.path=features", "backbone.dim=7", "backbone.regions=3"]
    shutil.rmtree("photographs/images")
    with refuses("views need photographs"):
        trained(*chosen, "data.views=2", data="flickr8k")
    folder = trained(*chosen, data="flickr8k")
    (kept,) = read(folder / "attention.npz")
    assert kept.image_id == 3
    assert kept.maps["mean"].shape[1:] == (1, 1 + 3 % 3)  # without what is masked
    assert (folder / "attention" / "3.pdf").exists()

    Path("features").rename("moved")
    with refuses(r"backbone\.path=features: .* is not a folder"):
        evaluated(folder)
    evaluated(folder, "features=moved")
    assert captions(Path("runs/evaluate-2")) == captions(folder)
    for setting in ("images=photographs", "corruptions=[full,png]"):
        with refuses("backbone=features"):
            evaluated(folder, setting)
    noise("a.jpg", WIDE)
    checkpoint = f"checkpoint={folder / 'checkpoints' / 'best.ckpt'}"
    with refuses("has no network"):
        called(predict.main, "device=cpu", checkpoint, "images=a.jpg", "attention=false")


@pytest.mark.parametrize("data", ["csv", "frames"])
def test_clips_by_name_train_and_are_evaluated_without_photographs_of_their_own(data):
    home, modules = Path("photographs"), []
    for path in [home / f"{name}.txt" for name in ("captions", "train", "val", "test")]:
        path.write_text(path.read_text().replace(".jpg", " of a clip"))
    if data == "csv":
        shutil.rmtree(home / "images")
        random = np.random.default_rng(0)
        np.savez(
            "features.npz", **{f"{i} of a clip": random.normal(size=(2 + i, 7)) for i in range(4)}
        )
        chosen = ["backbone=features", "backbone.path=features.npz", "backbone.dim=7"]
        folder = trained(*chosen, "backbone.regions=3", "backbone.sample=even", data=data)
    else:
        for clip in (home / "clips").iterdir():
            clip.rename(clip.with_name(clip.name.replace(".jpg", " of a clip")))
        chosen = [CLIPS, "backbone@backbone.of=small_cnn", "backbone.of.trainable=false"]
        folder = trained(*chosen, "backbone.frames=3", "backbone.of.grid=3", data=data)
        modules.append("modules=[experiments.clips_flickr8k.frames]")
    evaluated(folder, *modules)
    assert captions(Path("runs/evaluate")) == captions(folder)
    with refuses("does not read single photographs"):
        evaluated(folder, "images=photographs", *modules)


@pytest.mark.parametrize("trainable", [False, True])
def test_examples_of_several_images_from_training_to_maps(trainable):
    of = {"grid": 6, "resize": "pad", "trainable": trainable}
    chosen = ["backbone@backbone.of=small_cnn", *(f"backbone.of.{k}={v}" for k, v in of.items())]
    folder = trained(SEVERAL, *chosen, data="r2gen")
    (line,) = captions_of(folder)
    assert (line["image_id"], line["photograph"]) == ("report 3", "3.jpg+4.jpg")
    (kept,) = read(folder / "attention.npz")
    assert kept.maps["mean"].shape[1:] == (6, 12)
    seen = kept.maps["mean"].reshape(-1, 6, 2, 6) > 0
    assert seen[:, 2:4].all()  # the rows of both that are no padding
    assert not seen[:, [0, 1, 4, 5]].any()
    assert (folder / "attention" / "report_3.png").exists()
    modules = f"modules=[{','.join(SEVERAL_MODULES)}]"
    evaluated(folder, "save_attention=1", modules)
    assert captions_of(Path("runs/evaluate"))[0]["caption"] == line["caption"]

    photographs, file = Path("photographs/images"), folder / "checkpoints" / "best.ckpt"
    captioner = captioning.load(file, "cpu", modules=SEVERAL_MODULES)
    pair = photographs / "3.jpg", photographs / "4.jpg"
    found, alone = captioner.caption([pair, pair[0]])
    assert (found.caption, found.attention.shape[1:]) == (line["caption"], (6, 12))
    assert alone.attention[:, 2:4, :6].all()
    assert not alone.attention[:, :, 6:].any()
    settings = ["device=cpu", f"checkpoint={file}", "attention=true", "save_attention=1", modules]
    name = "+".join(map(str, pair))
    called(predict.main, *settings, f"images={name}")
    (kept,) = read(Path("attention/attention.npz"))
    assert kept.image_id == name
    np.testing.assert_allclose(kept.maps["mean"], found.attention, atol=2e-3)

    for setting in ("images=photographs", "corruptions=[full,dark]"):
        with refuses("one image per example"):
            evaluated(folder, setting, modules)
    with refuses("one image per example"):
        load_captioners([file], "cpu", SEVERAL_MODULES)
    with refuses("one image per example"):
        captioner_graphs(captioner)


@pytest.mark.parametrize(
    "settings, cause",
    [
        (["backbone=small_cnn"], r"has 2 images .*1\.jpg\+.*2\.jpg"),
        (["model=lstm_bottleneck", "model.initial.pool=flat"], "MLPInit reads the vectors"),
        (["model=rnn_search"], "RecurrentEncoder reads the vectors"),
        (["data.views=2"], "apart from each other"),
    ],
)
def test_what_reads_one_image_is_refused_before_features_are_computed(settings, cause):
    of = ["backbone@backbone.of=small_cnn", "backbone.of.trainable=false", "backbone.of.grid=6"]
    of = [] if "backbone=small_cnn" in settings else of
    with refuses(cause):
        small_run(SEVERAL, "data=r2gen", "data.root=photographs", *of, *settings)
    assert not Path("cache/features").exists()


def test_names_of_several_images_are_joined(capsys):
    for name in ("A/1.png", "A/2.png", "B/1.png", "B/2.png", "A/x+y.png", "C+/1.png"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).touch()
    problems = predict.ErrorCounter()
    given = ["A/1.png+B/1.png", "A/[12].png+B", "A/x+y.png", "C+/*.png", "A+B", "B/1.png+absent"]
    found = predict.find_inputs(given, problems)
    expected = ["A/1.png+B/1.png"] * 2 + ["A/2.png+B/2.png", "A/x+y.png", "C+/1.png"]
    assert ["+".join(map(str, paths)) for paths in found] == expected
    complaints = capsys.readouterr().err.splitlines()
    assert [re.sub(".*images=", "", text)[:30] for text in complaints] == [
        "A+B names 3 and 2 files, which",
        "absent: name a file, a pattern",
    ]


def test_two_backbones_side_by_side_are_loaded_with_their_own_scales():
    chosen = [f"hydra.searchpath=[{TWO}]", "backbone=side_by_side", "backbone.along=set"]
    for name, grid in (("first", 3), ("second", 6)):
        small = [f"grid={grid}", "dim=7", "trainable=false", "resize=pad"]
        chosen += [f"backbone.{name}.{setting}" for setting in small]
        chosen += [f"backbone@backbone.{name}=small_cnn"]
    folder = trained(*chosen)
    captioner = captioning.load(folder / "checkpoints" / "best.ckpt", "cpu", modules=[MODULE])
    one, other = [member.scale.item() for member in captioner.networks[0].backbone.members]
    assert math.isfinite(one * other)
    assert 1 != one != other != 1
    (found,) = captioner.caption(["photographs/images/3.jpg"])
    assert [found.caption] == captions(folder)
    assert len(list(Path("cache/features").glob("*/features.npy"))) == 2 * 3
