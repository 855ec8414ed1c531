"""What every command says of itself."""

import os
import re
import subprocess
import sys

import pytest
import yaml
from processes import PACKAGE
from test_arguments import MAINS

from captioning import run
from captioning.config.help import own_settings
from captioning.config.registry import CONF
from captioning.config.settings import described

PARTS = {"initial": "zero", "score": "mlp", "attention": "soft"}
PARTS |= {"cell": "up_down", "head": "linear", "inject": "mean"}


@pytest.mark.parametrize("name", MAINS)
def test_every_setting_and_choice_is_there_with_its_comment(name, printed):
    main = MAINS[name]
    text = printed(main, "--help")
    assert text.startswith(sys.modules[main.__module__].__doc__.split("\n")[0])
    whole = yaml.safe_load(main.config.read_text())
    descriptions = {key: description for key, _, description in described(main.schema)}
    shown = dict(re.findall(r"^  (\S+?)=.*?(?:  # (.+))?$", text.partition("Settings, ")[2], re.M))
    own = {key for key, _ in own_settings(main.config)}
    assert shown.keys() == own
    assert {key: text for key, text in shown.items() if text} == {
        key: text for key, text in descriptions.items() if text and key in own
    }
    for entry in whole["defaults"]:
        group, default = next(iter(entry.items())) if isinstance(entry, dict) else ("override", "")
        if not group.startswith(("override", "optional")):
            (line,) = [line for line in text.splitlines() if line.startswith(f"  {group} ")]
            names = {path.stem for path in (main.config.parent / group).glob("[!_]*.yaml")}
            assert {name.strip("[]") for name in line.split(maxsplit=1)[1].split(", ")} == names
            assert (f"[{default}]" in line) is (default is not None)
    assert "Hydra" not in text


def test_a_choice_is_explained_by_its_files(printed):
    text = printed(run.main, "--help", "trainer=gpu", "seed=3", "model=nothing")
    assert re.findall("^trainer=.*:$", text, re.M) == ["trainer=gpu:", "trainer=auto:"]
    for name in ("gpu", "auto"):
        for line in (CONF / "trainer" / f"{name}.yaml").read_text().splitlines():
            assert f"  {line}".rstrip() in text.splitlines()
    assert "Settings, " not in text  # that choice alone


def test_a_search_is_explained_by_what_it_declares(printed):
    text = printed(run.main, "--help", "decoding=sample")
    for setting in ("top_p: 1.0", "seed: 0", "required: []"):  # of the filters of all searches
        assert re.search(rf"^ +{re.escape(setting)} +# \w+", text, re.M), setting


def test_a_choice_of_ones_own_is_explained_too(printed, tmp_path):
    """With the base that it has in `conf/`, and parts of both."""
    (tmp_path / "model" / "score").mkdir(parents=True)
    (tmp_path / "model" / "mine.yaml").write_text("defaults: [sat_soft]\nd_hidden: 77  # tried\n")
    (tmp_path / "model" / "score" / "bilinear_of_mine.yaml").write_text("_target_: mine.Score\n")
    text = printed(run.main, "--help", "--config-dir", str(tmp_path), "model=mine")
    assert "d_hidden: 77  # tried" in text
    assert "model=sat_soft:" in text
    assert "bilinear_of_mine" in text
    assert "mlp" in next(line for line in text.splitlines() if "bilinear_of_mine" in line)
    assert ", mine, " in printed(run.main, "--help", f"--config-dir={tmp_path}")


def test_a_system_is_explained_with_its_parts(printed):
    text = printed(run.main, "--help", "model=up_down")
    assert "\n  d_hidden: ${sized:1000,208}\n" in text
    parts = dict(re.findall(r"^  (\w+) +(.+)$", text.rpartition("Parts, ")[2], re.M))
    assert set(parts) == {path.name for path in (CONF / "model").iterdir() if path.is_dir()}
    for group, names in parts.items():
        assert re.findall(r"\[(\w+)\]", names) == ([PARTS[group]] if group in PARTS else [])
    assert "projected_dot" in parts["score"]
    assert "tanh: false" in printed(run.main, "--help", "model/head=xu")


def test_nobody_has_to_read_to_the_end(tmp_path):
    """As with `| head -1`."""
    pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [sys.executable, "-m", "captioning.report", "--help"]
    environment = os.environ | {"PYTHONPATH": PACKAGE}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, **pipe) as ended:
        ended.stdout.close()
        assert ended.stderr.read() == b""
