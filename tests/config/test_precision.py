"""`trainer.precision=auto` on both kinds of machine, whichever this one is, and from one to the other."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from support import QUIET, composed, miniature

from captioning import run
from captioning.config import precision

pytestmark = QUIET

FITTING = {True: "bf16-mixed", False: "32-true"}
"""By whether the device has bfloat16."""


def has_bfloat16(answer: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "has_bfloat16", lambda device: answer)


@pytest.mark.parametrize("answer", FITTING)
@pytest.mark.parametrize("accelerator", ["auto", "cpu"])
def test_auto_is_what_the_device_is_made_for(accelerator: str, answer: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(precision, "has_bfloat16", lambda device: asked.append(device.type) or answer)
    config = composed("trainer.precision=auto", f"trainer.accelerator={accelerator}")
    assert precision.precision_of(config.trainer) == FITTING[answer]
    assert asked == ["cuda" if accelerator == "auto" and torch.cuda.is_available() else "cpu"]
    for chosen in ("32-true", "bf16-mixed"):
        assert precision.precision_of(composed(f"trainer.precision={chosen}").trainer) == chosen


def go_on(*overrides: str) -> dict[str, Any]:
    """A run, or the same run again; what its `run.json` holds."""
    config = miniature(composed("trainer.precision=auto", "metrics.test=[BLEU]", "callbacks.attention=null"))
    for override in overrides:
        key, _, value = override.partition("=")
        config[key] = value == "true"
    run.main.__wrapped__(config)
    (folder,) = Path("runs").iterdir()
    return dict(json.loads((folder / "run.json").read_text()))


@pytest.mark.parametrize("began", FITTING)
def test_a_run_keeps_the_precision_that_it_began_with(
    began: bool, elsewhere: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Interrupted, then trained and not yet tested, then finished, and each time gone on with on the other kind."""
    has_bfloat16(began, monkeypatch)
    first = go_on("test=false")
    assert first["precision"] == FITTING[began]
    (folder,) = Path("runs").iterdir()
    (folder / "run.json").write_text(json.dumps({key: first[key] for key in first if key != "result"}))
    has_bfloat16(not began, monkeypatch)
    assert go_on("test=false", "resume=true") == first
    assert go_on("test=true", "resume=true") == first
    assert json.loads((folder / "scores.json").read_text())["provenance"]["precision"] == FITTING[began]
    caplog.clear()
    assert go_on("test=true", "resume=true") == first
    assert "precision" not in caplog.text  # it is finished


@pytest.mark.parametrize(
    ("answer", "chosen", "level"),
    [
        (True, "auto", logging.INFO),
        (False, "auto", logging.INFO),
        (True, "bf16-mixed", None),
        (False, "bf16-mixed", logging.WARNING),
        (False, "32-true", None),
    ],
)
def test_one_line_says_what_it_is(
    answer: bool, chosen: str, level: int | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    has_bfloat16(answer, monkeypatch)
    caplog.set_level(logging.INFO)
    trainer = composed("trainer=cpu", f"trainer.precision={chosen}").trainer
    precision.tell_precision(trainer, precision.precision_of(trainer))
    assert [record.levelno for record in caplog.records] == ([] if level is None else [level])
    assert all(precision.precision_of(trainer) in line for line in caplog.messages)
