"""What a GPU computes is what a CPU computes: each test runs on both, on the GPU by `make gpu`."""

import os
import signal
import subprocess
import sys
import time
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import torch
from lightning.fabric.plugins.environments.lightning import find_free_network_port
from lightning.pytorch.strategies import DDPStrategy
from models import captioners
from models.captioners import L, build, captioner
from processes import START
from support import SHAPES, captions_of, rows_of
from torch.testing import assert_close
from training.world import (
    QUIET,
    batch,
    data,
    examples,
    flat,
    module,
    normal,
    show_attend_tell,
    take_place,
    trainer,
    transformer,
)

import captioning
from captioning.backbones.context import ContextSet
from captioning.backbones.torchvision import TorchvisionBackbone
from captioning.data.batch import collate
from captioning.decoding import beam_search
from captioning.features.build import FeatureStore
from captioning.training.objectives import BatchRandom, CrossEntropy, Reinforce

ROOT = Path(__file__).parents[2]
PHOTOGRAPHS = sorted((ROOT / "experiments" / "photographs").glob("*.jpg"))
CPU = torch.device("cpu")
WORDS, D, GRID = 500, 128, (7, 7)
SIZES = {
    "spatial_transformer": {"d_model": 128, "d_ff": 256},
    "sat_soft": {"d_embed": 64, "d_hidden": 256},
    "sat_hard": {"d_embed": 64, "d_hidden": 256},
}
HALF = 2.0**-10  # twice the largest relative error of half precision
LIMIT = 80  # seconds of a process
SMALL = [setting for setting in SHAPES if not setting.startswith("trainer")]
RUN = [sys.executable, "-m", "captioning.run", *SMALL, "metrics.test=[CIDEr]"]
PATHS = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
pytestmark = QUIET


@pytest.fixture(
    params=[
        pytest.param("cpu", marks=pytest.mark.soak),  # that these tests run at all
        pytest.param("cuda", marks=pytest.mark.gpu),
    ]
)
def device(request):
    return torch.device(request.param)


@pytest.fixture(autouse=True)
def exact():
    """Single precision is not TF32, in products and in convolutions."""
    modes = torch.backends.cuda.matmul, torch.backends.cudnn
    before = [mode.allow_tf32 for mode in modes]
    for mode in modes:
        mode.allow_tf32 = False
    yield
    for mode, value in zip(modes, before, strict=True):
        mode.allow_tf32 = value


@dataclass(frozen=True, slots=True)
class DrawnOnCPU(BatchRandom):
    """The CPU's numbers, whatever the device of the model."""

    device: torch.device

    def uniform(self, *sizes):
        return BatchRandom(self.seed, self.step, self.index.cpu()).uniform(*sizes).to(self.device)


def captions_batch():
    """Three images with two captions each, of one to nine words."""
    torch.manual_seed(0)
    captions = [
        [torch.randint(4, WORDS, (1 + 2 * (b + n),)).tolist() for n in range(2)] for b in range(3)
    ]
    return collate(range(3), torch.randn(3, GRID[0] * GRID[1], D), captions)


def losses(system, device, steps=3):
    """The first losses of a training in nats per word."""
    torch.manual_seed(1)
    model = captioner(system, WORDS, D, GRID, **SIZES[system], dropout=0.0).to(device).train()
    penalised = CrossEntropy(doubly_stochastic=1.0 if system == "sat_soft" else 0.0)
    objective = (Reinforce() if system == "sat_hard" else penalised).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4, fused=True)
    of_batch, found = captions_batch().to(device), []
    for step in range(steps):
        context = ContextSet(of_batch.inputs, GRID)
        loss = objective(model, context, of_batch, DrawnOnCPU(1, step, of_batch.index, device))
        (loss.total / loss.words).backward()
        found.append(loss.total.detach().double().cpu() / loss.words)
        objective.on_optimizer_step(torch.clone)
        optimizer.step()
        optimizer.zero_grad()
    return torch.stack(found)


@pytest.mark.parametrize("system", SIZES)
def test_the_first_losses(system, device):
    expected = losses(system, CPU)
    assert len(expected.unique()) == 3
    assert_close(losses(system, device), expected, rtol=1e-4, atol=0)


