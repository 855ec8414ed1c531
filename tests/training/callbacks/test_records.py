"""What a test leaves in the run folder; `tests/report/test_panels.py` looks at the pictures."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from captioning.data.example import Example
from captioning.data.example import photographs as paths_of
from captioning.decoding import Caption
from captioning.errors import CaptioningError
from captioning.metrics import Scores
from captioning.runs.attention_file import read
from captioning.runs.results import write_captions
from captioning.training.callbacks import records
from captioning.training.callbacks.records import AttentionPanels, KeepAttention, Results
from captioning.training.loggers.wandb import WandbRecord

from ..conftest import Outcome
from ..tested import CELLS, SAID, Pointer, run_test
from ..world import QUIET, module

pytestmark = QUIET
REFERENCES = ["A red square, left!", "disc and a rather long\u2028rest"]


def lines(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "captions.jsonl").read_text(encoding="utf-8").split("\n")[:-1]]


def test_captions_scores_and_provenance(tested: Outcome) -> None:
    found = lines(tested.folder)
    assert [line["image_id"] for line in found] == [77, *(f"folder/{i}.jpg" for i in range(1, 5))]
    for line in found:
        assert (line["caption"], line["references"]) == ("red square left", REFERENCES)
        assert set(line["scores"]) == {"BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "CIDEr"}
    record = json.loads((tested.folder / "scores.json").read_text())
    assert set(record) == {"scores", "provenance"}
    scores, provenance = record["scores"], record["provenance"]
    assert set(scores) == {name.removeprefix("test/") for name in tested.metrics if name.startswith("test/")}
    assert {"BLEU-4", "CIDEr", "pointing", "length"} < set(scores)
    assert scores["BLEU-1 (no brevity penalty)"] == pytest.approx(100)  # of 0-100: red, square and left are all there
    wanted = {"commit", "versions", "data_digest", "tokenizer", "seconds_trained", "seconds_to_best", "device"}
    assert wanted <= set(provenance)
    assert {"python", "captioning", "torch", "lightning", "pycocoevalcap"} <= set(provenance["versions"])
    assert provenance["parameters"]["trainable"] == 1 < provenance["parameters"]["frozen"]
    assert (provenance["precision"], provenance["processes"]) == ("32-true", 1)
    assert provenance["images_tested"] == provenance["images_of_split"] == 5


def test_maps_and_panels_of_the_first_images(tested: Outcome) -> None:
    found = read(tested.folder / "attention.npz")
    assert [each.image_id for each in found] == [77, "folder/1.jpg", "folder/2.jpg"]
    for each, cell in zip(found, CELLS, strict=False):
        assert each.words == tuple(SAID)
        assert list(each.maps) == ["mean", "spot 1", "spot 2"]
        lit = np.where(np.arange(9) == cell, np.e**10, 1.0) / (np.e**10 + 8)
        for maps, expected in zip(each.maps.values(), (lit, lit, np.full(9, 1 / 9)), strict=True):
            np.testing.assert_allclose(maps, np.broadcast_to(expected.reshape(3, 3), (3, 3, 3)), atol=1 / 510)
    assert {path.stem for path in (tested.folder / "attention").glob("*.pdf")} == {"77", "1", "2"}
    for stem in ("77", "1", "2"):
        with Image.open(tested.folder / "attention" / f"{stem}.png") as panel:
            assert panel.format == "PNG"
            assert panel.width > 3 * panel.height / len(SAID)


def test_no_images_no_files_and_captions_are_on_disk_when_the_scorer_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_JAVA_OPTIONS", "-XX:+NoSuchOption")
    nothing = [AttentionPanels(tmp_path / "attention", images=0), KeepAttention(tmp_path, images=0)]
    nothing.append(WandbRecord(tmp_path / "run", images=2))  # without its logger
    with pytest.raises(CaptioningError, match="NoSuchOption"):
        run_test(tmp_path, [Results(tmp_path), *nothing])
    found = lines(tmp_path)
    assert [line["caption"] for line in found] == ["red square left"] * 5
    assert not any("scores" in line for line in found)
    assert not any((tmp_path / name).exists() for name in ("scores.json", "attention", "attention.npz", "run"))


def test_photographs_by_their_folder(tmp_path: Path) -> None:
    root = tmp_path / "root"
    places = [root / "part" / "a.jpg", tmp_path / "b.jpg", root / os.fsdecode(b"\xff.jpg")]
    examples = [Example(i, place, ()) for i, place in enumerate(places)]
    assert paths_of(examples, root) == ["part/a.jpg", str(tmp_path / "b.jpg"), "\\xff.jpg"]
    assert paths_of(examples[:1], None) == [str(places[0])]


def test_scores_of_images_are_written_as_computed(tmp_path: Path) -> None:
    """Rounded to four decimals these two images would be equal; a score that is no number is null."""
    values = [1.2345678901234567, 1.2345678901234569, float("nan")]
    scores = Scores({}, [{"BLEU-4": value} for value in values], {})
    write_captions(tmp_path / "captions.jsonl", [1, 2, 3], ["a"] * 3, [["b"]] * 3, scores)
    assert [line["scores"] for line in lines(tmp_path)] == [{"BLEU-4": v} for v in (*values[:2], None)]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Arguments of `save_panel` in place of pictures."""
    found: list[tuple[Any, ...]] = []
    monkeypatch.setattr(records, "save_panel", lambda *arguments, **more: found.append((*arguments, more)))
    return found


def example(folder: Path, size: tuple[int, int]) -> Example:
    Image.new("RGB", size, (10, 20, 30)).save(folder / "0.png")
    return Example(0, folder / "0.png", ())


@pytest.mark.parametrize(
    ("size", "resize", "frame"), [((12, 12), "squash", (0, 0, 1, 1)), ((40, 20), "crop", (0.25, 0, 0.75, 1))]
)
def test_words_and_maps_of_a_panel(
    tmp_path: Path, drawn: list[tuple[Any, ...]], size: tuple[int, int], resize: str, frame: tuple[float, ...]
) -> None:
    """Words without EOS, one map per word where the network looked, on the photograph as it is."""
    found, maps = module(Pointer()), torch.rand(4, 9)
    found.backbone.transform = replace(found.backbone.transform, resize=resize)
    records.draw(tmp_path / "panel.png", found, example(tmp_path, size), Caption([4, 7, 10, 2], 0.0, maps))
    ((path, photograph, words, shown, more),) = drawn
    assert (path, words) == (tmp_path / "panel.png", SAID)
    assert torch.equal(shown, maps[:3].view(3, 3, 3))
    assert photograph.shape == (3, *size[::-1])
    assert photograph[:, 0, 0].tolist() == pytest.approx([10 / 255, 20 / 255, 30 / 255])
    assert more == {"title": "red square left", "references": [], "frame": frame}


def test_every_map_of_a_panel(tmp_path: Path, drawn: list[tuple[Any, ...]]) -> None:
    """Those that the model has for what its backbone sees in the photograph, by their names."""
    found, shown = module(Pointer()), example(tmp_path, (12, 12))
    records.draw(tmp_path / "panel.png", found, shown, Caption([4, 7, 10], 0.0, torch.rand(3, 9)), every_map=True)
    context = found.backbone.context(found.backbone(found.backbone.transform.read(shown.path)[None]))
    expected = (10 * context.vectors[0, :, 0]).softmax(dim=0).view(1, 3, 3).expand(len(SAID), -1, -1)
    torch.testing.assert_close(drawn[0][3], {"spot 1": expected, "spot 2": torch.full((3, 3, 3), 1 / 9)})
