"""The command of the record measures what is asked for."""

import json
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from omegaconf import DictConfig

from experiments.throughput import measure, parts
from experiments.throughput.material import composed
from experiments.throughput.parts import PARTS

ROOT = Path(__file__).parents[2]
SMALL = [
    *("device=cpu", "repeats=2", "model.d_model=16", "model.heads=2", "model.d_ff=24"),
    *("batch.images=3", "batch.captions=2", "context.grid=[3,4]", "context.features=16"),
    *("vocab_size=50", "search.widths=[3]", "search.batches=[2]"),
]


def small(*overrides: str) -> DictConfig:
    return composed(*SMALL, *overrides)


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measures without the seconds that fresh processes take."""
    monkeypatch.setattr(measure, "ProcessPoolExecutor", lambda *_, **__: ThreadPoolExecutor(1))
    monkeypatch.setattr(measure, "MATRIX", 7)


def test_the_command(tmp_path: Path) -> None:
    """It is typed in a clone; a folder may have any name."""
    output = tmp_path / "a=b c" / "speed.json"
    settings = [*SMALL, "parts=[training]", "precisions=[32-true]", f"output={output}"]
    run = partial(subprocess.run, cwd=ROOT, capture_output=True, text=True, check=False)
    command = [sys.executable, "-m", "experiments.throughput.benchmark", *settings]
    refused = run(command)
    assert refused.returncode == 1
    assert refused.stderr.startswith("error: output=")
    output.parent.mkdir()
    printed = run(command)
    assert (printed.returncode, printed.stderr) == (0, "")
    content = json.loads(output.read_text())
    assert (content["settings"]["repeats"], content["machine"]["threads"] >= 1) == (2, True)
    (row,) = content["measurements"]
    assert row["name"] == "training, 32-true, 3 x 2 captions"
    assert [len(row[run]["seconds"]) for run in ("ours", "naive")] == [2, 2]
    assert row["ours"]["amount"] == row["naive"]["amount"] == 6
    assert row["share"] == row["flop"] / statistics.median(row["ours"]["seconds"]) / row["peak"]
    # what is printed is what is kept: the row while it is made, and the row of the table
    lines = [line for line in printed.stdout.splitlines() if row["name"] in line]
    assert len(lines) == 2
    assert all(f"{row['ratio']:.2f}x" in line for line in lines)


@pytest.mark.usefixtures("in_this_process")
def test_decoding() -> None:
    greedy, beam = PARTS["decoding"](small("search.widths=[1,3]"))
    assert [row.name for row in (greedy, beam)] == [
        "decoding, greedy, 2 images",
        "decoding, beam 3, 2 images",
    ]
    for row in (greedy, beam):
        assert row.naive is not None
        assert (row.ours.amount, row.naive.amount) == (2, 1)
    assert beam.flop > greedy.flop


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("supported", [True, False])
def test_bfloat16_is_left_out_where_it_takes_forever(
    supported: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "has_bfloat16", lambda device: supported)
    # one that samples captions
    names = [row.name for row in PARTS["training"](small("objective=self_critical"))]
    assert ("training, bf16-mixed, 3 x 2 captions" in names) == supported
