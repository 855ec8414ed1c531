"""What commands answer before they import the libraries that take seconds."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from processes import PACKAGE
from support import Run

COMMANDS = ("run", "evaluate", "predict", "report.__main__", "download.__main__", "benchmark.__main__", "push.__main__")
HEAVY = ("torch", "torchvision", "lightning", "torchmetrics", "matplotlib")
SCRIPT = """
import contextlib, importlib, io, json, sys
from captioning.config.command import start

heavy, calls = json.loads(sys.argv[1])
for name, *arguments in calls:
    sys.argv = ["command", *arguments]
    main, said = importlib.import_module(f"captioning.{name}").main, io.TextIOWrapper(io.BytesIO())
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), contextlib.suppress(SystemExit):
        start(main)
    said.seek(0)
    print(json.dumps([said.read(), [module for module in heavy if module in sys.modules]]))
"""


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Gives many command lines to one fresh process: of each what it said, and which libraries were there by then."""
    home = tmp_path_factory.mktemp("answers")

    def run(*calls: tuple[str, ...]) -> list[tuple[str, list[str]]]:
        command = [sys.executable, "-c", SCRIPT, json.dumps([HEAVY, calls])]
        environment = os.environ | {"PYTHONPATH": PACKAGE, "OMP_NUM_THREADS": "1"}
        ended = subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
        return [tuple(json.loads(line)) for line in ended.stdout.splitlines()]

    (home / "ours.json").write_text(json.dumps([{"image_id": i, "caption": "a red circle"} for i in range(2)]))
    lines = [{"image_id": i, "caption": "a circle", "references": ["a red circle", "one circle"]} for i in range(2)]
    (home / "theirs.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return run


def test_help_refusals_and_scores_of_files_take_no_heavy_library(answer: Any) -> None:
    there = ("captions=ours.json", "references=theirs.jsonl")
    calls = {
        **{(name, "--help"): "Settings, KEY=VALUE" for name in COMMANDS},
        ("run", "--cfg", "job"): "model:",
        ("run", "model=nothing"): "there is no model=nothing",
        ("run", "data=flickr8k", "data.root=nowhere"): "data.root=nowhere does not exist",
        ("run", "init_from=nowhere.ckpt"): "init_from=nowhere.ckpt is not there; a run leaves",
        ("run", "model.dropuot=0.3"): "there is no setting model.dropuot",
        ("run", "seed=x"): "seed=x: must be",
        ("run", "trainer.accumulate_grad_batches=0"): "trainer.accumulate_grad_batches=0: must be",
        ("evaluate", "checkpoint=nowhere.ckpt"): "checkpoint=nowhere.ckpt is not there",
        ("evaluate", "decoding.ensemble=[nowhere.ckpt]"): "checkpoint=nowhere.ckpt is not there",
        ("evaluate", "checkpoint=ours.json", "data.root=nowhere"): "data.root=nowhere does not exist",
        ("evaluate", "checkpoint=ours.json", "against=nowhere.json"): "nowhere.json",
        ("predict", "checkpoint=nowhere.ckpt", "images=."): "checkpoint=nowhere.ckpt is not there",
        ("predict", "checkpoint=ours.json", "images=nowhere"): "nowhere",
        ("predict", "nowhere.jpg", "checkpoint=ours.json"): "nowhere.jpg",
        ("push.__main__", "checkpoint=ours.json", "to=hf:name"): "to=hf:name",
        ("report.__main__", "runs=nowhere"): "runs=nowhere",
        ("evaluate", *there, "against=theirs.jsonl", "metrics=[BLEU]"): "BLEU-4",
    }
    for (call, part), (said, imported) in zip(calls.items(), answer(*calls), strict=True):
        assert part in said, (call, said)
        assert imported == [], call


def test_captioning_photographs_takes_pytorch_alone(answer: Any, shapes_run: Run) -> None:
    images = f"images={shapes_run.photographs[0]}"
    ((said, imported),) = answer(("predict", f"checkpoint={shapes_run.checkpoint}", images, "device=cpu"))
    assert json.loads(said)["caption"] == shapes_run.captions[0]
    assert imported == ["torch"]
