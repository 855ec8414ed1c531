"""What a test leaves behind; the pictures and the pointing score of the same run are looked at here too."""

import json
import os
from dataclasses import replace
from pathlib import Path

import lightning as L
import numpy as np
import pytest
from PIL import Image

from captioning.data.example import Example, Noun
from captioning.data.example import photographs as paths_of
from captioning.errors import CaptioningError
from captioning.metrics import Scores
from captioning.runs.kept_attention import read
from captioning.runs.results import write_captions
from captioning.training.callbacks.attention_panels import AttentionPanels
from captioning.training.callbacks.kept_attention import KeepAttention
from captioning.training.callbacks.pointing import Pointing
from captioning.training.callbacks.results import Results
from captioning.training.callbacks.stopwatch import Stopwatch

from ..tested import CELLS, SAID, Pointer, photographs, run_test, spotted
from ..world import QUIET, module, trainer

pytestmark = QUIET


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tested")
    callbacks: list[L.Callback] = [
        Results(folder),
        Pointing(),
        AttentionPanels(folder / "attention", images=3),
        KeepAttention(folder, images=3),
        Stopwatch("val/CIDEr"),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LC_ALL", "C")
        run_test(folder, callbacks, metrics=("BLEU", "CIDEr"))
    return folder


def lines(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "captions.jsonl").read_text(encoding="utf-8").split("\n")[:-1]]


