"""Mistakes on the command line: one clear line each, before anything is computed."""

import io
import json
import re
import signal
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import pytest
import requests
import yaml
from hydra._internal.utils import get_args_parser
from lightning.fabric.utilities.exceptions import MisconfigurationException

from captioning import predict, run
from captioning.config.arguments import split_options
from captioning.config.command import start
from captioning.config.schemas.run import RunDataSettings
from captioning.config.types import Count, PathText, validated
from captioning.export import __main__ as export
from captioning.report.compare.__main__ import main as compare

pytestmark = pytest.mark.usefixtures("elsewhere")

NEEDED = [name for name, field in RunDataSettings.model_fields.items() if field.is_required()]


# what is given, and what the message has
MISTAKES = {
    "model.dropuot=0.3": "there is no setting model.dropuot. Did you mean dropout?",
    "lr=1e-3": "there is no setting lr. Did you mean optimizer.lr?",
    "--model=sat_soft": "there is no option --model",
    # other programs' words for it
    "model=SAT_soft": "Did you mean sat_soft?",
    "model=nic": "Did you mean model=show_tell?",
    "epochs=3": "Did you mean trainer.max_epochs?",
    "optimizer.learning_rate=1": "Did you mean optimizer.lr?",
    "model.hidden_size=3": "Did you mean model.d_model?",
    "data.tokens=bpe": "Did you mean data.vocabulary.subwords=bpe?",
    "logger.wandb.offline=true": "Did you mean logger=wandb?",
    "gpu=1": "Did you mean trainer=gpu?",  # not device=cuda, which other commands have
    "metrics=[BLEU]": "Did you mean metrics.test=[BLEU,CIDEr]?",
    "data=mine": "--config-dir",
    "seed=1,2": "captioning run -m seed=1,2",
    # an experiment's own sweep
    "experiment=table1_shapes model=sat_soft,sat_hard metrics=[BLEU]": "metrics is a group",
    "+model.extra=3": "there is no setting model.extra",
    "+trainer.max_epoch=3": "Did you mean max_epochs?",
    "model=spatial_transfomer": "no model=spatial_transfomer. Did you mean spatial_transformer?",
    "schedule=cosin": "Allowed for schedule: constant, cosine, inverse_sqrt, linear",
    "experiment=x": "no experiment=x",
    "logger=null": "a group of settings cannot be null",
    "model/encoder=null": "model.encoder=null",
    f"seed={5000 * '9'}": "thousands of digits",
    "model.d_model=[1": "d_model=[1: must be a valid integer",
    "model sat_soft": "model is no setting: write KEY=VALUE",
    "~callbacks.nothing": "does not exist",
    "hydra.launcher=x": "hydra/launcher=NAME",
    "-m hydra.sweeper=null seed=1,2": "hydra/sweeper=NAME",
    **{f"~data.{name}": f"data.{name}" for name in NEEDED},
    "~data.reader.root": "data.reader.root: Missing required argument",
    "~trainer.devices": "trainer.devices: must be set",
    "~logger": "logger: must be set",
    "callbacks.checkpoint.filename=[1,2]": "filename=[1, 2]: must be a valid string",
    "model._target_=builtins.dict": "model names builtins.dict, which may not stand there",
    "schedule._target_=builtins.ValueError": "may not stand there",
    "schedule.decay=exp": "cosine",
    "optimizer._target_=torch.optim.Adamm": "cannot be imported",
    "trainer.precision=31": "bf16-mixed",
    "test=maybe": "test=maybe",
    "data.vocabulary=checkpoint": "data.vocabulary=checkpoint",
    "init_from=3": "init_from=3",
    "data.captions_per_image=two": "data.captions_per_image=two",
    "metrics.val=[BLUE,CIDEr]": "metrics.val[0]=BLUE",
    "data=flickr8k": "data.root is not set",
    "data=flickr8k data.root=nowhere": "data.root=nowhere does not exist",
}


