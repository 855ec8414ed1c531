"""What the README of the models shows complete works as it stands there."""

import re
import shlex
from pathlib import Path

import pytest
from processes import forked, run
from support import SHAPES, composed, folder_of, miniature

import captioning
from captioning.config.command import NOT_HERE
from captioning.run import main

README = (Path(captioning.__file__).parent / "models" / "README.md").read_text(encoding="utf-8")


def shown(kind: str, first: str) -> str:
    """The block of code that begins with the line `first`."""
    (block,) = [b for b in re.findall(rf"^```{kind}\n(.*?)^```", README, re.M | re.S) if b.startswith(f"{first}\n")]
    return block


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the model of one's own."""
    home = tmp_path_factory.mktemp("home")
    (home / "my_conf" / "model").mkdir(parents=True)
    for kind, name in (("python", "show_tell.py"), ("yaml", "my_conf/model/my_show_tell.yaml")):
        (home / name).write_text(shown(kind, f"# {name}"))
    return home


def test_a_model_of_ones_own_is_trained_tested_and_captions(home: Path) -> None:
    (line,) = [line for line in README.splitlines() if "model=my_show_tell" in line]
    *command, model = shlex.split(line)
    assert command[:3] == ["python", "-m", "captioning.run"]
    small = [setting for setting in SHAPES if not setting.startswith("model.")] + ["model.d_hidden=8"]
    ended = run(home, *command[3:], model, *small)
    assert "parameters: model 1," in ended.stdout
    folder = folder_of(home, ended)
    assert folder.name == "shapes-my_show_tell-seed1"
    photograph = next((home / "cache").rglob("test/*.png"))
    given = [f"checkpoint={folder / 'checkpoints' / 'best.ckpt'}", f"images={photograph}", "decoding.n_best=2"]
    given.append("modules=[show_tell]")
    assert '"caption"' in forked("predict", home, *given).stdout

    # a sweep continues where it stopped
    assert "this run is finished" in run(home, "-m", *command[3:], model, *small).stdout


@pytest.mark.filterwarnings(*[f"ignore:{message}" for message in NOT_HERE])
def test_a_score_of_ones_own_is_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_conf" / "model" / "score").mkdir(parents=True)
    for kind, name in (("python", "bilinear.py"), ("yaml", "my_conf/model/score/bilinear.yaml")):
        (tmp_path / name).write_text(shown(kind, f"# {name}"))
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
