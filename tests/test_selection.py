"""The width of the beam, chosen on validation after training."""

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from forked import forked, run
from test_check import config
from test_run import SHAPES, folder_of
from trained_runs import LONGER

import captioning
from captioning.config.check import check
from captioning.errors import CaptioningError
from captioning.runs.checkpoint import load

WIDTHS = (1, 6)


def evaluated(home: Path, checkpoint: Path, *arguments: str) -> tuple[dict[str, float], list[str]]:
    """Scores and captions by the other command."""
    ended = forked("evaluate", home, f"checkpoint={checkpoint}", *arguments)
    assert ended.returncode == 0, ended.stderr
    folder = folder_of(home, ended)
    lines = (folder / "captions.jsonl").read_text().splitlines()
    return json.loads((folder / "scores.json").read_text())["scores"], [json.loads(line)["caption"] for line in lines]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


COMMAND = [*SHAPES, *LONGER, "data.reader.train=64", "data.reader.val=20", "optimizer.lr=0.003"]
SELECT = f"decoding.select=[{','.join(map(str, WIDTHS))}]"


@pytest.fixture(scope="module")
def selected(home: Path) -> tuple[Path, str]:
    """The folder of a run that is tested at once, and its output."""
    ended = run(home, *COMMAND, SELECT)
    return folder_of(home, ended), ended.stdout


def test_the_best_width_on_validation_is_tested(home: Path, selected: tuple[Path, str]) -> None:
    folder, printed = selected
    checkpoint = folder / "checkpoints" / "best.ckpt"
    best, result = chosen(home, folder)
    assert result["best"] == result["widths"][str(best)]
    assert f"beam width {best}" in printed

    # that width is tested, and is the checkpoint's from then on
    record = json.loads((folder / "scores.json").read_text())
    assert record["provenance"]["decoding"]["width"] == best
    scores, captions = evaluated(home, checkpoint, "metrics=[CIDEr]")
    assert captions == [json.loads(line)["caption"] for line in (folder / "captions.jsonl").read_text().splitlines()]
    assert scores["CIDEr"] == pytest.approx(record["scores"]["CIDEr"], abs=1e-3)
    assert captioning.load(checkpoint, decoding={"n_best": 2, "width": 2}).config["decoding"]["n_best"] == 2

    # it has kept the scores of that beam's validation captions, which are those that can be made anew
    kept = load(checkpoint).quantiles
    evaluated(home, Path(shutil.copy(checkpoint, home / "anew.ckpt")), "metrics=[CIDEr]", "split=val", "calibrate=true")
    assert load(home / "anew.ckpt").quantiles == pytest.approx(kept, abs=1e-3)
    assert kept[0] < kept[-1] < 0


def test_training_is_as_without_the_choice(home: Path, selected: tuple[Path, str]) -> None:
    """And the loggers have no values of it."""
    folders = selected[0], folder_of(home, run(home, *COMMAND))
    weights = [torch.load(each / "checkpoints" / "best.ckpt")["state_dict"] for each in folders]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    rows = [(each / "metrics.csv").read_text().splitlines() for each in folders]
    assert len(rows[0]) == len(rows[1])


def test_a_trial_is_tested_later_without_training(home: Path, selected: tuple[Path, str]) -> None:
    """And then has what a run leaves that was tested at once."""
    at_once, _ = selected
    run(home, *COMMAND, SELECT, "runs=trials", "test=false")
    trial = home / "trials" / at_once.name
    before = (trial / "run.json").read_bytes(), trained(trial)
    assert not (trial / "captions.jsonl").exists()

    ended = run(home, *COMMAND, SELECT, "runs=trials", "resume=true")
    assert folder_of(home, ended) == trial
    assert "finished" not in ended.stdout
    assert (trial / "captions.jsonl").read_text() == (at_once / "captions.jsonl").read_text()
    scores = [json.loads((each / "scores.json").read_text()) for each in (trial, at_once)]
    assert scores[0]["scores"] == scores[1]["scores"]
    assert scores[0]["provenance"]["decoding"] == scores[1]["provenance"]["decoding"]
    assert ((trial / "run.json").read_bytes(), trained(trial)) == before, "it was trained again"
    assert "this run is finished" in run(home, *COMMAND, SELECT, "runs=trials", "resume=true").stdout


def trained(folder: Path) -> list[tuple[str, ...]]:
    """What training has logged, and when."""
    with (folder / "metrics.csv").open() as file:
        return [(row["step"], row["seconds"], row["train/nll"]) for row in csv.DictReader(file) if row["train/nll"]]


def test_of_averaged_weights_the_best_is_asked(home: Path) -> None:
    """And not those from which training would go on, which are there too."""
    chosen(home, folder_of(home, run(home, *COMMAND, SELECT, "callbacks=averaged")))


def chosen(home: Path, folder: Path) -> tuple[int, dict[str, Any]]:
    """The best width, as the other command finds it, and what the run says, which must be the same."""
    expected = {}
    for width in WIDTHS:
        arguments = ["split=val", f"decoding.width={width}", "metrics=[CIDEr]"]
        expected[width] = evaluated(home, folder / "checkpoints" / "best.ckpt", *arguments)[0]["CIDEr"]
    assert len(set(expected.values())) > 1, "the widths must differ, or nothing is chosen"
    result = json.loads((folder / "run.json").read_text())["result"]
    assert result["widths"] == {str(width): pytest.approx(score, abs=1e-3) for width, score in expected.items()}
    return max(expected, key=lambda width: expected[width]), result


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (["decoding.select=3"], "decoding.select"),
        (["decoding.select=[]"], "decoding.select"),
        (["decoding.select=[1,1]"], "decoding.select"),
        (["decoding.select=[0,1]"], "decoding.(select|width)"),
        (["decoding.select=[wide]"], "decoding.(select|width)"),
        (["decoding=greedy", "+decoding.select=[1,3]"], "decoding.width"),
        (["decoding.select=[1,3]", "test=false", "trainer.limit_val_batches=0"], "decoding.select=null"),
    ],
)
def test_choices_that_cannot_be(overrides: list[str], key: str) -> None:
    with pytest.raises(CaptioningError, match=key):
        check(config(*overrides))
