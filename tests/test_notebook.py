"""Training, scoring and reporting called from Python, in the process of the tests."""

import csv
import json
import logging
import os
import re
import signal
import statistics
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import ClassVar

import pytest
from hydra.core.hydra_config import HydraConfig
from lightning import Callback
from support import rows_of
from test_resume import COMMAND, same

import captioning
from captioning.config.registry import CONF
from captioning.errors import CaptioningError

PAGE = CONF / "notebook.md"
SETTINGS = [*COMMAND, "model.d_model=8", "model.heads=2", "model.d_ff=8"]
WATCHED = [*SETTINGS, "+callbacks.inner._target_=test_notebook.CallsAgain"]


class CallsAgain(Callback):
    """Calls a second training in the middle of one, in this thread and in another one."""

    refused: ClassVar[list[str]] = []

    def on_train_start(self, *_):
        self._call()
        thread = threading.Thread(target=self._call)
        thread.start()
        thread.join()

    def _call(self):
        with pytest.raises(CaptioningError, match="another call is at work"):
            captioning.train("model=sat_soft")
        self.refused.append(threading.current_thread().name)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("notebook")
    before = Path.cwd()
    os.chdir(home)
    yield home
    os.chdir(before)


@pytest.fixture(scope="module")
def both(home):
    """Two seeds of a system, trained in this process; a second training at once is refused."""
    state = _state_of_process()
    runs = captioning.train(*WATCHED, seed=[1, 2])
    assert _state_of_process() == state
    return runs


def _state_of_process():
    logger = logging.getLogger("captioning")
    return (
        *(signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)),
        HydraConfig.instance().cfg,
        *(logger.level, logger.propagate, tuple(logger.handlers)),
        tuple(warnings.filters),
    )


def test_a_second_training_at_once_is_refused(both):
    assert len(CallsAgain.refused) == 2 * len(both)
    assert len(set(CallsAgain.refused)) > 1  # of this thread and of others


def test_a_run_tells_what_its_folder_has(both):
    run = both[1]
    stored = json.loads((run.folder / "scores.json").read_text())["scores"]
    assert run.scores == {name: value for name, value in stored.items() if value is not None}
    assert run.history == rows_of(run.folder)
    assert run.best == json.loads((run.folder / "run.json").read_text())["result"]["best"]
    lines = (run.folder / "captions.jsonl").read_text().splitlines()
    assert [line.caption for line in run.captions] == [json.loads(one)["caption"] for one in lines]
    photographs = sorted((run.folder.parent.parent / "cache").glob("**/test/*.png"))
    captions = [said.caption for said in run.captioner("cpu").caption(photographs)]
    assert sorted(captions) == sorted(line.caption for line in run.captions)


def test_seeds_are_a_row_of_a_table(both):
    (row,) = both.table
    values = [run.scores["BLEU-1"] for run in both]
    assert row["runs"] == 2
    assert row["BLEU-1"] == pytest.approx(statistics.fmean(values))
    assert row["BLEU-1 deviation"] == pytest.approx(statistics.stdev(values))
    shown = both._repr_html_()
    assert f"{statistics.fmean(values):.1f}" in shown
    assert shown.count("<img") == len(both[0].captions)


def test_the_same_call_again_returns_the_finished_run(both, capsys):
    again = captioning.train(*WATCHED, seed=2)
    assert again.folder == both[1].folder
    assert "training:" not in capsys.readouterr().out


def test_systems_join_in_one_table(both):
    other = captioning.train(*SETTINGS, "model.decoder_layers=1", seed=[1])
    assert [row["runs"] for row in (both + other).table] in ([2, 1], [1, 2])


def test_an_interrupted_call_goes_on_to_the_same_end(both, monkeypatch):
    for name, value in {"KILL": "train:18", "KILL_WITH": "SIGINT"}.items():
        monkeypatch.setenv(name, value)
    before = _state_of_process()
    with pytest.raises(KeyboardInterrupt, match="goes on"):
        captioning.train(*SETTINGS, "runs=interrupted", seed=1)
    assert _state_of_process() == before
    monkeypatch.delenv("KILL")
    whole = captioning.train(*SETTINGS, "runs=whole", seed=1)
    ended = captioning.train(*SETTINGS, "runs=interrupted", seed=1)
    same(ended.folder, whole.folder)


def test_scores_and_reports(both):
    folder = both[0].folder
    scored = captioning.score(f"captions={folder}/captions.jsonl", "metrics=[BLEU]")
    assert scored.scores["BLEU-1"] == pytest.approx(both[0].scores["BLEU-1"])
    report = captioning.write_report(f"runs={folder.parent}", "metrics=[BLEU]", "images=null")
    with (report.folder / "table.csv").open() as file:
        assert float(next(csv.DictReader(file))["BLEU-1"]) > 0
    assert "<iframe srcdoc=" in report._repr_html_()


def test_the_parts_of_the_page_make_a_training_by_hand(home):
    *_, by_hand = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    claims = f"{by_hand}assert trainer.global_step == 160 // 8\nassert len(module.latest) == 2\n"
    subprocess.run([sys.executable, "-c", claims], check=True, cwd=home)


@pytest.mark.parametrize(
    "settings, named",
    [
        (["optimizer.rl=1"], "optimizer.rl"),
        (["model=nobody"], "nobody"),
        (["no setting"], "no setting"),
        (["trainer.devices=2"], "trainer.devices=2"),
        (["hydra.mode=MULTIRUN"], "sweep"),
        (["model=sat_soft,sat_hard"], "sat_soft,sat_hard"),
    ],
)
def test_what_cannot_be_called_is_a_sentence(home, settings, named):
    with pytest.raises(CaptioningError, match=named):
        captioning.train(*SETTINGS, *settings)


def test_functions_are_not_hidden_by_modules_and_pytorch_is_imported_late():
    code = """
import sys
import captioning
from captioning.__main__ import COMMANDS, ROOMS
from importlib import import_module

assert "torch" not in sys.modules
for name in COMMANDS:
    import_module(f"captioning.{ROOMS.get(name, name)}")
for name in captioning.__all__:
    print(type(getattr(captioning, name)).__name__)
"""
    said = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert sorted(said) == ["function"] * 4 + ["str"]
