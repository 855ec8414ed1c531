"""N processes are one: real ones, over gloo, on the parts of the same global batches.

Global batches of 4 images, the last of 3 in training and of 1 in evaluation, where some processes have none.
"""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import pytest
import torch
from lightning.fabric.plugins.environments.lightning import find_free_network_port
from processes import START
from torch import Tensor

from captioning.data.example import Example, Noun
from captioning.runs.attention_file import read
from captioning.training.callbacks.records import AttentionPanels, KeepAttention, Results
from captioning.training.callbacks.statistics import Pointing
from captioning.training.callbacks.timing import Throughput
from captioning.training.module import CaptioningModule
from captioning.training.objectives import CrossEntropy, Reinforce, SelfCritical
from captioning.training.rewards import Reward

from .world import QUIET, data, examples, flat, module, rewarded, show_attend_tell, trainer, transformer

pytestmark = QUIET

RATE = "train/captions per second"
SPLITS = {"train": examples(11), "val": examples(5), "test": examples(5)}


class Recorded(torch.optim.SGD):
    """Notes the gradients it is given: of all processes and accumulated batches, divided, as the weights move by."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.seen: list[Tensor] = []

    def step(self, closure: Callable[[], Any]) -> Any:  # type: ignore[override]
        result = closure()
        self.seen.append(torch.cat([p.grad.flatten() for group in self.param_groups for p in group["params"]]))
        super().step()
        return result


class Rewards(L.Callback):
    """Notes the baseline after each batch."""

    def __init__(self) -> None:
        self.baselines: list[float] = []

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *_: Any) -> None:
        baseline = dict(pl_module.objective.named_buffers()).get("baseline", torch.zeros(1))
        self.baselines.append(baseline.item())


def maximised() -> tuple[Any, SelfCritical]:
    model = transformer()
    found = SelfCritical(reward=Reward(), samples=3, baseline="greedy", kl_weight=0.5, max_length=5)
    return model, rewarded(found, SPLITS["train"], model)


SYSTEMS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "spatial_transformer": lambda: (transformer(), CrossEntropy(0.1)),
    "sat_soft": lambda: (show_attend_tell(), CrossEntropy(0.1, doubly_stochastic=1.0)),
    "sat_hard": lambda: (show_attend_tell(), Reinforce(label_smoothing=0.1, entropy=0.1, samples=2)),
    "self_critical": maximised,
    "scheduled_sampling": lambda: (show_attend_tell(), CrossEntropy(scheduled_sampling=0.4)),
}
CASES = [(system, windows) for system in SYSTEMS for windows in (1, 2)]


def train(system: str, windows: int, processes: int) -> dict[str, Tensor]:
    """Two epochs of three global batches, each with its validation."""
    optimizer, rewards = partial(Recorded, lr=0.1, momentum=0.9), Rewards()
    found = module(*SYSTEMS[system](), optimizer=optimizer, splits=SPLITS)
    callbacks = [rewards, Throughput()]
    run = launched(processes, max_epochs=2, accumulate_grad_batches=windows, callbacks=callbacks, log_every_n_steps=1)
    size = 4 // processes
    run.fit(found, data(SPLITS, batch_size=size, eval_batch_size=size))
    scores = {name: value for name, value in run.callback_metrics.items() if name.startswith("val/")}
    return scores | {
        "gradients": torch.stack(run.optimizers[0].seen),
        "weights": flat(found.model),
        "baselines": torch.tensor(rewards.baselines),
        RATE: run.callback_metrics[RATE],
    }


def launched(processes: int, **settings: Any) -> L.Trainer:
    return trainer(devices=processes, **({"strategy": "ddp"} if processes > 1 else {}), **settings)


def captioner() -> CaptioningModule:
    """A model with captions of its own for every image."""
    found = module(show_attend_tell(), splits=SPLITS, metrics=("BLEU", "CIDEr"))
    generator = torch.Generator().manual_seed(4)
    for parameter in found.model.parameters():
        parameter.data.normal_(std=1.0, generator=generator)
    return found


def score(folder: Path, processes: int, rank: int) -> None:
    """Tests the captioner; every process would write to a folder of its own."""
    box = (0.0, 0.0, 0.5, 1.0)

    def pictured(example: Example) -> Example:
        references = tuple(replace(r, nouns=(Noun(0, box),)) for r in example.references)
        return replace(example, references=references)

    own = folder / f"rank {rank}"
    if rank == 0:
        own.mkdir()
    photographs = [pictured(example) for example in examples(5, folder)]
    callbacks = [Results(own), Pointing(), AttentionPanels(own / "attention", images=4), KeepAttention(own, images=4)]
    source = data(SPLITS | {"test": photographs}, eval_batch_size=2)
    found = captioner()
    found.config["data"] = {"reader": {"root": str(folder)}}
    launched(processes, callbacks=callbacks).test(found, source, verbose=False)


def work(rank: int, folder: Path, port: int, processes: int) -> None:
    """One of the processes, as a launcher would start it."""
    place = {"LOCAL_RANK": rank, "NODE_RANK": 0, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in place.items()})
    torch.set_num_threads(1)
    if processes == 2:
        torch.save({case: train(*case, processes) for case in CASES}, folder / f"{rank}.pt")
    score(folder, processes, rank)


def start(folder: Path, processes: int) -> Path:
    arguments = (folder, find_free_network_port(), processes)
    torch.multiprocessing.start_processes(work, arguments, nprocs=processes, start_method=START)
    return folder


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return start(tmp_path_factory.mktemp("two"), 2)


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return start(tmp_path_factory.mktemp("three"), 3)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("one")
    score(folder, 1, 0)
    return folder


def test_parts_of_the_batches_have_unequal_numbers_of_words() -> None:
    halves = [batch.tokens[..., 1:].bool().split(2) for batch in data(SPLITS, batch_size=4).train_dataloader()]
    assert [first.sum() != second.sum() for first, second in halves].count(True) >= 2


@pytest.mark.parametrize(("system", "windows"), CASES)
def test_two_processes_train_as_one(two: Path, system: str, windows: int) -> None:
    """Every gradient, and with it every step, the baseline after every step, and validation."""
    expected = train(system, windows, 1)
    assert len(expected["gradients"]) == {1: 6, 2: 4}[windows]
    assert (expected["gradients"].norm(dim=1) > 0.01).all()
    assert {"val/nll", "val/BLEU-4"} < expected.keys()
    assert (len(expected["baselines"].unique()) > 1) == (system == "sat_hard")
    for rank in range(2):
        found = torch.load(two / f"{rank}.pt", weights_only=True)[system, windows]
        for name, value in expected.items():
            if name == RATE:
                continue
            exact = name in ("gradients", "weights", "baselines")
            torch.testing.assert_close(found[name], value, rtol=1e-9 if exact else 1e-6, atol=1e-12, msg=name)


def test_the_rate_is_that_of_both_processes(two: Path) -> None:
    found = [torch.load(two / f"{rank}.pt", weights_only=True)[CASES[0]][RATE] for rank in range(2)]
    assert found[0] == found[1] > 0


def test_every_number_of_processes_writes_the_same_captions_and_scores(one: Path, two: Path, three: Path) -> None:
    captions = (one / "rank 0" / "captions.jsonl").read_text()
    lines = [json.loads(line) for line in captions.splitlines()]
    assert [line["image_id"] for line in lines] == list(range(5))
    assert len({line["caption"] for line in lines}) >= 3
    scores = json.loads((one / "rank 0" / "scores.json").read_text())["scores"]
    assert 0 < scores["pointing"] < 100
    assert scores["pointing (images shuffled)"] != scores["pointing"]
    for folder in (two, three):
        assert (folder / "rank 0" / "captions.jsonl").read_text() == captions
        assert json.loads((folder / "rank 0" / "scores.json").read_text())["scores"] == pytest.approx(scores, rel=1e-6)
        assert sorted(path.name for path in folder.glob("rank*")) == ["rank 0"]
        panels = sorted(path.name for path in (folder / "rank 0" / "attention").glob("*.png"))
        assert panels == [f"{i}.png" for i in range(4)]
        for kept, of_one in zip(*(read(place / "rank 0" / "attention.npz") for place in (folder, one)), strict=True):
            assert (kept.image_id, kept.words) == (of_one.image_id, of_one.words)
            np.testing.assert_allclose(kept.maps["mean"], of_one.maps["mean"], atol=1 / 255)
    assert [kept.image_id for kept in read(one / "rank 0" / "attention.npz")] == list(range(4))
