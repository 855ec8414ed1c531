"""The command `captioning convert`, and what every other command does with its checkpoint."""

import json
import shutil

import pytest
import yaml
from convert.golden import PUBLISHED
from support import called

import captioning
from captioning.convert.__main__ import main
from captioning.errors import CaptioningError
from captioning.runs.checkpoints.checkpoint import load_checkpoint

FILES = PUBLISHED / "sgrvinod"
WEIGHTS, WORDS = next(FILES.glob("*.tar")), next(FILES.glob("WORDMAP*"))


def converted(output, weights=WEIGHTS, vocabulary=WORDS, source="sgrvinod"):
    given = {"source": source, "weights": weights, "vocabulary": vocabulary, "output": output}
    called(main, *(f"{key}={value}" for key, value in given.items()))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("home") / "captioner"
    converted(folder)
    return folder


def test_a_folder_with_checkpoint_settings_and_source(folder):
    saved = load_checkpoint(folder / "checkpoints" / "best.ckpt")
    source = saved.config["source"]
    assert source["repository"] == "sgrvinod/a-PyTorch-Tutorial-to-Image-Captioning"
    assert [len(file["sha256"]) for file in source["files"]] == [64, 64]
    assert "model.d_embed=16" in yaml.safe_load((folder / "settings.yaml").read_text())
    assert saved.words[:3] == ["a", "the", "on"]


def test_it_captions_and_shows_attention(folder):
    captioner = captioning.load(folder / "checkpoints" / "best.ckpt")
    (prediction,) = captioner.caption(FILES / "images" / "0.png")
    assert prediction.caption == "stands a"  # as by its own beam search of five
    assert prediction.attention.shape == (2, 4, 4)


def test_an_existing_folder_is_kept(folder):
    with pytest.raises(CaptioningError, match=r"output="):
        converted(folder)


def test_an_unknown_source_is_refused(tmp_path):
    with pytest.raises(CaptioningError, match=r"source=.*sgrvinod"):
        converted(tmp_path / "out", source="sgrvinot")


@pytest.mark.parametrize(
    "words",
    ["[]", "{}", '{"a": 1}', "{", '{"<pad>": 0, "<start>": 1, "<end>": 2, "<unk>": 3, "a": 9999}'],
)
def test_words_that_do_not_fit_are_refused(tmp_path, words):
    vocabulary = tmp_path / "WORDMAP.json"
    vocabulary.write_text(words)
    with pytest.raises(CaptioningError):
        converted(tmp_path / "out", vocabulary=vocabulary)
    assert not (tmp_path / "out").exists()


def test_a_word_fewer_than_rows_is_no_word_lost(tmp_path):
    """Rows without a word are left out, and words keep their rows."""
    words = json.loads(WORDS.read_text())
    del words["horse"]
    vocabulary = tmp_path / "WORDMAP.json"
    vocabulary.write_text(json.dumps(words))
    converted(tmp_path / "out", vocabulary=vocabulary)
    captioner = captioning.load(tmp_path / "out" / "checkpoints" / "best.ckpt")
    assert captioner.vocabulary.words[-1] == "child"


def test_a_text_file_is_no_checkpoint(tmp_path):
    path = tmp_path / "weights.pth"
    shutil.copy(WORDS, path)
    with pytest.raises(CaptioningError, match=r"weights\.pth"):
        converted(tmp_path / "out", weights=path)
