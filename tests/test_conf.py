"""Every file of the configuration composes, and all that a CPU can do in miniature takes a step."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from support import QUIET, composed, make_photographs, miniature
from torch import Tensor

from captioning import run
from captioning.config.registry import CONF
from captioning.runs.settings import each_setting

pytestmark = QUIET

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


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_photographs(tmp_path_factory.mktemp("photographs"))


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
