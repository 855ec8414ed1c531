"""The commands of the first page work, and what the pages of models and of data show complete."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import urllib.request
from itertools import chain
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from processes import forked, run
from refusals import refuses
from support import QUIET, SHAPES, composed, folder_of, make_photographs, miniature

import captioning
from captioning.config.settings import settings_given
from captioning.report.runs import find_runs
from captioning.report.systems import group
from captioning.run import main
from experiments.onnx.graphs import search_of

pytestmark = QUIET
PACKAGE = Path(captioning.__file__).parent
ROOT = PACKAGE.parent
FIRST = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```sh\n(.*?)^```", FIRST, re.M | re.S)
README, DATA = ((PACKAGE / name).read_text() for name in ("models/extend.md", "data/README.md"))
EXTEND = (ROOT / "conf" / "extend.md").read_text().partition("\n## A filter\n")[2]


def shown(kind, first):
    """The block of code that begins with the line `first`."""
    blocks = re.findall(rf"^```{kind}\n(.*?)^```", README + DATA + EXTEND, re.M | re.S)
    (block,) = [block for block in blocks if block.startswith(f"{first}\n")]
    return block


def write(home, *names):
    for name in names:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(shown("python" if name.endswith(".py") else "yaml", f"# {name}"))


def test_a_model_of_ones_own_is_trained_tested_and_captions(tmp_path):
    write(home := tmp_path, "show_tell.py", "my_conf/model/my_show_tell.yaml")
    (line,) = [line for line in README.splitlines() if "model=my_show_tell" in line]
    *command, model = shlex.split(line)
    assert command[:2] == ["captioning", "run"]
    small = [setting for setting in SHAPES if not setting.startswith("model.")] + [
        "model.d_hidden=8"
    ]
    ended = run(home, *command[2:], model, *small)
    assert "parameters: model 1," in ended.stdout
    folder = folder_of(home, ended)
    assert folder.name == "shapes-my_show_tell-seed1"
    photograph = next((home / "cache").rglob("test/*.png"))
    given = [
        f"checkpoint={folder / 'checkpoints' / 'best.ckpt'}",
        f"images={photograph}",
        "decoding.n_best=2",
    ]
    given.append("modules=[show_tell]")
    assert '"caption"' in forked("predict", home, *given).stdout

    # a sweep continues where it stopped, and trains an edited model anew
    sweep = ["-m", *command[2:], model, *small]
    assert "this run is finished" in run(home, *sweep).stdout
    trained = (home / "show_tell.py").read_text()
    (home / "show_tell.py").write_text(trained.replace("mean(dim=1)", "amax(dim=1)"))
    again = run(home, *sweep)
    assert f"show_tell.py has changed since {folder.relative_to(home)} began" in again.stdout
    other = folder_of(home, again)
    assert other.name == f"{folder.name}-2"
    assert "amax" in (other / "source" / "show_tell.py").read_text()
    assert "this run is finished" in run(home, *sweep).stdout
    one, two = group(find_runs(home / "runs")[0])
    assert {one.full_label[:27], two.full_label[:27]} == {"my_show_tell (show_tell.py="}
    assert one.full_label != two.full_label

    # a year later the module is elsewhere, and a caller who names it imports what the run has kept
    (elsewhere := tmp_path / "elsewhere").mkdir()
    given[0], given[1] = f"checkpoint={folder}/checkpoints/best.ckpt", f"images={photograph}"
    assert '"caption"' in forked("predict", elsewhere, *given).stdout


def test_a_score_of_ones_own_is_trained(tmp_path, monkeypatch):
    write(tmp_path, "bilinear.py", "my_conf/model/score/bilinear.yaml")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    (line,) = [line for line in README.splitlines() if "model/score=bilinear" in line]
    *_, option, folder, model, score = shlex.split(line)
    assert option == "--config-dir"
    config = miniature(composed(model, score, f"hydra.searchpath=[file://{tmp_path / folder}]"))
    assert main.__wrapped__(config) is not None
    assert "bilinear.Bilinear" in next(tmp_path.rglob("config.yaml")).read_text()
    lines = shown("python", "# bilinear.py").partition("class ")[2].splitlines()
    assert len(lines) <= 15


def test_a_reader_of_ones_own_is_trained(tmp_path, monkeypatch):
    write(tmp_path, "reports.py", "my_conf/data/reports.yaml")
    make_photographs(tmp_path / "data")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    (line,) = [line for line in DATA.splitlines() if "data=reports" in line]
    *_, option, folder, data, root, backbone = shlex.split(line)
    assert (option, root) == ("--config-dir", "data.root=FOLDER")
    config = miniature(
        composed(data, "data.root=data", backbone, f"hydra.searchpath=[file://{tmp_path / folder}]")
    )
    config.metrics.val = []
    assert main.__wrapped__(config) is not None
    saved = OmegaConf.load(next(tmp_path.glob("runs/*/config.yaml")))
    assert (saved.data.reader._target_, saved.data.max_words) == ("reports.Reports", 60)
    assert saved.data.batch_size == 16  # of _base


def test_a_filter_of_ones_own_is_obeyed(tmp_path, monkeypatch):
    write(tmp_path, "once.py", "my_conf/decoding/once.yaml")
    monkeypatch.syspath_prepend(tmp_path)
    (line,) = [line for line in EXTEND.splitlines() if "decoding=once" in line]
    *_, option, folder, search = shlex.split(line)
    assert option == "--config-dir"
    path = f"hydra.searchpath=[file://{tmp_path / folder}]"
    decoding = settings_given(
        OmegaConf.to_container(composed(search, path, name="predict").decoding, resolve=True)
    )
    photographs = sorted((ROOT / "experiments" / "photographs").glob("*.jpg"))[:4]
    usual, own = (captioning.load(device="cpu", decoding=each) for each in ({}, decoding))
    assert max(caption.words.count("a") for caption in usual.caption(photographs)) > 1
    assert max(caption.words.count("a") for caption in own.caption(photographs)) == 1
    with refuses("once.Once"):
        search_of(own.config["decoding"], own)  # graphs have the usual filters alone


def test_the_first_page_is_short_and_can_be_pasted():
    assert len(FIRST.splitlines()) <= 130
    assert len(FIRST.split()) <= 900
    assert len(BLOCKS) == 3
    for shell in filter(shutil.which, ("bash", "zsh")):
        for block in BLOCKS:
            subprocess.run([shell, "-n", "-c", block], check=True)
    assert "#" not in "".join(BLOCKS)  # zsh takes no comments from a keyboard
    for name in re.findall(r'src="([^"]+)"', FIRST):
        assert (ROOT / name).is_file(), name


def test_files_and_extras_of_the_first_page_exist():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for line in "".join(BLOCKS).splitlines():
        words = shlex.split(line)
        for word in words:
            assert not word.startswith("experiments/") or (ROOT / word).exists(), word
        if words[:2] == ["pip", "install"]:
            (extra,) = re.findall(r"\[(\w+)\]", words[2])
            assert extra in project["optional-dependencies"]
        elif words[0] != "python3":  # tests/test_pages.py composes the settings
            assert words[0] in project["scripts"]


def test_every_architecture_is_counted_and_listed():
    names = {path.stem for path in (ROOT / "conf" / "model").glob("*.yaml")}
    page = (PACKAGE / "models" / "README.md").read_text()
    (counted,) = re.findall(r"## What is counted\n(.*?)\n## ", page, re.S)
    kinds = []
    for number, systems in re.findall(r"^\| (\d+) \| .* \| (.*) \|$", counted, re.M):
        kinds.append(re.findall(r"`(\w+)`", systems))
        assert len(kinds[-1]) == int(number)
    assert sorted(chain.from_iterable(kinds)) == sorted(names)
    of_images = len(names) - len(kinds[-1])
    project = (ROOT / "pyproject.toml").read_text()
    for text in (FIRST, project):
        assert f": {of_images} architectures," in text
    assert f"the {of_images} for images" in counted
    choices = (ROOT / "conf" / "choices.md").read_text()
    assert {name for name in names if f"`{name}`" not in choices} == set()
    for part, count in re.findall(r"`model/(\w+)` \((\d+)\)", choices):
        assert len(list((ROOT / "conf" / "model" / part).glob("*.yaml"))) == int(count), part


@pytest.mark.soak
def test_the_first_page_works_in_a_clean_clone(tmp_path):
    """Only the dependencies are those of this environment."""
    clone = tmp_path / "captioning"
    subprocess.run(["git", "clone", "--quiet", "--depth", "1", ROOT.as_uri(), clone], check=True)
    (environment := dict(os.environ)).pop("PYTHONPATH", None)
    environment |= {"PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0"}
    entered = f". {clone}/.venv/bin/activate\n"

    def pasted(lines, **options):
        return subprocess.Popen(
            ["bash", "-ec", lines], cwd=clone, env=environment, stdout=subprocess.PIPE, **options
        )

    def printed(lines):
        process = pasted(lines, text=True)
        output, _ = process.communicate()
        assert process.returncode == 0, lines
        return output

    install, use, train = BLOCKS
    first, rest = install.split("\n", 1)
    printed(first)
    (site,) = clone.glob(".venv/lib/python*/site-packages")
    paths = (path for path in sys.path if "site-packages" in path)
    (site / "dependencies.pth").write_text("\n".join(paths))
    assert printed(entered + rest).splitlines()[-1] in FIRST
    predict, serve = use.splitlines()
    caption = json.loads(printed(entered + predict))["caption"]
    assert f": {caption} (confidence" in FIRST
    with pasted(f"{entered}exec {serve} port=0", text=True) as server:
        try:
            address = server.stdout.readline().split()[1].rstrip(";")
            with urllib.request.urlopen(address) as page:
                assert page.status == 200
        finally:
            server.terminate()
    assert printed(entered + train).splitlines()[-1] == "report/index.html"
    assert (clone / "report" / "index.html").is_file()
