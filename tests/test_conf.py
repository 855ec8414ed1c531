"""Every file of the configuration composes, and all that a CPU can do in miniature takes a step."""

import functools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf, open_dict
from PIL import Image
from torch import Tensor

from captioning import run
from captioning.config.command import NOT_HERE
from captioning.config.registry import CONF
from captioning.config.settings import each_setting

pytestmark = [pytest.mark.filterwarnings(f"ignore:{message}") for message in NOT_HERE]

OPTIONS = [
    (str(path.parent.relative_to(CONF)), path.stem)
    for path in sorted(CONF.glob("*/*.yaml"))
    if not path.stem.startswith("_") and path.parent.name != "download"  # a root of its own: tests/download
]
FOR_ONE_MODEL = sorted({file.parent for file in CONF.glob("experiment/*/*.yaml")})
NEEDS_MORE = {
    ("trainer", "gpu"): "needs a GPU",
    ("trainer", "ddp"): "needs GPUs",
    ("callbacks", "compiled"): "needs a compiler; tests/training/callbacks/test_compiled.py has it",
    ("logger", "wandb"): "starts a service; tests/test_run.py runs it in a process of its own",
}
LARGE = ("table1", "table1_flickr30k", "sat_soft_coco", "sat_hard_coco")
"""Experiments with a backbone that has its own turn, and takes long."""
WITH = {
    ("objective", "reinforce"): ["model=sat_hard"],
    ("objective", "doubly_stochastic"): ["model=sat_soft"],
    **{("experiment", name): ["backbone=small_cnn"] for name in LARGE},
}
"""What an option needs beside it."""
MEMBER = {"weights": None, "size": 48}
MINIATURE = {
    "model.d_feat": 8,
    "model.d_embed": 8,
    "model.heads": 2,
    "model.d_hidden": 8,
    "data.num_workers": 0,
    "data.vocabulary.min_count": 1,
    "data.reader.train": 6,
    "data.reader.val": 2,
    "data.reader.test": 2,
    "backbone.weights": None,
    "backbone.size": 48,
    **{f"backbone.{member}.{key}": value for member in ("first", "second") for key, value in MEMBER.items()},
    "trainer.accelerator": "cpu",
    "trainer.max_epochs": 1,
    "trainer.check_val_every_n_epoch": 1,
    "trainer.limit_train_batches": 1,
    "metrics.val": ["BLEU", "CIDEr"],
    "test": False,
    "callbacks.progress_bar": None,
}
SMALL_GRID = {"backbone.size": 32, "backbone.grid": 2, "backbone.dim": 8}


@functools.cache
def _composed(overrides: tuple[str, ...], name: str, folder: Path) -> DictConfig:
    with initialize_config_dir(str(folder), version_base="1.3"):
        return compose(name, list(overrides), return_hydra_config=True)


def composed(*overrides: str, name: str = "config", folder: Path = CONF) -> DictConfig:
    config = _composed(overrides, name, folder).copy()
    HydraConfig.instance().set_config(config)
    with open_dict(config):
        del config["hydra"]
    return config


def miniature(config: DictConfig) -> DictConfig:
    """The same with every size that it has set to a very small one."""
    sizes = MINIATURE | (SMALL_GRID if "grid" in config.backbone else {})
    nothing = object()
    for key, value in sizes.items():
        if OmegaConf.select(config, key, default=nothing) is not nothing:
            OmegaConf.update(config, key, value)
    return config


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_photographs(tmp_path_factory.mktemp("photographs"))


