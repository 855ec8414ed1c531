"""The command of the record measures what is asked for."""

import statistics
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from json_files import read_json

from experiments.throughput.material import composed
from experiments.throughput.measure import count_flop
from experiments.throughput.parts import decoding_variants

ROOT = Path(__file__).parents[2]
SMALL = [
    *("device=cpu", "repeats=2", "model.d_model=16", "model.heads=2", "model.d_ff=24"),
    *("batch.images=3", "batch.captions=2", "context.grid=[3,4]", "context.features=16"),
    *("vocab_size=50", "search.widths=[3]", "search.batches=[2]"),
]


@pytest.mark.soak
def test_the_command(tmp_path):
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
    content = read_json(output)
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


def test_decoding():
    greedy, beam = (decoding_variants(composed(*SMALL), width, 2) for width in (1, 3))
    assert greedy.amounts == beam.amounts == (2, 1)  # images of ours, and of the naive variant
    assert count_flop(beam.ours) > count_flop(greedy.ours) > 0
    assert beam.naive is not None
    assert count_flop(beam.naive) > count_flop(beam.ours) / 2