def test_draws_that_belong_to_images_are_the_same_numbers(device):
    index = torch.tensor([0, 1, 113286])
    found = BatchRandom(1, 70_000, index.to(device)).uniform(5, 3, 15)
    assert found.device.type == device.type
    assert_close(found.cpu(), BatchRandom(1, 70_000, index).uniform(5, 3, 15), rtol=0, atol=0)


def test_captions_of_the_bundled_captioner(device):
    assert len(PHOTOGRAPHS) == 12
    paths = PHOTOGRAPHS if device.type == "cuda" else PHOTOGRAPHS[:2]
    expected = captioning.load(device="cpu").caption(paths)
    found = captioning.load(device=device.type).caption(paths)
    assert [each.caption for each in found] == [each.caption for each in expected]
    assert [each.score for each in found] == pytest.approx(
        [each.score for each in expected], abs=1e-4
    )
    for one, other in zip(found, expected, strict=True):
        assert_close(one.attention, other.attention, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("system", SIZES)
@pytest.mark.parametrize("width", [1, 3, 5])
def test_beam_search(system, width, device):
    model = build(system)
    vectors = normal(8, L, captioners.D, seed=2)
    search = partial(beam_search, width=width, max_length=9)
    expected = search(model, ContextSet(vectors, captioners.GRID))
    found = search(model.to(device), ContextSet(vectors.to(device), captioners.GRID))
    assert len({caption.score for caption in expected}) == len(vectors)
    assert [caption.tokens for caption in found] == [caption.tokens for caption in expected]
    assert [caption.score for caption in found] == pytest.approx(
        [caption.score for caption in expected], rel=1e-9
    )


@pytest.mark.parametrize("tf32, tolerance", [(False, HALF), (True, 16 * HALF)])
def test_features(tf32, tolerance, device, tmp_path):
    """Built on either device they are the same within half precision, and either takes the other's
    cache.
    """
    torch.backends.cudnn.allow_tf32 = tf32
    backbone, paths = (
        TorchvisionBackbone("squeezenet1_1", "features.12", None, size=240),
        PHOTOGRAPHS[:5],
    )
    cache = FeatureStore(tmp_path / "cpu").computed(backbone, paths, "test")
    expected = cache.rows(range(5)).float()
    other = deepcopy(backbone).to(device)
    cache = FeatureStore(tmp_path / "other").computed(other, paths, "test")
    found = cache.rows(range(5)).float()
    size = expected.square().mean().sqrt().item()
    assert_close(found, expected, rtol=tolerance, atol=tolerance * size)
    before = (cache.folder / "features.npy").stat().st_mtime_ns
    again = FeatureStore(tmp_path / "other").computed(backbone, paths, "test")
    assert (again.folder, (again.folder / "features.npy").stat().st_mtime_ns) == (
        cache.folder,
        before,
    )


@pytest.mark.parametrize("system", ["spatial_transformer", "sat_soft"])
def test_a_compiled_step(system, device):
    """As `callbacks=compiled` compiles it; a CPU's compiler, which takes minutes, is left out
    there.
    """

    def step(compiled):
        model = (transformer() if system == "spatial_transformer" else show_attend_tell()).to(
            device
        )
        if compiled:
            model.compile(dynamic=True, backend="inductor" if device.type == "cuda" else "eager")
        of_batch = batch(0, 4).to(device)
        context = ContextSet(of_batch.inputs, (3, 3))
        random = BatchRandom(1, 0, of_batch.index)
        loss = CrossEntropy()(model, context, of_batch, random)
        loss.total.backward()
        return loss.total.detach(), torch.cat([p.grad.flatten() for p in model.parameters()])

    for found, expected in zip(step(compiled=True), step(compiled=False), strict=True):
        assert_close(found, expected, rtol=1e-4, atol=1e-5)


def work(rank, file, port, processes, device, backend):
    """One of the processes of a training, each a node of its own with the same one device."""
    take_place(port, 0, rank)
    found = train(processes, device, strategy=DDPStrategy(process_group_backend=backend))
    torch.save(found, file.with_suffix(f".{rank}"))


def train(processes, device, **settings):
    """Weights and likelihood after two epochs of three batches of four images, divided among the
    processes.
    """
    splits = {"train": examples(11), "val": examples(5), "test": examples(5)}
    objective = CrossEntropy(doubly_stochastic=1.0)
    found = module(show_attend_tell(), objective, splits)
    accelerator = "gpu" if device == "cuda" else "cpu"
    run = trainer(accelerator=accelerator, devices=1, num_nodes=processes, max_epochs=2, **settings)
    run.fit(found, data(splits, batch_size=4 // processes, eval_batch_size=2))
    return {
        "weights": flat(found.model).cpu(),
        "val/nll": run.callback_metrics["val/nll"].double().cpu(),
    }


@pytest.mark.parametrize("processes", [1, 2])
def test_processes_on_one_device_train_as_one(processes, device, tmp_path):
    """One by NCCL, and two by gloo, as NCCL gives each process a GPU of its own."""
    backend = "nccl" if processes == 1 and device.type == "cuda" else "gloo"
    given = (tmp_path / "found", find_free_network_port(), processes, device.type, backend)
    method = (
        "spawn" if device.type == "cuda" else START
    )  # a forked process cannot use a GPU that was used before
    started = torch.multiprocessing.start_processes(
        work, given, processes, join=False, start_method=method
    )
    expected = train(1, "cpu")
    while not started.join():
        pass
    for rank in range(processes):
        found = torch.load(tmp_path / f"found.{rank}", weights_only=True)
        for name, value in expected.items():
            assert_close(found[name], value, rtol=1e-6, atol=1e-8, msg=f"{name} of rank {rank}")


@pytest.mark.gpu
def test_a_training_in_bfloat16_is_killed_and_resumes(tmp_path):
    command = [*RUN, "trainer=gpu", "trainer.precision=bf16-mixed", "trainer.max_epochs=20"]
    command += ["trainer.check_val_every_n_epoch=20", "callbacks.resume.every_n_steps=3"]
    command += ["optimizer.lr=0.003"]
    first = subprocess.Popen(command, cwd=tmp_path, env=PATHS, stdout=subprocess.DEVNULL)
    saved, begin = tmp_path / "runs", time.monotonic()
    while not list(saved.glob("*/checkpoints/last.ckpt")):
        assert first.poll() is None, "it ended before it saved anything"
        assert time.monotonic() - begin < LIMIT
        time.sleep(0.02)
    first.send_signal(signal.SIGKILL)
    assert first.wait() == -signal.SIGKILL
    again = subprocess.run(
        [*command, "resume=true"],
        cwd=tmp_path,
        env=PATHS,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert again.returncode == 0, again.stdout + again.stderr
    assert ", of which " in again.stdout, again.stdout  # steps that are done
    (folder,) = saved.iterdir()
    assert all(line["caption"] for line in captions_of(folder))
    nll = [row["train/nll"] for row in rows_of(folder) if "train/nll" in row]
    assert nll[-1] < nll[0]


def test_jobs_of_a_sweep_that_share_a_device_compute_what_each_computes_alone(device, tmp_path):
    command = [*RUN, f"trainer={'gpu' if device.type == 'cuda' else 'cpu'}"]
    command += ["trainer.precision=32-true", "trainer.max_epochs=2", "trainer.log_every_n_steps=1"]
    sweep = ["-m", "hydra/launcher=processes", "seed=1,2", "runs=shared"]
    for arguments in (sweep, ["seed=1", "runs=alone"], ["seed=2", "runs=alone"]):
        subprocess.run([*command, *arguments], cwd=tmp_path, env=PATHS, check=True, timeout=LIMIT)
    shared, alone = (
        {folder.name: folder for folder in (tmp_path / runs).glob("*-seed*")}
        for runs in ("shared", "alone")
    )
    assert len(shared) == 2
    assert shared.keys() == alone.keys()
    for name, folder in shared.items():
        found, expected = (
            [row["train/nll"] for row in rows_of(run) if "train/nll" in row]
            for run in (folder, alone[name])
        )
        assert len(found) > 1
        assert found == pytest.approx(expected, rel=1e-4)
