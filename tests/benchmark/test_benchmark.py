"""The instrument runs what is asked for."""

import json
import statistics
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from omegaconf import DictConfig
from support import composed

from captioning.benchmark import measure, parts
from captioning.benchmark.__main__ import main
from captioning.benchmark.parts import PARTS
from captioning.errors import CaptioningError

SMALL = [
    *("device=cpu", "repeats=2", "model.d_model=16", "model.heads=2", "model.d_ff=24"),
    *("batch.images=3", "batch.captions=2", "context.grid=[3,4]", "context.features=16"),
    *("vocab_size=50", "search.widths=[3]", "search.batches=[2]"),
]


def small(*overrides: str) -> DictConfig:
    return composed(*SMALL, *overrides, name="benchmark")


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measures without the seconds that fresh processes take."""
    monkeypatch.setattr(measure, "ProcessPoolExecutor", lambda *_, **__: ThreadPoolExecutor(1))
    monkeypatch.setattr(measure, "MATRIX", 7)


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """In a process of its own, as users have it."""
    settings = ["parts=[training]", "precisions=[32-true]", "output=speed.json"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["captioning.benchmark", *SMALL, *settings])
    main()
    printed = capfd.readouterr()
    assert printed.err == ""
    content = json.loads((tmp_path / "speed.json").read_text())
    assert (content["settings"]["repeats"], content["machine"]["threads"] >= 1) == (2, True)
    (row,) = content["measurements"]
    assert row["name"] == "training, 32-true, 3 x 2 captions"
    assert [len(row[run]["seconds"]) for run in ("ours", "naive")] == [2, 2]
    assert row["ours"]["amount"] == row["naive"]["amount"] == 6
    assert row["share"] == row["flop"] / statistics.median(row["ours"]["seconds"]) / row["peak"]
    # what is printed is what is kept: the row while it is made, and the row of the table
    lines = [line for line in printed.out.splitlines() if row["name"] in line]
    assert len(lines) == 2
    assert all(f"{row['ratio']:.2f}x" in line for line in lines)
    assert [path.name for path in tmp_path.iterdir()] == ["speed.json"]


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize(
    "override",
    [
        *("parts=training", "parts=[training,speling]", "parts=[]", "device=foo", "repeats=0"),
        *("search.widths=[]", "search.max_length=90", "precisions=[16-true]"),
        "output=nowhere/speed.json",
    ],
)
def test_what_cannot_work_is_refused(override: str) -> None:
    with pytest.raises(CaptioningError, match=override.partition("=")[0].partition(".")[0]):
        main.__wrapped__(small(override))


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
