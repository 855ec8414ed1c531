"""CLIPScore: its laws, numbers by hand, files of embeddings, and open_clip's own networks."""

import math
import os
import shutil

import numpy as np
import open_clip
import pytest
import torch
from caption_files import annotations, results
from clip_folders import clip as clip_folder
from evaluation import evaluating
from evaluation.evaluating import read
from json_files import read_json
from metrics.scored import compared
from PIL import Image
from refusals import refuses

from captioning import evaluate
from captioning.errors import CaptioningError
from captioning.metrics import ScoredImage, Scorer
from captioning.metrics.table import build_metrics
from experiments.clip_scores.metric import (
    FILES,
    PREFIX,
    WEIGHTS,
    ClipScore,
    clip_score,
    ref_clip_score,
)

REFERENCES = [["a dog"], ["a cat", "the cat sits", "cats"]]
CAPTIONS = [["a dog"], ["a cow"]]
IMAGES = [ScoredImage("x"), ScoredImage(9)]
NAMES = ("CLIPScore", "RefCLIPScore")


def at(*cosines):
    """Vectors of these cosines with (1, 0), of different lengths."""
    return np.array([[3.0 * n * c, 3.0 * n * np.sqrt(1 - c * c)] for n, c in enumerate(cosines, 1)])


def test_by_hand():
    images = np.array([[5.0, 0.0]] * 4)
    captions = at(1.0, 0.0, -0.5, 0.4)
    score = clip_score(images, captions)
    assert score == pytest.approx([2.5, 0.0, 0.0, 1.0])
    # each against a reference equal to it: the harmonic mean with 1, and 0 where the image does not
    # fit
    assert ref_clip_score(score, captions, captions, [1] * 4) == pytest.approx(
        [2 * 2.5 / 3.5, 0, 0, 1]
    )
    # of several references the most similar one counts, in any order; a further one never lowers
    # the score
    first = np.array([[1.0, 0.0]])
    for cosines, best in (([0.1], 0.1), ([0.1, 0.6], 0.6), ([0.6, -0.9, 0.1], 0.6), ([-1.0], 0)):
        found = ref_clip_score(np.array([1.0]), first, at(*cosines), [len(cosines)])
        assert found == pytest.approx(2 * best / (1 + best))


@pytest.fixture
def embedded(tmp_path):
    """Write embeddings of the texts that wait beside a file."""

    def write(name, model="ViT-B/32", seed=0, **other):
        texts = read_json(tmp_path / f"{name}.texts.json")
        rng = np.random.default_rng(seed)
        rows = {
            key: rng.normal(size=(len(texts[key]), 7)).astype(np.float32)
            for key in ("captions", "references")
        }
        rows["images"] = np.abs(rows["captions"])
        np.savez(
            tmp_path / f"{name}.npz",
            **rows | {"texts": texts["texts"], "model": model, "cut": "77"} | other,
        )
        return texts, rows

    return write


@pytest.fixture
def clip(tmp_path, monkeypatch):
    monkeypatch.setenv(FILES, f"{tmp_path / 'ours.npz'}{os.pathsep}{tmp_path / 'theirs.npz'}")
    return ClipScore()


def test_texts_first_and_scores_then(tmp_path, clip, embedded, caplog):
    scorer = Scorer(REFERENCES, [clip], images=IMAGES)
    scores = scorer.score(dict(enumerate(CAPTIONS)))
    assert {name: math.isnan(score) for name, score in scores.corpus.items()} == dict.fromkeys(
        NAMES, True
    )
    assert scorer.signatures == {}
    assert f"no CLIPScore: embed the texts of {tmp_path / 'ours.texts.json'} " in caplog.text
    texts, rows = embedded("ours")
    assert (texts["ids"], texts["photographs"]) == (["x", 9], [])
    assert texts["captions"] == ["A photo depicts a dog", "A photo depicts a cow"]
    assert texts["references"] == [PREFIX + text for each in REFERENCES for text in each]

    scores = scorer.score(dict(enumerate(CAPTIONS)))
    arrays = [rows[name].astype(float) for name in ("images", "captions", "references")]
    expected = clip_score(*arrays[:2])
    both = ref_clip_score(expected, *arrays[1:], [1, 3])
    per_image = [[each[name] / 100 for each in scores.per_image] for name in NAMES]
    assert per_image == [pytest.approx(expected), pytest.approx(both)]
    signature = "CLIPScore|w:2.5|model:ViT-B/32|prefix:A photo depicts|cut:77|dtype:float32"
    assert scorer.signatures["CLIPScore"] == signature

    others = [CAPTIONS[0], ["a cat"]]
    with refuses("theirs"):  # they wait beside the second file
        clip.find(others, REFERENCES, IMAGES)
    embedded("theirs", seed=1)
    theirs = scorer.score(dict(enumerate(others)))
    difference = scores.corpus["CLIPScore"] - theirs.corpus["CLIPScore"]
    assert compared(scores, theirs)["CLIPScore"].difference == pytest.approx(difference)
    with refuses("does not exist yet"):
        clip.find([["a bus"], ["a bus"]], REFERENCES, IMAGES)


