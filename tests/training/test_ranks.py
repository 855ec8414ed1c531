"""N processes are one: real ones, over gloo, on the parts of the same global batches.

Global batches of 4 images, the last of 3 in training and of 1 in evaluation, where some processes
have none.
"""

import json
from functools import partial

import numpy as np
import pytest
import torch
from json_files import read_json
from lightning.fabric.plugins.environments.lightning import find_free_network_port
from processes import START

from captioning.decoding import sample
from captioning.runs.evaluation.attention_file import read
from captioning.runs.folders.record import Record
from captioning.training.callbacks.records import AttentionLogger, AttentionPanels, Results
from captioning.training.callbacks.statistics import LogAttentionStatistics, Pointing
from captioning.training.callbacks.timing import Throughput
from captioning.training.objectives import CrossEntropy, Reinforce, SelfCritical
from captioning.training.objectives.rewards import Reward

from .world import (
    QUIET,
    data,
    examples,
    flat,
    module,
    noted,
    randomised,
    rewarded,
    show_attend_tell,
    take_place,
    trainer,
    transformer,
)

pytestmark = QUIET
RATE = "train/captions per second"
SPLITS = {"train": examples(11), "val": examples(5), "test": examples(5)}


class Recorded(torch.optim.SGD):
    """Notes the gradients it is given: of all processes and accumulated batches, divided, as the
    weights move by.
    """

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        self.seen = []

    def step(self, closure):
        result = closure()
        self.seen.append(
            torch.cat([p.grad.flatten() for group in self.param_groups for p in group["params"]])
        )
        super().step()
        return result


def maximised():
    model = transformer()
    found = SelfCritical(reward=Reward(), samples=3, baseline="greedy", kl_weight=0.5, max_length=5)
    return model, rewarded(found, SPLITS["train"], model)


SYSTEMS = {
    "spatial_transformer": lambda: (transformer(), CrossEntropy(0.1)),
    "sat_soft": lambda: (show_attend_tell(), CrossEntropy(0.1, doubly_stochastic=1.0)),
    "sat_hard": lambda: (
        show_attend_tell(),
        Reinforce(label_smoothing=0.1, entropy=0.1, samples=2),
    ),
    "self_critical": maximised,
    "scheduled_sampling": lambda: (show_attend_tell(), CrossEntropy(scheduled_sampling=0.4)),
}
CASES = [("spatial_transformer", 1), ("sat_soft", 2), ("sat_hard", 2), ("self_critical", 2)]
CASES += [("scheduled_sampling", 1), ("sat_hard", 1)]
"""Systems, and accumulated batches."""


def launched(processes, **settings):
    return trainer(devices=processes, **({"strategy": "ddp"} if processes > 1 else {}), **settings)


def train(system, windows, processes):
    """Two epochs of three global batches, each with its validation."""
    callback, baselines = noted(
        lambda _, found: float(dict(found.objective.named_buffers()).get("baseline", 0.0))
    )
    found = module(
        *SYSTEMS[system](), optimizer=partial(Recorded, lr=0.1, momentum=0.9), splits=SPLITS
    )
    settings = {"max_epochs": 2, "accumulate_grad_batches": windows, "log_every_n_steps": 1}
    run = launched(processes, callbacks=[callback, Throughput()], **settings)
    size = 4 // processes
    run.fit(found, data(SPLITS, batch_size=size, eval_batch_size=size))
    logged = run.callback_metrics.items()
    names = ("val/", RATE)
    return {name: value for name, value in logged if name.startswith(names)} | {
        "gradients": torch.stack(run.optimizers[0].seen),
        "weights": flat(found.model),
        "baselines": torch.tensor(baselines),
    }


