"""What several tests stand on: how many examples a property is tried with, an empty directory for a command, and two
small runs, each trained once."""

import json
import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torchvision
from forked import run
from hypothesis import HealthCheck, settings
from test_run import SHAPES, TINY, folder_of, miniature
from trained_runs import LONGER, CachedRun, Run

from captioning.backbones.torchvision import TorchvisionBackbone
from captioning.config.command import Command, start

PROFILES = {"test": 60, "soak": 1500}
for name, examples in PROFILES.items():
    settings.register_profile(
        name,
        max_examples=examples,
        derandomize=True,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],  # which is the machine's
    )
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "test")
settings.load_profile(PROFILE)


def pytest_itemcollected(item: pytest.Item) -> None:
    """The soak profile is for the trials of `make soak`, which then have the properties among them."""
    if PROFILE == "soak" and getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
        item.add_marker("soak")


@pytest.fixture(scope="session")
def shapes_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A trainable backbone on drawn scenes, trained until it says different things of different images."""
    home = tmp_path_factory.mktemp("shapes")
    folder = folder_of(home, run(home, *SHAPES, *LONGER, "data.reader.train=64", "optimizer.lr=0.003"))
    lines = [json.loads(line) for line in (folder / "captions.jsonl").read_text().splitlines()]
    moved = tmp_path_factory.mktemp("moved")
    shutil.move(folder / "checkpoints" / "best.ckpt", moved)
    photographs = [Path(shutil.move(drawn, moved)) for drawn in sorted((home / "cache").rglob("test/*.png"))]
    assert len(photographs) == len(lines)
    shutil.rmtree(home)
    return Run(moved / "best.ckpt", photographs, [line["caption"] for line in lines])


@pytest.fixture(scope="session")
def cached_run(tmp_path_factory: pytest.TempPathFactory) -> CachedRun:
    """A frozen SqueezeNet with weights from a file; afterwards that file, the cache and the data set are gone."""
    home = tmp_path_factory.mktemp("cached")
    miniature(home / "data")
    with torch.random.fork_rng():
        torch.manual_seed(5)
        network = torchvision.models.squeezenet1_1(weights=None)
    torch.save(network.state_dict(), home / "weights.pt")
    command = ["data=flickr8k", "data.root=data", "backbone=squeezenet1_1", "backbone.size=48"]
    folder = folder_of(home, run(home, *TINY, *LONGER, *command, "backbone.weights=weights.pt", "optimizer.lr=0.01"))
    (line,) = [json.loads(line) for line in (folder / "captions.jsonl").read_text().splitlines()]
    digest = TorchvisionBackbone("squeezenet1_1", "features.12", str(home / "weights.pt"), size=48).digest
    moved = tmp_path_factory.mktemp("moved")
    for path in (folder / "checkpoints" / "best.ckpt", home / "data" / "images" / "5.jpg"):
        shutil.move(path, moved)
    shutil.rmtree(home)
    return CachedRun(moved / "best.ckpt", [moved / "5.jpg"], [line["caption"]], digest)


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Runs a command that must end with exit code 1 and one sentence alone; gives the sentence."""

    def run(main: Command, *arguments: str, out: str = "") -> str:
        monkeypatch.setattr(sys, "argv", ["command", *arguments])
        with pytest.raises(SystemExit) as ended:
            start(main)
        assert ended.value.code == 1
        printed = capsys.readouterr()
        assert printed.out == out
        assert "Traceback" not in printed.err
        (line,) = [line for line in printed.err.splitlines() if line.startswith("error: ")]
        return line.removeprefix("error: ")

    return run


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty current directory, and logging as it was (Hydra configures it for this test's output)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield tmp_path
    root.handlers[:], root.level = handlers, level