@pytest.mark.parametrize(
    "other",
    [
        {"texts": "0" * 64},
        {"images": np.ones((2, 6), dtype=np.float32)},
        {"captions": np.full((2, 7), np.nan, dtype=np.float32)},
        {"references": np.array(["a", "b"])},
        {"model": "a\nb"},
        None,
    ],
)
def test_embeddings_of_something_else(tmp_path, clip, embedded, other):
    with refuses("embed the texts"):
        clip.find(CAPTIONS, REFERENCES, IMAGES)
    if other is None:
        (tmp_path / "ours.npz").write_bytes(b"PK no archive")
    else:
        embedded("ours", **other)
    with pytest.raises(CaptioningError):
        clip.compute(CAPTIONS, REFERENCES, IMAGES)


def test_open_clip_embeds_once(tmp_path, monkeypatch):
    weights = tmp_path / "ViT-tiny"
    model = clip_folder(weights)
    photographs = [tmp_path / f"{n}.png" for n in range(2)]
    for n, path in enumerate(photographs):
        Image.fromarray(np.full((32, 32, 3), 40 + 90 * n, dtype=np.uint8)).save(path)

    images = [ScoredImage(n, path) for n, path in enumerate(photographs)]
    monkeypatch.setenv(FILES, str(tmp_path / "ours.npz"))
    monkeypatch.setenv(WEIGHTS, str(weights))
    clip = ClipScore()
    made = clip.find(CAPTIONS, REFERENCES, images)
    with np.load(tmp_path / "ours.npz") as kept:
        assert str(kept["model"]) == "ViT-tiny"
        with torch.inference_mode():
            pixels = torch.full((1, 3, 32, 32), (130 / 255 - 0.5) / 0.5)
            assert kept["images"][1] == pytest.approx(
                model.encode_image(pixels)[0].numpy(), abs=1e-5
            )
            text = model.encode_text(open_clip.tokenize(["A photo depicts a cow"]))[0].numpy()
            assert kept["captions"][1] == pytest.approx(text, abs=1e-5)
    shutil.rmtree(weights)
    again = clip.find(CAPTIONS, REFERENCES, images)
    assert (again.captions == made.captions).all()


METRIC = "experiments.clip_scores.metric.ClipScore"


def test_what_it_needs_is_refused_before_a_caption_is_made(tmp_path, monkeypatch):
    monkeypatch.delenv(FILES, raising=False)
    with refuses(FILES):
        build_metrics([METRIC])
    monkeypatch.setenv(FILES, "ours.npz")
    monkeypatch.setenv(WEIGHTS, str(tmp_path))
    with refuses(WEIGHTS):
        build_metrics([METRIC])


@pytest.mark.usefixtures("elsewhere")
def test_scores_of_a_file_of_captions(printed, monkeypatch):
    results("ours.json", evaluating.OURS)
    annotations("references.json", evaluating.REFERENCES)
    monkeypatch.setenv(FILES, "ours.npz")
    metrics = f"metrics=[BLEU,{METRIC}]"
    printed(evaluate.main, *evaluating.FILES, metrics)
    assert read("evaluate")[0]["CLIPScore"] is None
    texts = read_json("ours.texts.json")
    assert texts["ids"] == [*evaluating.REFERENCES]
    given = {
        "images": np.tile([1.0, 0.0], (5, 1)),
        "captions": np.tile([0.4, (1 - 0.4**2) ** 0.5], (5, 1)),
        "references": np.tile([1.0, 0.0], (len(texts["references"]), 1)),
    }
    np.savez("ours.npz", **given, texts=texts["texts"], model="a model", cut=77)
    printed(evaluate.main, *evaluating.FILES, metrics, "name=last")
    scores, provenance, _ = read("last")
    assert scores["CLIPScore"] == pytest.approx(100)
    assert provenance["signatures"]["CLIPScore"].startswith("CLIPScore|w:2.5|model:a model|")
    pac = metrics.replace("ClipScore", "PacScore")
    printed(evaluate.main, *evaluating.FILES, pac, "name=pac")
    scores, provenance, captions = read("pac")
    assert scores["PAC-S"] == pytest.approx(80)
    assert captions[0]["scores"]["RefPAC-S"] == pytest.approx(100 * 2 / (1 / 0.8 + 1 / 0.4))
    assert provenance["signatures"]["PAC-S"].startswith("PAC-S|w:2.0|model:a model|")
