"""The callback on data without boxes; its numbers are in test_results.py."""

from dataclasses import replace
from pathlib import Path

import pytest

from captioning.data.example import Example
from captioning.training.callbacks.pointing import Pointing

from ..world import QUIET
from .. import tested

pytestmark = QUIET


def test_data_without_boxes_have_no_pointing_score(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_boxes = tested.photographs

    def without_boxes(folder: Path) -> list[Example]:
        return [replace(e, references=tuple(replace(r, nouns=()) for r in e.references)) for e in with_boxes(folder)]

    monkeypatch.setattr(tested, "photographs", without_boxes)
    run = tested.run_test(tmp_path, [Pointing()])
    assert "test/BLEU-1" in run.callback_metrics
    assert not any("pointing" in name for name in run.callback_metrics)
