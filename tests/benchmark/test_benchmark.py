"""The instrument runs what is asked for, and counts what it says it counts."""

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from small import SMALL, small
from torch.utils.flop_counter import FlopCounterMode

from captioning.backbones.context import ContextSet
from captioning.benchmark import machine, processes, training
from captioning.benchmark.built import built_model
from captioning.benchmark.material import random_batch
from captioning.benchmark.measurement import Measurement
from captioning.benchmark.parts import PARTS, check
from captioning.benchmark.table import line, table
from captioning.errors import CaptioningError


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measures without the seconds that fresh processes take; `test_the_command` has these."""
    monkeypatch.setattr(processes, "ProcessPoolExecutor", lambda *_, **__: ThreadPoolExecutor(1))
    monkeypatch.setattr(machine, "MATRIX", 7)


def command(folder: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "captioning.benchmark", *SMALL, *overrides], cwd=folder, capture_output=True, text=True
    )


def test_the_command(tmp_path: Path) -> None:
    done = command(tmp_path, "parts=[training]", "output=speed.json")
    assert done.stderr == ""
    assert done.returncode == 0
    content = json.loads((tmp_path / "speed.json").read_text())
    assert {measured["part"] for measured in content["measurements"]} == {"training"}
    assert content["settings"]["repeats"] == 2
    assert content["machine"]["threads"] >= 1
    assert content["ceilings"]["matrix multiply, 32-true, FLOP/s"] > 0
    first = content["measurements"][0]
    assert first["name"] == "32-true, 3 x 2 captions"
    for run in (first["ours"], first["naive"]):
        assert len(run["seconds"]) == 2
        assert run["amount"] == 6
    # what is printed is what is kept: the row while it is made, and the row of the table
    expected = f"{100 * first['share']:.0f}% of "
    rows = [row for row in done.stdout.splitlines() if first["name"] in row]
    assert len(rows) == 2
    assert all(f"{first['ratio']:.2f}x" in row and expected in row for row in rows)
    assert [path.name for path in tmp_path.iterdir()] == ["speed.json"]


def test_an_unknown_part_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    done = command(tmp_path, "parts=[training,speling]")
    assert done.returncode == 1
    assert done.stdout == ""
    message = f"it must be a list of one or more of {', '.join(PARTS)}"
    assert done.stderr.splitlines()[-1] == f"error: parts=['training', 'speling'] is not allowed; {message}"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("parts=training", "parts=training is not allowed; it must be a list of one or more of training, "),
        ("parts=[]", r"parts=\[\] is not allowed"),
        ("output=nowhere/speed.json", "output=nowhere/speed.json cannot be written: its folder does not exist"),
    ],
)
def test_what_cannot_work_is_refused(override: str, message: str) -> None:
    with pytest.raises(CaptioningError, match=message):
        check(small(override))


def rows(measurements: Iterator[Measurement]) -> dict[str, Measurement]:
    found = {measurement.name: measurement for measurement in measurements}
    assert table(list(found.values())).count("\n") == len(found) + 1
    assert all(line(measurement).startswith(measurement.part) for measurement in found.values())
    return found


@pytest.mark.usefixtures("in_this_process")
def test_decoding() -> None:
    found = rows(PARTS["decoding"](small("search.widths=[1,3]")))
    assert list(found) == ["greedy, batch 2", "beam 3, batch 2", "beam 3, batch 2, memory alone"]
    for name in ("greedy, batch 2", "beam 3, batch 2"):
        ours, naive = found[name].ours, found[name].naive
        assert ours is not None
        assert naive is not None
        assert (ours.amount, naive.amount) == (2, 1)
    assert set(found["beam 3, batch 2, memory alone"].raw) == {"peak after 2 batches", "peak after 3 batches"}


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("supported", [True, False])
def test_bfloat16_is_left_out_where_it_takes_forever(supported: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "has_bfloat16", lambda device: supported)
    measured = rows(PARTS["training"](small()))["bf16-mixed, 3 x 2 captions"]
    assert (measured.ours is not None) == supported
    assert measured.note == ("" if supported else "left out: this CPU has no bfloat16 instructions")


def test_counted_arithmetic_by_hand() -> None:
    config: Any = small()
    batch, model = random_batch(config, 3, 2), built_model(config)
    with FlopCounterMode(display=False) as counter:
        hidden = model(ContextSet(batch.inputs, (3, 4)), batch.sources).hidden.flatten(0, 2)[batch.word_index]
        model.readout(hidden)
    b, n, c = batch.sources.shape
    e, hidden_width, positions, vocabulary = 16, 24, 12, 50
    encoder = b * positions * (4 * e * e + 2 * e * hidden_width) + b * 2 * positions * positions * e
    image = b * positions * 2 * e * e
    text = b * n * c * (4 * e * e + 2 * e * e + 2 * e * hidden_width) + b * n * 2 * c * c * e
    inter = b * n * c * 2 * positions * e
    readout = len(batch.word_index) * e * vocabulary
    assert counter.get_total_flops() == 2 * (2 * encoder + 4 * (image + text + inter) + readout)
