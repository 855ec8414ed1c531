"""A run through `torch.compile` is the same run."""

import csv
import shutil
from pathlib import Path

import pytest
from forked import forked, run
from test_run import SHAPES

COMMAND = [*SHAPES, "model.dropout=0", "trainer.limit_train_batches=3", "trainer.log_every_n_steps=1", "test=false"]


def logged(folder: Path, name: str) -> list[float]:
    with (folder / "shapes-spatial_transformer-seed1" / "metrics.csv").open() as file:
        return [float(row[name]) for row in csv.DictReader(file) if row[name]]


@pytest.mark.soak  # a minute of compiling
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_compiled_networks_learn_the_same(tmp_path: Path) -> None:
    inductor = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    for choice in ("default", "compiled"):
        run(tmp_path, *COMMAND, f"callbacks={choice}", f"runs={choice}", **inductor)
    assert any((tmp_path / "inductor").rglob("*.cpp")), "nothing was compiled"
    for name in ("train/nll", "val/nll"):
        plain, compiled = (logged(tmp_path / choice, name) for choice in ("default", "compiled"))
        assert compiled == pytest.approx(plain, abs=1e-5)
    assert len(logged(tmp_path / "compiled", "train/nll")) == 3


def test_without_a_compiler_it_is_said_before_training(tmp_path: Path) -> None:
    ended = forked("run", tmp_path, *COMMAND, "callbacks=compiled", CXX="no-such-compiler")
    assert ended.returncode == 1
    assert "callbacks=compiled needs a C++ compiler, and there is no no-such-compiler" in ended.stderr
    assert "Traceback" not in ended.stderr