def score(folder, processes, rank):
    """Tests a model with three captions of its own for every image; every process would write to a
    folder of its own.
    """
    own = folder / f"rank {rank}"
    if rank == 0:
        own.mkdir()
        Record(digests={"data": "1234"}).write(own)
    callbacks = [Results(own), Pointing(), LogAttentionStatistics()]
    callbacks += [AttentionPanels(own / "attention", images=4), AttentionLogger(own, images=4)]
    metrics = ("BLEU", "CIDEr", "experiments.diversity.metric.Diversity")
    model = randomised(show_attend_tell(), 1.0, seed=4)
    found = module(model, splits=SPLITS, metrics=metrics, root=str(folder))
    found.search = partial(sample, n=3, temperature=2.0, max_length=5)
    source = data(SPLITS | {"test": examples(5, folder)}, eval_batch_size=2)
    run = launched(processes, callbacks=callbacks, default_root_dir=folder / "rank 0")
    run.test(found, source, verbose=False)


def work(rank, folder, port, processes):
    """One of the processes, as a launcher would start it."""
    take_place(port, rank, 0)
    if processes == 2:
        torch.save({case: train(*case, processes) for case in CASES}, folder / f"{rank}.pt")
    score(folder, processes, rank)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """What one, two and three processes have left."""
    found = {processes: tmp_path_factory.mktemp(str(processes)) for processes in (1, 2, 3)}
    started = [
        torch.multiprocessing.start_processes(
            work,
            (found[processes], find_free_network_port(), processes),
            processes,
            join=False,
            start_method=START,
        )
        for processes in (2, 3)
    ]
    score(found[1], 1, 0)
    for several in started:
        while not several.join():
            pass
    return found


@pytest.mark.parametrize("system, windows", CASES)
def test_two_processes_train_as_one(folders, system, windows):
    """Every gradient, and with it every step, the baseline after every step, and validation."""
    loaded = data(SPLITS, batch_size=4).train_dataloader()
    halves = [batch.tokens[..., 1:].bool().split(2) for batch in loaded]
    unequal = [first.sum() != second.sum() for first, second in halves]  # numbers of words
    assert sum(unequal) >= 2
    expected = train(system, windows, 1)
    assert len(expected["gradients"]) == {1: 6, 2: 4}[windows]
    assert (expected["gradients"].norm(dim=1) > 0.01).all()
    assert {"val/nll", "val/BLEU-4"} < expected.keys()
    assert (len(expected["baselines"].unique()) > 1) == (system == "sat_hard")
    files = [folders[2] / f"{rank}.pt" for rank in range(2)]
    ranks = [torch.load(file, weights_only=True)[system, windows] for file in files]
    assert ranks[0][RATE] == ranks[1].pop(RATE) > 0  # that of both
    for found in ranks:
        for name in found.keys() - {RATE}:
            rtol = 1e-9 if name in ("gradients", "weights", "baselines") else 1e-6
            torch.testing.assert_close(found[name], expected[name], rtol=rtol, atol=1e-12, msg=name)


def test_every_number_of_processes_writes_the_same_captions_and_scores(folders):
    one = folders[1] / "rank 0"
    captions = (one / "captions.jsonl").read_text()
    lines = [json.loads(line) for line in captions.splitlines()]
    assert [line["image_id"] for line in lines] == list(range(5))
    assert len({line["caption"] for line in lines}) >= 3
    assert {len(line["alternatives"]) for line in lines} == {2}
    scores = read_json(one / "scores.json")["scores"]
    assert 0 < scores["pointing"] < 100
    assert 0 < scores["self-CIDEr"] < 100
    assert scores["pointing (images shuffled)"] != scores["pointing"]
    assert [kept.image_id for kept in read(one / "attention.npz")] == list(range(4))
    for folder in (folders[2], folders[3]):
        first = folder / "rank 0"
        assert (first / "captions.jsonl").read_text() == captions
        same = read_json(first / "scores.json")["scores"]
        assert same == pytest.approx(scores, rel=1e-6)
        assert [path.name for path in folder.glob("rank*")] == ["rank 0"]
        assert len(list((first / "attention").glob("*.png"))) == 4
        both = [read(place / "attention.npz") for place in (first, one)]
        for kept, of_one in zip(*both, strict=True):
            assert (kept.image_id, kept.words) == (of_one.image_id, of_one.words)
            np.testing.assert_allclose(kept.maps["mean"], of_one.maps["mean"], atol=1 / 255)
