"""`trainer.precision=auto` on both kinds of machine, whichever this one is, and from one to the
other.
"""

import logging
from functools import partial
from pathlib import Path

import pytest
import torch
from json_files import read_json, write_json
from test_conf import composed, miniature, pytestmark  # noqa: F401 - its warnings come here too

from captioning import machine, run
from captioning.config.schemas.run import RunSettings
from captioning.config.settings import check_settings
from captioning.training import fit

FITTING = {True: "bf16-mixed", False: "32-true"}
"""By whether the device has bfloat16."""


@pytest.fixture
def has_bfloat16(monkeypatch):
    """Sets what every device answers."""

    def answer(given):
        for module in (machine, fit):
            monkeypatch.setattr(module, "has_bfloat16", lambda device: given)

    return answer


@pytest.mark.parametrize("answer", FITTING)
def test_auto_is_what_the_device_is_made_for(answer, has_bfloat16):
    has_bfloat16(answer)
    for chosen in ("auto", "32-true", "bf16-mixed"):
        settings = check_settings(RunSettings, composed(f"trainer.precision={chosen}"))
        found = fit.fitting_precision(settings.trainer)
        assert found == (FITTING[answer] if chosen == "auto" else chosen)
    here = "cuda" if torch.cuda.is_available() else "cpu"
    assert [machine.device_of(name).type for name in ("auto", "cpu")] == [here, "cpu"]


def go_on(*overrides):
    """A run, or the same run again; what its `run.json` holds."""
    quick = ["trainer.precision=auto", "metrics.test=[BLEU]", "callbacks.attention=null"]
    small = miniature(composed(*quick, *overrides))
    small.test = "test=true" in overrides
    run.main.__wrapped__(small)
    (folder,) = Path("runs").iterdir()
    return dict(read_json(folder / "run.json"))


def test_a_run_keeps_the_precision_that_it_began_with(elsewhere, has_bfloat16, caplog):
    """Interrupted, then trained and not yet tested, then finished, and each time gone on with on
    the other kind.
    """
    has_bfloat16(True)
    first = go_on("test=false")
    assert first["precision"] == "bf16-mixed"
    (folder,) = Path("runs").iterdir()
    write_json(folder / "run.json", first | {"result": None})
    has_bfloat16(False)
    assert go_on("test=false", "resume=true") == first
    assert go_on("test=true", "resume=true") == first
    tested = read_json(folder / "scores.json")["provenance"]
    assert tested["precision"] == "bf16-mixed"
    caplog.clear()
    assert go_on("test=true", "resume=true") == first
    assert "precision" not in caplog.text  # it is finished


@pytest.mark.parametrize(
    "answer, chosen, level",
    [
        (True, "auto", logging.INFO),
        (False, "auto", logging.INFO),
        (True, "bf16-mixed", None),
        (False, "bf16-mixed", logging.WARNING),
        (False, "32-true", None),
        (True, "32-true", logging.INFO),
    ],
)
def test_one_line_says_what_it_is(answer, chosen, level, has_bfloat16, caplog):
    has_bfloat16(answer)
    caplog.set_level(logging.INFO)
    used = FITTING[answer] if chosen == "auto" else chosen
    fit.log_precision(composed("trainer=cpu", f"trainer.precision={chosen}").trainer, used)
    assert [record.levelno for record in caplog.records] == ([] if level is None else [level])
    assert all(used in line for line in caplog.messages)


@pytest.mark.parametrize(
    "avx512, bfloat16, tiles, vendor, faster",
    [
        (True, True, True, "GenuineIntel", True),
        (True, True, False, "GenuineIntel", False),  # measured: half of single precision's FLOP/s
        (True, True, False, "AuthenticAMD", True),
        (True, False, False, "GenuineIntel", False),  # emulated
        (False, False, False, "", True),  # another architecture that oneDNN supports
    ],
)
def test_which_cpus_are_faster_in_bfloat16(avx512, bfloat16, tiles, vendor, faster, monkeypatch):
    answers = {"avx512": avx512, "avx512_bf16": bfloat16, "amx_tile": tiles}
    for name, answer in answers.items():
        monkeypatch.setattr(torch.cpu, f"_is_{name}_supported", partial(bool, answer))
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", partial(bool, True))
    monkeypatch.setattr(machine, "cpuinfo", partial(str, f"vendor_id : {vendor}"))
    assert machine.has_bfloat16(torch.device("cpu")) == faster