@pytest.mark.parametrize("arguments", MISTAKES, ids=lambda text: text[:40])
def test_misspelt_settings_options_and_values(refused, arguments):
    assert MISTAKES[arguments] in refused(run.main, *arguments.split())
    assert not list(Path().iterdir())


def test_a_plugin_that_is_not_installed(refused):
    assert "captioning[optuna]" in refused(
        run.main, "-m", "hydra.sweeper._target_=hydra_plugins.none.None"
    )


def test_the_command_that_makes_graphs_is_named(refused):
    """`captioning export` made them once; only in its place is it meant by `format`."""
    said = refused(export.main, "format=onnx", "checkpoint=pretrained")
    (module,) = re.findall(r"python -m ([\w.]+)", said)
    assert find_spec(module)
    assert "python -m" not in refused(predict.main, "format=onnx")


def _ended_by(failure):
    """A command that fails."""

    def main():
        failure()

    return main


@validated
def _part(width: Count, ending: Literal["sum", "mean"] | int = "sum", path: PathText = "there"):
    raise MisconfigurationException("no GPU")


ERRORS = {
    "a missing file": (lambda: Path("nowhere.json").read_text(), "No such file.*nowhere.json"),
    "a folder": (lambda: Path().read_text(), "directory"),
    "JSON": (lambda: json.loads("{"), "Expecting property name"),
    "YAML": (lambda: yaml.safe_load("[1"), "expected ',' or ']'"),
    "text": (lambda: b"\xff".decode(), "utf-8"),
    "an archive": (lambda: zipfile.ZipFile(io.BytesIO(b"no")), "not a zip file"),
    "the network": (lambda: requests.get("http://127.0.0.1:9/"), "127.0.0.1.*refused"),
    "arguments": (
        lambda: _part(width=0, ending="max", path=""),
        "width=0: must be greater.*ending=max: must be 'sum' or 'mean' or .*integer.*path=: ",
    ),
    "Lightning": (lambda: _part(1), "no GPU"),
}


@pytest.mark.parametrize("kind", ERRORS)
def test_errors_of_libraries_become_a_sentence(refused, kind):
    failure, pattern = ERRORS[kind]

    def noted():
        try:
            failure()
        except Exception as error:
            error.add_note("dataset.json")
            raise

    message = refused(_ended_by(failure))
    assert re.search(pattern, message)
    assert refused(_ended_by(noted)) == f"dataset.json: {message}"


def test_a_traceback_is_one_setting_away(monkeypatch):
    with pytest.raises(ValueError, match="a bug"):  # errors of our own always have it
        start(_ended_by(lambda: exec("raise ValueError('a bug')")))
    monkeypatch.setenv("CAPTIONING_TRACEBACK", "1")
    with pytest.raises(FileNotFoundError):
        start(_ended_by(ERRORS["a missing file"][0]))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_in_a_sentence(capsys, number):
    before = signal.getsignal(number)
    with pytest.raises(SystemExit) as ended:
        start(lambda: signal.raise_signal(number))
    signal.signal(number, before)
    assert ended.value.code == 128 + number
    assert f"stopped by {number.name}. What is finished is kept" in capsys.readouterr().err


def test_every_option_of_hydra_that_needs_a_value_takes_it():
    actions = get_args_parser()._actions
    stored = [each for each in actions if type(each).__name__ == "_StoreAction" and not each.nargs]
    for option in (name for each in stored for name in each.option_strings):
        assert split_options([option, "a=b", "c=d"]) == (["c=d"], [option, "a=b"])


def test_an_output_that_cannot_be_written_is_named(refused, monkeypatch):
    for name in "ab":
        Path(f"{name}.jsonl").write_text('{"image_id": 1, "caption": "a dog", "references": ["a"]}')
    output = Path("/dev/full").open("w")  # noqa: SIM115 - to close it fails too
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", output)
        said = refused(compare, "files=[a.jsonl,b.jsonl]", "metrics=[]")
    assert said == "No space left on device: standard output"
    with pytest.raises(OSError, match="No space"):
        output.close()
