"""`make gpu` in miniature: its real stages on a CPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from json_files import read_json, write_json
from processes import ENVIRONMENT, python

STAGES = Path(__file__).parents[2] / "experiments" / "gpu" / "stages.py"
LIMIT = 600
PARTS = ("seconds of an epoch", "seconds of decoding", "seconds of scoring")
pytestmark = pytest.mark.soak  # of a tool that is used by hand


def measured(output, stages, **variables):
    command = [sys.executable, STAGES, "--output", output, "--size", "small", "--device", "cpu"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | variables
    subprocess.run([*command, "--stages", stages], env=environment, timeout=LIMIT, check=True)
    found = read_json(output / "results.json")
    assert {"device", "cores", "torch", "lightning", "from wheels"} <= found["machine"].keys()
    return found["stages"]


def test_steps_and_decoding_are_measured(tmp_path):
    found = measured(tmp_path, "fast")
    assert {(row["what"], row["precision"]) for row in found["fast"]["rows"]} == {
        ("training", "bf16-mixed"),
        ("training", "tf32"),
        ("greedy", "bf16-mixed"),
        ("beam 3", "bf16-mixed"),
        ("compiled", "bf16-mixed"),
    }
    page = (tmp_path / "results.md").read_text()
    for row in found["fast"]["rows"]:
        unit, amount = ("captions", 5) if row["what"] in ("training", "compiled") else ("images", 1)
        assert row[f"{unit}/s"] == row["images"] * amount / row["seconds"]
        assert 0 < row["share of the peak"] < 1
        assert (row["times naive"] is None) == (row["what"] == "compiled")
        assert f"| {row['system']} |" in page
    files = {path.name for path in tmp_path.iterdir()}
    assert files == {"fast.log", "results.json", "results.md"}


def by_sum(epochs):
    """Seconds of nine runs of 30 epochs."""
    return pytest.approx(90 * sum(row[part] for row in epochs for part in PARTS))


def test_tests_and_table_1_are_measured_from_call_to_call(tmp_path):
    found = measured(tmp_path, "right,size")
    assert [row["test"] for row in found["right"]["rows"]] == [
        f"test_the_first_losses[cpu-{system}]"
        for system in ("spatial_transformer", "sat_soft", "sat_hard")
    ]
    files, *epochs, table, features = found["size"]["rows"]
    assert (files["images"], features["images"]) == (60, 24)
    assert [row["what"] for row in epochs] == ["epoch", "epoch"]
    for row in epochs:
        assert (row["steps"], row["extrapolated"], row["images decoded"]) == (3, False, 8)
        assert 0 < row["waiting for data"] < 1
        assert all(row[part] > 0 for part in PARTS)
    assert (table["what"], table["whole epochs"]) == ("Table 1", True)
    assert table["seconds"] == by_sum(epochs)

    results = read_json(tmp_path / "results.json")
    results["stages"]["size"]["rows"][2]["extrapolated"] = True
    write_json(tmp_path / "results.json", results)
    _, *again, table, _ = measured(tmp_path, "size")["size"]["rows"]
    assert again[0] == epochs[0]
    assert (again[1]["system"], again[1]["extrapolated"]) == (epochs[1]["system"], False)
    assert table["seconds"] == by_sum(again)


def test_candidates_change_no_loss_and_no_tokens(tmp_path):
    """Those that a CPU can try: one has no graphs."""
    rows = measured(tmp_path, "candidates", TRITON_INTERPRET="1")["candidates"]["rows"]
    assert {row["system"] for row in rows} == {"spatial_transformer", "sat_soft"}
    for row in rows:
        if "same tokens" in row:
            assert row["same tokens"]
        else:
            assert row["loss then"] == pytest.approx(row["loss now"], abs=0.01)


SCORES = """
import torch
from torch.testing import assert_close
from kernels import FusedScores

torch.manual_seed(0)
keys, query, weight = torch.randn(2, 19, 70), torch.randn(2, 3, 70), torch.randn(70)
inputs = [x.requires_grad_() for x in (keys, query, weight)]
ours = FusedScores.apply(keys, None, query, weight, None, None)
theirs = (keys[:, None] + query[:, :, None]).tanh() @ weight
upstream = torch.randn(ours.shape)
ours, theirs = ([x, *torch.autograd.grad(x, inputs, upstream)] for x in (ours, theirs))
assert_close(ours, theirs, atol=2e-5, rtol=0)
"""


def test_the_kernel_and_its_gradients_are_the_equation():
    pytest.importorskip("triton")
    environment = ENVIRONMENT | {"TRITON_INTERPRET": "1"}  # which Triton reads when it is imported
    done = python("-c", SCORES, cwd=STAGES.parent, env=environment)
    assert done.returncode == 0, done.stderr
