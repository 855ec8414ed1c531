"""Combinations of settings that cannot work."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, open_dict

from captioning.checks import check
from captioning.command import CONF
from captioning.errors import CaptioningError
from captioning.signatures import check_call, check_settings


def config(*overrides: str) -> DictConfig:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        whole = compose("config", list(overrides), return_hydra_config=True)
    HydraConfig.instance().set_config(whole)  # names of choices are read from it
    with open_dict(whole):
        del whole["hydra"]  # as Hydra itself does
    return whole


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["experiment=demo"],
        ["experiment=flickr8k", "data.root=x"],
        ["logger=wandb"],
        ["callbacks=averaged"],
        ["callbacks.early_stopping=null"],
        ["~callbacks.early_stopping"],
        ["~callbacks.pointing", "~callbacks.attention", "~callbacks.stopwatch"],
        ["logger.csv=null", "callbacks.learning_rate=null"],
        ["callbacks.results=null", "test=false"],
        ["metrics.val=[BLEU]", "callbacks.checkpoint.monitor=val/BLEU-4"],
        ["trainer.max_epochs=1", "trainer.check_val_every_n_epoch=2", "test=false"],
        ["trainer.max_epochs=-1", "trainer.limit_train_batches=3", "trainer.gradient_clip_val=1"],
        ["model.max_tokens=31", "data.max_words=30", "decoding.max_length=31"],
        ["+trainer.strategy=ddp", "trainer=cpu", "trainer.devices=2"],
        ["decoding=greedy"],
        ["model=sat_soft", "objective=reinforce"],
        ["model=sat_hard", "objective=cross_entropy"],
    ],
)
def test_what_works_passes(overrides: list[str]) -> None:
    check(config(*overrides))


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        (
            ["data.max_words=15"],
            ["data.max_words=15", "model.max_tokens=15", "model.max_tokens=16", "data.max_words=14"],
        ),
        (["objective=reinforce"], ["objective=reinforce", "Transformer", "model=sat_hard"]),
        (["model=sat_hard", "objective.credit=word"], ["objective.credit=word", "caption, future"]),
        (["decoding.max_length=16"], ["decoding.max_length=16", "model.max_tokens=15"]),
        (["metrics.val=[BLEU]"], ["callbacks.checkpoint.monitor=val/CIDEr", "val/BLEU-4"]),
        (["callbacks.early_stopping.monitor=val/CIDER"], ["callbacks.early_stopping.monitor=val/CIDER", "val/METEOR"]),
        (["callbacks.checkpoint.monitor=val/nll"], ["callbacks.checkpoint.monitor=val/nll", "val/CIDEr"]),
        (["callbacks.checkpoint=null"], ["callbacks.checkpoint"]),
        (["~callbacks.results"], ["callbacks.results", "test=false"]),
        (["~logger.csv"], ["callbacks.learning_rate", "logger"]),
        (["trainer.max_epochs=1", "trainer.check_val_every_n_epoch=2"], ["trainer.max_epochs=1", "test=false"]),
        (["trainer.limit_val_batches=0"], ["trainer.limit_val_batches=0", "test=false"]),
        (["data=coco"], ["data.root is not set"]),
        (["hydra/launcher=processes", "trainer=cpu", "trainer.devices=2"], ["processes", "trainer.devices=2"]),
        (["data.mirror=1.5"], ["data.mirror=1.5", "from 0 to 1"]),
        (["data.mirror=true"], ["data.mirror=True", "from 0 to 1"]),
    ],
)
def test_what_cannot_work_is_refused(overrides: list[str], parts: list[str]) -> None:
    with pytest.raises(CaptioningError) as refusal:
        check(config(*overrides))
    for part in parts:
        assert part in str(refusal.value)


@pytest.mark.parametrize("trainer", ["cpu", "auto"])
def test_half_precision_needs_a_gpu(trainer: str) -> None:
    if trainer == "auto" and torch.cuda.is_available():
        pytest.skip("here auto is a GPU")
    with pytest.raises(CaptioningError, match=r"trainer.precision=16-mixed needs a GPU.*bf16-mixed"):
        check(config(f"trainer={trainer}", "trainer.precision=16-mixed"))


@pytest.mark.skipif(torch.accelerator.is_available(), reason="here is a GPU")
def test_a_gpu_that_is_not_there() -> None:
    with pytest.raises(CaptioningError, match=r"finds no GPU here; use trainer=cpu"):
        check(config("trainer=gpu"))


def function(
    count: int,
    rate: float = 1.0,
    flag: bool = False,
    name: str = "",
    kind: Literal["a", "b"] | None = None,
    sizes: Sequence[int] = (),
    either: int | str = 0,
    anything: Any = None,
    call: Callable[[], int] | None = None,
) -> None:
    """Has one parameter of each kind that a configuration fills."""


@pytest.mark.parametrize(
    "settings",
    [
        {"count": 3},
        {"rate": 3},
        {"rate": 0.5},
        {"flag": True},
        {"name": "x"},
        {"kind": "a"},
        {"kind": None},
        {"sizes": [1, 2]},
        {"either": "x"},
        {"anything": object()},
        {"call": {"_target_": "x"}},
    ],
)
def test_fitting_values(settings: dict[str, Any]) -> None:
    check_call("part", function, settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"count": "3"}, "part.count=3 is not allowed; it must be a whole number"),
        ({"count": True}, "part.count=true is not allowed; it must be a whole number"),
        ({"count": 3.0}, "part.count=3.0"),
        ({"rate": "fast"}, "part.rate=fast is not allowed; it must be a number"),
        ({"rate": False}, "part.rate=false"),
        ({"flag": 1}, "part.flag=1 is not allowed; it must be true or false"),
        ({"name": 7}, "part.name=7 is not allowed; it must be text"),
        ({"kind": "c"}, "part.kind=c is not allowed; it must be one of a, b, null"),
        ({"sizes": 3}, "part.sizes=3"),
        ({"either": None}, "part.either=null is not allowed; it must be one of a whole number, text"),
        ({"nmae": "x"}, "there is no setting part.nmae. Did you mean name?"),
    ],
)
def test_values_that_do_not_fit(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(CaptioningError) as refusal:
        check_call("part", function, settings)
    assert str(refusal.value).startswith(message)


def test_targets_are_found_wherever_they_are() -> None:
    node = {"a": [{"b": {"_target_": "torch.nn.Linear", "in_features": 3, "out_features": "many"}}]}
    with pytest.raises(CaptioningError, match=r"^a\[0\]\.b\.out_features=many is not allowed"):
        check_settings("", node)
