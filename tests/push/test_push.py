"""What is pushed to a hub, which is local here, comes back from it as the same captioner, with a
card of its run.
"""

import shutil
import threading
from pathlib import Path

import hub
import huggingface_hub.constants
import pytest
import torch
import yaml
from hub import Hub
from huggingface_hub import ModelCard
from json_files import write_json
from omegaconf import DictConfig
from refusals import refuses
from support import QUIET, called, composed

import captioning
from captioning.errors import CaptioningError, Stopped
from captioning.push import __main__ as push
from captioning.push.__main__ import OF_CARD, without_places
from captioning.runs.checkpoints.checkpoint import load_checkpoint, write_safetensors

pytestmark = QUIET

TOKEN = "hf_of_somebody"
SCORES = {
    "scores": {
        "BLEU-1": 61.23,
        "BLEU-4": 21.26,
        "METEOR": 20.04,
        "CIDEr": 53.31,
        "SPICE": None,
        "length": 9.1,
    },
    "provenance": {
        "seconds_trained": 5400.0,
        "parameters": {"trainable": 7054529},
        "decoding": {"_target_": "captioning.decoding.beam_search", "width": 3},
    },
}


@pytest.fixture
def best(tmp_path, shapes_run):
    """The checkpoint in a run's folder, where it lies after a run."""
    folder = tmp_path / "run"
    (folder / "checkpoints").mkdir(parents=True)
    write_json(folder / "scores.json", SCORES)
    return Path(shutil.copy(shapes_run.checkpoint, folder / "checkpoints" / "best.ckpt"))


@pytest.fixture(autouse=True)
def _nobodys_home(tmp_path, monkeypatch):
    for name, path in {
        "HF_TOKEN_PATH": "token",
        "HF_STORED_TOKENS_PATH": "tokens",
        "HF_HUB_CACHE": "hub",
    }.items():
        monkeypatch.setattr(huggingface_hub.constants, name, str(tmp_path / path))
    monkeypatch.delenv("HUGGING_FACE_HUB_TOKEN", raising=False)
    monkeypatch.setenv("HF_TOKEN", TOKEN)


def changed(best, folder, change):
    """An export of the checkpoint with a change of its configuration."""
    saved, path = load_checkpoint(best), folder / "best.safetensors"
    change(saved.config)
    write_safetensors(path, saved.config, saved.words, saved.state)
    return f"checkpoint={path}"


def pushed(*overrides):
    called(push.main, *overrides)


@pytest.mark.filterwarnings("ignore:Use 'content=")  # of the library, where it has no Xet
def test_it_comes_back_from_the_hub(best, shapes_run, monkeypatch, capsys):
    with hub.serving(Hub(), monkeypatch) as site:
        pushed(f"checkpoint={best}", "to=hf:somebody/small", "licence=mit")
        assert capsys.readouterr().out == f"{site.address}/somebody/small/commit/{40 * 'b'}\n"
        assert site.tokens == [f"Bearer {TOKEN}"]
        assert set(site.files) == {"captioner.safetensors", "README.md"}
        captions = captioning.load("hf:somebody/small", "cpu").caption(shapes_run.photographs)
    assert [each.caption for each in captions] == shapes_run.captions
    card = ModelCard(site.files["README.md"].decode())
    assert card.data.license == "mit"
    assert "captioning predict PHOTOGRAPH checkpoint=hf:somebody/small\n" in card.text
    results = card.data.eval_results
    assert [one.metric_value for one in results] == [61.2, 21.3, 20.0, 53.3]
    assert [one.metric_type for one in results] == ["bleu", "bleu", "meteor", "cider"]
    assert {(one.dataset_type, one.dataset_split) for one in results} == {("shapes", "test")}


def test_a_card_shows_each_group_of_settings_that_describes_the_captioner():
    groups = {key for key, value in composed().items() if isinstance(value, DictConfig)}
    assert groups - set(OF_CARD) == {"choices", "metrics", "callbacks", "logger"}


def test_a_folder_to_look_at_first(best, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pushed(f"checkpoint={best}", f"to={tmp_path}/small", "half=true")
    text = Path("small/README.md").read_text()
    assert "captioning predict PHOTOGRAPH checkpoint=small/captioner.safetensors\n" in text
    words = len(load_checkpoint(best).words)
    told = ("7,054,529 trainable", "1.5 hours", "beam_search, width 3", f"its {words} words")
    assert all(each in text for each in ("| 61.2   | 21.3   | 20.0   | 53.3          |", *told))
    settings = yaml.safe_load(text.partition("```yaml\n")[2].partition("```")[0])
    assert settings["optimizer"]["lr"] == 0.003
    assert torch.half in {
        x.dtype for x in load_checkpoint(Path("small/captioner.safetensors")).state.values()
    }


def test_names_of_a_stranger_are_text_in_the_card(best, tmp_path):
    mark = "<img src=x>\n# [a](http://b) `c` www.d"

    def marked(config):
        config["choices"] = {"data": mark}
        config["model"]["title"] = mark
        config["optimizer"]["lr"] = "\n```\n<b>"

    record = {**SCORES, "provenance": {**SCORES["provenance"], "device": mark.replace("\n", " ")}}
    write_json(tmp_path / "scores.json", record)
    pushed(changed(best, tmp_path, marked), f"to={tmp_path / 'small'}")
    text = (tmp_path / "small" / "README.md").read_text()
    prose, _, settings = text.rstrip().partition("````yaml\n")
    assert settings.endswith("````")
    assert yaml.safe_load(settings.removesuffix("````"))["optimizer"]["lr"] == "\n```\n<b>"
    prose = ModelCard(prose).text
    shown = r"\<img src\=x\> \# \[a\]\(http\:\/\/b\) \`c\` www\.d"
    assert prose.count(shown) >= 5
    assert "img" not in prose.replace(shown, "")


def test_a_checkpoint_that_was_not_tested_and_has_parts_of_ones_own(best, tmp_path):
    target = {"_target_": "show_tell.ShowTell"}
    own = changed(best, tmp_path, lambda config: config["model"].update(target))
    with refuses("has parts of the module show_tell"):
        pushed(own, f"to={tmp_path / 'small'}")
    assert not (tmp_path / "small").exists()
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "show_tell.py").write_text("class ShowTell: ...")
    pushed(own, f"to={tmp_path / 'small'}")
    assert (tmp_path / "small" / "source" / "show_tell.py").read_text() == "class ShowTell: ..."
    card = ModelCard.load(tmp_path / "small" / "README.md")
    assert "It was not tested." in card.text
    assert "captioner.safetensors 'modules=[show_tell]'\n" in card.text
    assert str(tmp_path) not in card.text
    assert "\nPYTHONPATH=source captioning predict" in card.text
    assert card.data.eval_results is None