def test_captions_one_line_per_image_in_order(folder: Path) -> None:
    found = lines(folder)
    assert [line["image_id"] for line in found] == [77, *(f"folder/{i}.jpg" for i in range(1, 5))]
    assert {line["caption"] for line in found} == {"red square left"}
    references = ["A red square, left!", "disc and a rather long\u2028rest"]
    assert all(line["references"] == references for line in found)
    assert all(set(line["scores"]) == {"BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "CIDEr"} for line in found)


def test_every_map_of_the_first_captions(folder: Path) -> None:
    found = read(folder / "attention.npz")
    assert [each.image_id for each in found] == [77, "folder/1.jpg", "folder/2.jpg"]
    for each, cell in zip(found, CELLS, strict=False):
        assert each.words == tuple(SAID)
        assert list(each.maps) == ["mean", "spot 1", "spot 2"]
        lit = np.where(np.arange(9) == cell, np.e**10, 1.0) / (np.e**10 + 8)
        expected = {"mean": lit, "spot 1": lit, "spot 2": np.full(9, 1 / 9)}
        for name, maps in each.maps.items():
            assert maps.shape == (3, 3, 3)
            np.testing.assert_allclose(maps, np.broadcast_to(expected[name].reshape(3, 3), maps.shape), atol=1 / 510)


def test_no_attention_no_file(tmp_path: Path) -> None:
    run_test(tmp_path, [KeepAttention(tmp_path, images=0)])
    assert not (tmp_path / "attention.npz").exists()


def test_photographs_by_their_folder(tmp_path: Path) -> None:
    root = tmp_path / "root"
    places = [root / "part" / "a.jpg", tmp_path / "b.jpg", root / os.fsdecode(b"\xff.jpg")]
    examples = [Example(i, place, ()) for i, place in enumerate(places)]
    assert paths_of(examples, root) == ["part/a.jpg", str(tmp_path / "b.jpg"), "\\xff.jpg"]
    assert paths_of(examples[:1], None) == [str(places[0])]


def test_scores_and_provenance(folder: Path) -> None:
    record = json.loads((folder / "scores.json").read_text())
    assert set(record) == {"scores", "provenance"}
    scores = record["scores"]
    bleu = [f"BLEU-{n}" for n in range(1, 5)]
    names = {
        *bleu,
        *(f"{name} (no brevity penalty)" for name in bleu),
        "CIDEr",
        "pointing",
        "pointing (images shuffled)",
    }
    assert set(scores) == names
    assert scores["BLEU-1 (no brevity penalty)"] == pytest.approx(100)  # of 0-100: red, square and left are all there
    provenance = record["provenance"]
    wanted = {"commit", "versions", "data_digest", "tokenizer", "seconds_trained", "seconds_to_best", "device"}
    assert wanted <= set(provenance)
    assert {"python", "captioning", "torch", "lightning", "pycocoevalcap"} <= set(provenance["versions"])
    assert provenance["parameters"]["trainable"] == 1
    assert provenance["parameters"]["frozen"] > 0
    assert provenance["precision"] == "32-true"
    assert provenance["processes"] == 1


def test_pointing_by_hand(folder: Path) -> None:
    """Batches of four and of one image."""
    scores = json.loads((folder / "scores.json").read_text())["scores"]
    # First captions: all five hit. Second captions (cell 0): only the image whose bright cell is 0.
    assert scores["pointing"] == pytest.approx(100 * 6 / 10)
    # In place of the bright cells 4 0 8 2 4 those of the next image, 0 8 2 4 4: of the first captions the last hits,
    # of the second ones the first.
    assert scores["pointing (images shuffled)"] == pytest.approx(100 * 2 / 10)


def test_panels_of_the_first_images_by_id(folder: Path) -> None:
    assert {path.name for path in (folder / "attention").glob("*.png")} == {"77.png", "1.png", "2.png"}
    for path in (folder / "attention").glob("*.png"):
        with Image.open(path) as panel:
            assert panel.width > 3 * panel.height / len(SAID)


def test_scores_of_images_are_written_as_computed(tmp_path: Path) -> None:
    """Rounded to four decimals these two images would be equal; a score that is no number is null."""
    values = [1.2345678901234567, 1.2345678901234569, float("nan")]
    scores = Scores({}, [{"BLEU-4": value} for value in values], {})
    write_captions(tmp_path / "captions.jsonl", [1, 2, 3], ["a"] * 3, [["b"]] * 3, scores)
    assert [line["scores"] for line in lines(tmp_path)] == [{"BLEU-4": v} for v in (*values[:2], None)]


def test_captions_are_on_disk_when_the_scorer_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_JAVA_OPTIONS", "-XX:+NoSuchOption")
    with pytest.raises(CaptioningError, match="NoSuchOption"):
        run_test(tmp_path, [Results(tmp_path)])
    found = lines(tmp_path)
    assert [line["caption"] for line in found] == ["red square left"] * 5
    assert not any("scores" in line for line in found)
    assert not (tmp_path / "scores.json").exists()


def test_boxes_are_where_they_lie_in_the_square(tmp_path: Path) -> None:
    def moved(noun: Noun) -> Noun:
        left, top, right, bottom = noun.box
        return Noun(noun.word, (left / 2 + 0.25, top, right / 2 + 0.25, bottom))

    whole = run_test(tmp_path, [Pointing()]).callback_metrics["test/pointing"]
    wide = []
    for e in photographs(tmp_path):
        Image.new("RGB", (24, 12)).save(e.path)  # the square is its middle half
        references = tuple(replace(r, nouns=tuple(map(moved, r.nouns))) for r in e.references)
        wide.append(replace(e, references=references))
    assert run_test(tmp_path, [Pointing()], wide).callback_metrics["test/pointing"] < whole
    splits, images = spotted(tmp_path, wide)
    found, run = module(Pointer(), splits=splits), trainer(precision="32-true", callbacks=[Pointing()])
    found.backbone.transform = replace(found.backbone.transform, resize="crop")
    run.test(found, images, verbose=False)
    assert run.callback_metrics["test/pointing"] == whole > 0


def test_features_without_a_place_have_no_pointing_score(tmp_path: Path) -> None:
    splits, images = spotted(tmp_path)
    found, run = module(Pointer(), splits=splits), trainer(precision="32-true", callbacks=[Pointing()])
    found.backbone.located = False
    run.test(found, images, verbose=False)
    assert not any("pointing" in name for name in run.callback_metrics)


def test_data_without_boxes_have_no_pointing_score(tmp_path: Path) -> None:
    examples = [replace(e, references=tuple(replace(r, nouns=()) for r in e.references)) for e in photographs(tmp_path)]
    run = run_test(tmp_path, [Pointing()], examples)
    assert "test/BLEU-1" in run.callback_metrics
    assert not any("pointing" in name for name in run.callback_metrics)