def make_photographs(folder: Path) -> Path:
    """Photographs in every layout that a data set's configuration reads, each with two captions."""
    texts = ("A dog runs .", "Dogs")
    for below in ("images", "train2014", "val2014"):
        (folder / below).mkdir(parents=True)
        for i in range(16):  # the fewest of which an eighth is two
            Image.new("RGB", (60, 50), (16 * i, 9, 9)).save(folder / below / f"{i}.jpg")
    splits = ["train", "train", "val", "test"]
    sentences = [{"raw": text, "tokens": text.lower().replace(" .", "").split()} for text in texts]
    karpathy: list[dict[str, Any]] = [
        {"filename": f"{i}.jpg", "imgid": i, "split": split, "sentences": sentences} for i, split in enumerate(splits)
    ]
    for name in ("flickr8k", "flickr30k"):
        (folder / f"dataset_{name}.json").write_text(json.dumps({"images": karpathy}))
    coco = [entry | {"filepath": "val2014", "cocoid": 100 + entry["imgid"]} for entry in karpathy]
    (folder / "dataset_coco.json").write_text(json.dumps({"images": coco}))
    (folder / "annotations").mkdir()
    for first, split in ((100, "train2014"), (200, "val2014")):
        images = [{"id": first + i, "file_name": f"{i}.jpg"} for i in range(16)]
        annotations = [{"image_id": image["id"], "caption": text} for image in images for text in texts]
        content = json.dumps({"images": images, "annotations": annotations})
        (folder / "annotations" / f"captions_{split}.json").write_text(content)
    rows = [f"{i}.jpg,{text}" for i in range(len(splits)) for text in texts]
    (folder / "captions.txt").write_text("\n".join(["image,caption", *rows]))
    drawn = [1_000_000 * split + i for split in range(3) for i in range(6)]  # the ids of data=shapes
    np.savez(folder / "features.npz", **{str(i): np.full((1 + i % 5, 2048), i % 7 + 1, np.float16) for i in drawn})
    for split in ("train", "val", "test"):
        (folder / f"{split}.txt").write_text("\n".join(f"{i}.jpg" for i, s in enumerate(splits) if s == split))
    return folder


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large weights are the same few random numbers again and again, and captions are split at blanks, not by Java."""
    uniform, normal = torch.Tensor.uniform_, torch.Tensor.normal_

    def repeated(draw: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def fill(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            if tensor.is_meta or tensor.numel() < 2**18 or not tensor.is_contiguous():
                return draw(tensor, *args, **kwargs)
            few, flat = draw(torch.empty(2**16), *args, **kwargs), tensor.detach().view(-1)
            end = len(flat) // len(few) * len(few)
            flat[:end].view(-1, len(few)).copy_(few)
            flat[end:].copy_(few[: len(flat) - end])
            return tensor

        return fill

    monkeypatch.setattr(torch.Tensor, "uniform_", repeated(uniform))
    monkeypatch.setattr(torch.Tensor, "normal_", repeated(normal))
    monkeypatch.setattr("captioning.metrics.scorer.ptb_tokenize", lambda captions, *_: list(captions))


def test_files_are_found() -> None:
    groups = {group for group, _ in OPTIONS}
    assert groups >= {
        "data",
        "backbone",
        "model",
        "objective",
        "decoding",
        "trainer",
        "logger",
        "callbacks",
        "experiment",
    }
    assert set(NEEDS_MORE) <= set(OPTIONS)


@pytest.mark.parametrize("name", [path.stem for path in sorted(CONF.glob("*.yaml"))])
def test_main_files_compose(name: str) -> None:
    assert OmegaConf.to_container(composed(name=name), resolve=True)


@pytest.mark.parametrize(("group", "option"), OPTIONS)
def test_options_compose_and_resolve(group: str, option: str) -> None:
    config = composed(f"{group}={option}")
    if OmegaConf.is_missing(config.data, "root"):
        config.data.root = "somewhere"
    resolved = OmegaConf.to_container(config, resolve=True)
    assert isinstance(resolved, dict)
    part = resolved.get(group)
    if group not in ("experiment", "callbacks", "logger", "data"):
        assert isinstance(part, dict)
        assert "_target_" in part


@pytest.mark.parametrize("folder", FOR_ONE_MODEL, ids=lambda folder: folder.name)
def test_what_an_experiment_sets_for_one_model_reaches_it_and_no_other(folder: Path) -> None:
    set_for = {file.stem: dict(each_setting(OmegaConf.to_container(OmegaConf.load(file)))) for file in folder.iterdir()}
    chosen = {model: [f"experiment={folder.name}", f"model={model}"] for model in set_for}
    configs = {model: composed(*overrides) for model, overrides in chosen.items()}
    missing = object()
    for model, settings in set_for.items():
        assert {key: OmegaConf.select(configs[model], key) for key in settings} == settings
        others = [config for other, config in configs.items() if other != model]
        differs = [
            OmegaConf.select(config, key, default=missing) != settings[key] for config in others for key in settings
        ]
        assert any(differs), model
        said = composed(*chosen[model], *(f"{key}=7" for key in settings))
        assert {OmegaConf.select(said, key) for key in settings} == {7}, model


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("group", "option"), [option for option in OPTIONS if option not in NEEDS_MORE])
def test_options_take_a_step(
    group: str, option: str, photographs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # a data set's own backbone is large, and has its own turn
    overrides = [f"{group}={option}", *(["backbone=small_cnn"] if group == "data" else [])]
    config = miniature(composed(*WITH.get((group, option), []), *overrides))
    if OmegaConf.is_missing(config.data, "root"):
        config.data.root = str(photographs)
    if OmegaConf.is_missing(config.backbone, "path"):
        config.backbone.path = str(photographs / "features.npz")
    score = run.main.__wrapped__(config)  # beneath Hydra's command line
    assert score is not None
    assert score >= 0
    (folder,) = (tmp_path / config.runs).iterdir()
    assert (folder / "checkpoints" / "best.ckpt").exists()
    assert "CAPTIONING_RUN_FOLDER" not in os.environ


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_both_precisions_with_all_that_training_offers(
    precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    overrides = [
        f"trainer.precision={precision}",
        "trainer.gradient_clip_val=0.5",
        "trainer.accumulate_grad_batches=2",
        "objective.label_smoothing=0.1",
        "schedule=cosine",
        "schedule.warmup_steps=2",
        "callbacks=averaged",
    ]
    config = miniature(composed(*overrides))
    config.trainer.limit_train_batches = 3
    config.data.batch_size = 2
    assert run.main.__wrapped__(config) is not None
