"""`make gpu` in miniature: its real stages on a CPU, and a stage that fails."""

import json
import os
import subprocess
import sys
from pathlib import Path
from subprocess import CompletedProcess

ROOT = Path(__file__).parents[2]
LIMIT = 600


def stages(output: Path, *options: str, **environment: str) -> CompletedProcess[str]:
    command = [
        sys.executable,
        ROOT / "experiments" / "gpu" / "stages.py",
        "--output",
        output,
        "--size",
        "small",
    ]
    variables = os.environ | {"OMP_NUM_THREADS": "1"} | environment
    return subprocess.run(
        [*command, *options], env=variables, capture_output=True, text=True, timeout=LIMIT
    )


def test_every_stage_measures(tmp_path: Path) -> None:
    ended = stages(tmp_path, "--device", "cpu")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = json.loads((tmp_path / "results.json").read_text())
    assert {"device", "cores", "torch", "lightning", "from wheels"} <= found["machine"].keys()
    assert {name: stage["status"] for name, stage in found["stages"].items()} == {
        "right": "done",
        "fast": "done",
        "size": "done",
    }
    right, fast, size = (found["stages"][name]["rows"] for name in ("right", "fast", "size"))
    assert sorted(row["test"] for row in right) == [
        f"test_the_first_losses[cpu-{system}]"
        for system in ("sat_hard", "sat_soft", "spatial_transformer")
    ]
    assert {(row["what"], row["precision"]) for row in fast} == {
        ("training", "bf16-mixed"),
        ("training", "tf32"),
        ("greedy", "bf16-mixed"),
        ("beam 3", "bf16-mixed"),
        ("compiled", "bf16-mixed"),
    }
    for row in fast:
        unit, amount = ("captions", 5) if row["what"] in ("training", "compiled") else ("images", 1)
        assert row[f"{unit}/s"] == row["images"] * amount / row["seconds"]
        assert 0 < row["share of the peak"] < 1
        assert (row["times naive"] is None) == (row["what"] == "compiled")
    files, *epochs, features = size
    assert [row["what"] for row in size] == ["files", "epoch", "epoch", "features"]
    assert (files["images"], features["images"]) == (60, 24)
    for row in epochs:
        assert (row["steps"], row["extrapolated"], row["images decoded"]) == (3, False, 8)
        assert 0 < row["waiting for data"] < 1
        assert (
            min(row["seconds of an epoch"], row["seconds of decoding"], row["seconds of scoring"])
            > 0
        )
    page = (tmp_path / "results.md").read_text()
    for row in (*fast, *epochs):
        assert f"| {row['system']} |" in page
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("fast.log", "results.json", "results.md", "right.log", "size.log")
    ]


def test_a_stage_without_a_number_makes_it_fail_and_the_next_is_measured(tmp_path: Path) -> None:
    """On a machine without a GPU every measurement on one is an error."""
    ended = stages(tmp_path, "--device", "cuda", "--stages", "fast,right", CUDA_VISIBLE_DEVICES="")
    assert ended.returncode == 1
    found = json.loads((tmp_path / "results.json").read_text())["stages"]
    assert list(found) == ["fast", "right"]
    assert all(stage["status"].startswith("failed") for stage in found.values())
    assert found["fast"]["rows"]
    assert all("error" in row for stage in found.values() for row in stage["rows"])
