"""What makes two runs the same."""

import sys
from pathlib import Path

import pytest
import torch
from test_check import config

from captioning.backbones import Backbone
from captioning.backbones.scratch import SmallCNN
from captioning.data.example import Example, Reference, Splits
from captioning.runs.record import begin, digests, end, recorded_digests, recorded_precision, result


def backbone(seed: int = 0) -> Backbone:
    torch.manual_seed(seed)
    return SmallCNN(dim=8, size=32, grid=4, trainable=True)


def splits(caption: str = "a dog") -> Splits:
    example = Example(1, Path("1.jpg"), (Reference(caption, tuple(caption.split())),))
    return {"train": [example], "val": [], "test": []}


def parts_that_differ(*overrides: str, before: tuple[str, ...] = ()) -> set[str]:
    one, other = (digests(config(*o), splits(), backbone()) for o in (before, overrides))
    return {name for name in one if one[name] != other[name]}


@pytest.mark.parametrize(
    "overrides",
    [
        ["runs=/elsewhere", "cache=/elsewhere"],
        ["resume=true", "data.num_workers=0", "metrics.timeout=9"],
        ["logger=wandb"],
        ["callbacks.progress_bar.refresh_rate=0"],
        ["test=false"],  # a trial is tested later
    ],
)
def test_what_changes_no_result_changes_no_digest(overrides: list[str]) -> None:
    assert parts_that_differ(*overrides) == set()


def test_photographs_may_lie_elsewhere() -> None:
    for data in ("flickr8k", "coco", "coco_official", "csv"):
        moved = f"data={data}", "data.root=/there/d", "backbone.weights=/w.pt"
        assert parts_that_differ(*moved, before=(f"data={data}", "data.root=d")) == set()


@pytest.mark.parametrize("override", ["seed=2", "optimizer.lr=0.1", "decoding.width=5", "data.views=2"])
def test_other_settings_are_another_run(override: str) -> None:
    assert parts_that_differ(override) == {"configuration"}


def test_so_are_other_captions_and_other_weights() -> None:
    one = digests(config(), splits(), backbone())
    other = digests(config(), splits("a cat"), backbone(1))
    assert {name for name in one if one[name] != other[name]} == {"data", "backbone"}


def test_code_is_what_the_process_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not what its files have become since; tests/test_code_digest.py has the rest."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "a_model.py").write_text("import torch\n\n\nclass Model(torch.nn.Linear):\n    pass\n")
    overrides = ("model._target_=a_model.Model",)
    plain = digests(config(), splits(), backbone())
    before = digests(config(*overrides), splits(), backbone())
    (tmp_path / "a_model.py").write_text("import torch\n\n\nclass Model(torch.nn.Identity):\n    pass\n")
    assert digests(config(*overrides), splits(), backbone()) == before
    assert before["code"] != plain["code"]
    del sys.modules["a_model"]


def test_a_folder_remembers(tmp_path: Path) -> None:
    assert recorded_digests(tmp_path) == {}
    assert result(tmp_path) is None
    assert recorded_precision(tmp_path) is None
    begin(tmp_path, {"data": "d"}, "bf16-mixed")
    assert recorded_digests(tmp_path) == {"data": "d"}
    assert result(tmp_path) is None
    end(tmp_path, {"best": 0.0})
    assert recorded_digests(tmp_path) == {"data": "d"}
    assert recorded_precision(tmp_path) == "bf16-mixed"
    assert result(tmp_path) == {"best": 0.0}


def test_a_run_that_was_tested_has_ended_whoever_has_written_it(tmp_path: Path) -> None:
    (tmp_path / "scores.json").write_text("{}")
    assert result(tmp_path) == {"best": None}
