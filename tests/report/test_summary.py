"""The last thing a run prints, from the files of its folder."""

import json
from pathlib import Path

import pytest

from captioning.metrics import Scorer
from captioning.metrics.attention import STATISTICS
from captioning.metrics.wording import ENDED, NOVEL, WORDING
from captioning.report.summary import print_summary
from captioning.report.units import OTHER, unit
from captioning.training.callbacks.pointing import NAMES as POINTING

SCORES = {
    **{"BLEU-4": 77.25, "CIDEr": 104.5, "pointing": -1e-9, "attention entropy": 3.8918, "attention movement": 0.417},
    **{"length": 9.25, "of my own": 1.0, "x": None},
}
SHOWN = [
    "BLEU-4                             77.2  0-100",
    "CIDEr                             104.5  x 100",
    "pointing                            0.0  %",
    "attention entropy                  3.89  nats",
    "attention movement                 0.42  0-1",
    "length                              9.2  words",
    "of my own                           1.0",
    "x                                     -",
]


def test_table_three_captions_and_paths(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "scores.json").write_text(json.dumps({"scores": SCORES, "provenance": {}}))
    lines = [{"image_id": i, "caption": f"caption {i}", "references": [f"first {i}", f"second {i}"]} for i in range(5)]
    (tmp_path / "captions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    print_summary(tmp_path)
    printed = capsys.readouterr().out
    lines = printed.splitlines()
    assert lines[: len(SHOWN) + 2] == ["", "test score", *SHOWN]
    assert "image 2: caption 2\n    reference: first 2\n    reference: second 2\n" in printed
    assert "caption 3" not in printed
    assert printed.endswith(f"run folder: {tmp_path}\n")

    (tmp_path / "attention").mkdir()
    print_summary(tmp_path)
    assert f"pictures of attention: {tmp_path / 'attention'}" in capsys.readouterr().out


def test_all_that_a_run_scores_has_a_unit() -> None:
    scored = Scorer([["a dog"], ["a cat"]], ["BLEU", "ROUGE-L", "CIDEr"]).score({0: "a dog", 1: "a cat"}).corpus
    every = [*scored, "METEOR", "SPICE", *STATISTICS, *POINTING, *WORDING, NOVEL, ENDED]
    assert [name for name in every if unit(name) is OTHER] == []
    assert {unit(name).name for name in scored if name != "CIDEr"} == {"0-100"}