def test_several_images_of_an_example(best, tmp_path):
    several = {"_target_": "experiments.several_images.several_images.SeveralImages", "images": 3}

    def three(config):
        config["backbone"] = {**several, "of": config["backbone"]}

    source = tmp_path / "source" / "experiments" / "several_images" / "several_images.py"
    source.parent.mkdir(parents=True)
    source.write_text("class SeveralImages: ...")
    pushed(changed(best, tmp_path, three), f"to={tmp_path / 'three'}")
    text = (tmp_path / "three" / "README.md").read_text()
    assert " captioning predict PHOTOGRAPH+PHOTOGRAPH+PHOTOGRAPH checkpoint=" in text
    assert "\nThis model captions examples of up to 3 images.\n" in text
    assert "on SmallCNN\n" in text


def test_a_partial_test_is_said_and_is_no_result_of_the_split(best, tmp_path):
    part = {"images_tested": 64, "images_of_split": 400}
    record = SCORES | {"provenance": SCORES["provenance"] | part}
    write_json(best.parents[1] / "scores.json", record)
    pushed(f"checkpoint={best}", f"to={tmp_path / 'part'}")
    card = ModelCard.load(tmp_path / "part" / "README.md")
    assert "\nOf 64 of the 400 images of the test split: not to be compared" in card.text
    assert "| 61.2   |" in card.text
    assert (card.data.eval_results, card.data.to_dict().get("model-index")) == (None, None)
    assert "53.3" not in str(load_checkpoint(tmp_path / "part" / "captioner.safetensors").score)


@pytest.mark.parametrize("failure", [OSError("the disk is full"), Stopped("stopped", 15)])
def test_after_a_failure_the_same_command_can_be_given_again(best, tmp_path, failure, monkeypatch):
    given = f"checkpoint={best}", f"to={tmp_path / 'new' / 'small'}"

    def fail(path, text):
        raise failure

    with monkeypatch.context() as patch:
        patch.setattr(push, "write_text", fail)
        with pytest.raises((CaptioningError, Stopped)):
            pushed(*given)
    assert [*(tmp_path / "new").iterdir()] == []
    pushed(*given)
    assert Path(tmp_path, "new", "small", "README.md").exists()


def test_the_folders_of_a_machine_stay_there():
    config = {
        "folder": "/home/me/runs/a-seed1",
        "data": {
            "root": "/home/me/flickr8k",
            "reader": {"root": "/home/me/flickr8k/images", "split": ["a", "/x/y"]},
        },
        "backbone": {"weights": "/home/me/weights.pt", "size": 224, "mean": [0.5]},
    }
    assert without_places(config) == {
        "folder": "a-seed1",
        "data": {"root": "flickr8k", "reader": {"root": "flickr8k/images", "split": ["a", "y"]}},
        "backbone": {"weights": "weights.pt", "size": 224, "mean": [0.5]},
    }


@pytest.mark.parametrize("name, silent", [("small@draft", False), ("small", True)])
def test_a_hub_that_does_not_take_it(name, silent, tmp_path, monkeypatch):
    """Another branch, with a token that may not write; or no answer at all."""
    (tmp_path / "README.md").write_text("a card")
    monkeypatch.setattr(push, "PATIENCE", 0.3)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    away = Hub(echoes=True, silent=threading.Event() if silent else None)
    with (
        hub.serving(away, monkeypatch) as site,
        refuses(f"has not taken hf:somebody/{name}: ") as refused,
    ):
        push.upload(tmp_path, f"hf:somebody/{name}")
    assert site.files == {}
    assert TOKEN not in str(refused.value)


REFUSED = {
    "to=hf:somebody/small": "checkpoint is not set",
    "checkpoint=best.ckpt": "to is not set",
    "checkpoint=nowhere to=hf:somebody/small": "checkpoint=nowhere",
    "checkpoint=best.ckpt to=hf:small": "to=hf:small",
    "checkpoint=best.ckpt to=https://host/a": "to=https://host/a",
    "checkpoint=best.ckpt to=.": "to=.",
    "checkpoint=best.ckpt to=best.ckpt/a": "best.ckpt/a",
    "checkpoint=best.ckpt to=hf:somebody/small": "hf auth login",
    "checkpoint=best.ckpt to=a half=3": "half=3",
}


def test_what_is_refused(best, refused, monkeypatch):
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.chdir(best.parent)
    for given, named in REFUSED.items():
        assert named in refused(push.main, *given.split())
    assert [path.name for path in Path().iterdir()] == ["best.ckpt"]
