"""The page as a file; what it does is tried in a browser."""

import base64
import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from omegaconf import OmegaConf
from PIL import Image
from support import composed
from written import (
    ATTENDS,
    CORNERS,
    REFERENCES,
    SAID,
    SOFT,
    keep_maps,
    page_of,
    systems_of,
    write_photographs,
    write_run,
)

from captioning.data.shapes import ShapesReader
from captioning.metrics import Scorer
from captioning.metrics.bootstrap import difference, resample
from captioning.report.gallery import noun_boxes, read_photograph
from captioning.report.page import differences, table_of
from captioning.report.runs import find_runs
from captioning.report.systems import compare

Page = Callable[..., str]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Two systems on three photographs; the first has kept its attention."""
    images = write_photographs(tmp_path / "data" / "images", 3)
    keep_maps(write_run(tmp_path / "runs", "sat_soft", 1, 21.0, SAID, [90, 10, 50], images, scores=ATTENDS), SAID)
    write_run(tmp_path / "runs", "lstm", 1, 18.5, ["a man", "a dog", "a"], [5, 80, 40], images)
    return tmp_path / "runs"


@pytest.fixture
def soft(runs: Path) -> Path:
    return runs / "flickr8k-sat_soft-seed1"


@pytest.fixture
def page(runs: Path, tmp_path: Path) -> Page:
    """The page, of which nothing is left out."""

    def written(photographs: str | None = "auto", **settings: Any) -> str:
        text, left_out = page_of(runs, tmp_path / "report", photographs, **settings)
        assert left_out == []
        return text

    return written


def held(page: str, kind: str) -> Any:
    """The JSON that the page's script reads."""
    (text,) = re.findall(rf'<script type="application/json" {kind}>(.*?)</script>', page, re.S)
    return json.loads(text)


def test_texts_cannot_become_markup_and_only_our_script_runs(runs: Path, page: Page, tmp_path: Path) -> None:
    captions = ['</script><script>alert("1")</script>', "'\"&<!--", "\u202eleft \U0001f600"]
    write_run(runs, "strange<b>", 1, 1.0, captions, [1, 2, 3], tmp_path / "data" / "images")
    text = page()
    assert not any(harm in text for harm in ("<script>alert", "strange<b>", "<!--"))
    assert [image["answers"][2]["caption"] for image in held(text, 'class="data"')["images"]] == captions
    policy = re.findall(r'Content-Security-Policy" content="(.*?)"', text)[0]
    for tag, part in (("style", r"<style>(.*?)</style>"), ("script", r'<script type="module">(.*?)</script>')):
        digest = base64.b64encode(hashlib.sha256(re.findall(part, text, re.S)[0].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none';")


def test_without_a_script_table_curves_and_the_first_photographs_are_there(page: Page) -> None:
    text = re.sub(r"<(script|template).*?</\1>", "", page(drawn=True), flags=re.S)
    assert re.search(r'data-number="21.0" class="best">21.0</td>', text)
    assert '<td data-in="cost of training" data-number="1234567.0">1,234,567</td>' in text
    assert re.search(r'class="quoted">.*?quoted</span> Show, Attend and Tell, soft, \[SAT\] Table 1</th>', text, re.S)
    assert [text.count(f'<p class="caption" dir="auto">{caption}</p>') for caption in SAID] == [1, 1, 1]
    assert text.count('src="data:image/jpeg;base64,') == 3
    assert text.count("no attention") == 3
    assert "mistakes: the captions with the least cider" in text.lower()
    (curves,) = re.findall(r'<img src="data:image/svg\+xml;base64,([^"]+)"', text)
    assert b"validation loss" in base64.b64decode(curves)


def test_photographs_lie_beside_a_page_that_would_be_too_large(page: Page, tmp_path: Path) -> None:
    addresses = held(page(inside=0, side=100), 'class="pictures"')
    assert len(set(addresses)) == 1  # they are all alike
    with Image.open(tmp_path / "report" / addresses[0]) as picture:
        assert (picture.format, picture.size) == ("JPEG", (100, 50))
    assert held(page(None), 'class="pictures"') == [None] * 3
    elsewhere = (tmp_path / "data").rename(tmp_path / "moved") / "images"
    assert held(page(), 'class="pictures"') == [None] * 3
    assert None not in held(page(str(elsewhere)), 'class="pictures"')
    for file in (tmp_path / "runs").rglob("captions.jsonl"):
        file.write_text(file.read_text().replace("1.png", "../images/1.png"))  # out of its folder and in again
    assert held(page(str(elsewhere)), 'class="pictures"')[0] is None


@pytest.mark.parametrize("name", ["absent.png", "text.png", "a\0b", ""])
def test_what_is_no_photograph_below_its_folder_is_done_without(tmp_path: Path, name: str) -> None:
    images = write_photographs(tmp_path / "images", 1)
    (images / "text.png").write_text("no picture")
    assert read_photograph(images / name, 64) == (b"", None)
    assert read_photograph(images / "1.png", 64)[1] == (64, 32)


def test_maps_are_bytes_in_shares_of_their_peak(soft: Path, page: Page) -> None:
    text = page(heads=1)
    first, second = (held(text, f'id="map-1-0-{image}"') for image in (0, 1))  # its CIDEr is the higher
    assert (first["names"], second["names"]) == (["mean", "inter 1 1"], ["mean"])
    mean = np.frombuffer(base64.b64decode(second["maps"]), np.uint8).reshape(1, 3, 4, 4)
    assert [np.unravel_index(each.argmax(), each.shape) for each in mean[0]] == list(CORNERS[:3])
    assert set(mean.flatten()) == {255, 5}
    keep_maps(soft, SAID, attended=True)
    text = page(heads=1)
    assert [held(text, f'id="map-1-0-{image}"')["path"] for image in (0, 1)] == [[0, 5, 5]] * 2  # beyond `heads` too
    assert held(text, 'id="map-1-0-0"')["names"] == ["mean", "inter 1 1"]
    assert "Hard attention that took one place" in text
    keep_maps(soft, ["a man walks", *SAID[1:]])  # of another test: not laid on this one
    assert re.findall(r'id="(map-.*?)"', page()) == ["map-1-0-1", "map-1-0-2"]


def test_a_card_says_what_a_run_was_set_otherwise_than_its_experiment(runs: Path, soft: Path, page: Page) -> None:
    """The run of `experiment=demo model=sat_soft` with another rate, as `captioning.run` writes its settings."""
    chosen = ["experiment=demo", "model=sat_soft", "optimizer.lr=0.25", "data.batch_size=3", "seed=7"]
    config = composed(*chosen)
    config.folder, config.cache = "/some/runs/demo-sat_soft-seed7", "/some/cache"
    other = yaml.safe_load(OmegaConf.to_yaml(config, resolve=True))
    assert other["choices"]["experiment"] == "demo"
    (soft / "config.yaml").write_text(yaml.safe_dump(other))
    text = re.sub(r"\s+", " ", page())
    assert "Differences from experiment=demo (2)" in text
    for key, values in (("data.batch_size", "3 in place of 8"), ("optimizer.lr", "0.25 in place of 0.001")):
        assert f"<dt>{key}</dt><dd>{values}</dd>" in text
    assert "captioning.run experiment=demo model=sat_soft data=shapes seed=7" in text
    assert "Its experiment was not recorded" in text  # of the other
    for strange in ("../../secrets", "demo,flickr8k", "${oc.env:HOME}", "unknown"):
        other["choices"]["experiment"] = strange
        (soft / "config.yaml").write_text(yaml.safe_dump(other))
        assert [differences(run) for run in find_runs(runs)[0]] == [None, None]
    assert "is not among those of this version" in page()


def test_damaged_files_are_named_and_left_out(runs: Path, soft: Path, tmp_path: Path) -> None:
    (soft / "attention.npz").write_bytes(b"no archive")
    damage = '{"image_id": 1, "caption": "\\ud83d", "references": []}\n'
    (runs / "flickr8k-lstm-seed1" / "captions.jsonl").write_text(damage)
    page, left_out = page_of(runs, tmp_path / "report")
    assert [line.partition(":")[0] for line in left_out] == ["captions of lstm", f"attention of {SOFT}"]
    assert held(page, 'class="data"')["systems"][0]["attention"] == "not kept"


def test_scores_that_only_sound_like_attention_are_among_the_others(runs: Path, page: Page) -> None:
    for path in runs.rglob("scores.json"):
        saved = json.loads(path.read_text())
        saved["scores"] |= {"attention span": 3.0, "inattention": 1.0}
        path.write_text(json.dumps(saved))
    shown, _ = table_of(systems_of(runs), [], None)
    assert {column["name"]: column["group"] for column in shown if "attention" in column["name"]} == {
        **{"attention entropy": "attention"},
        **dict.fromkeys(("attention span", "inattention"), "other scores"),
    }
    text = page()
    assert '<button type="button">entropy</button>' in text
    systems = held(text, 'class="data"')["systems"]
    assert {system["label"]: system["attention"] for system in systems} == {SOFT: "kept", "lstm": "none"}


def test_cider_needs_no_scorer_to_be_compared(tmp_path: Path) -> None:
    """The same as by the statistics that scorers keep, of all runs of each system, the better first."""
    scorer = Scorer(REFERENCES, ["CIDEr"])
    said = {"sat_soft": [SAID, ["a man", "two dogs", "the bus"]], "lstm": [["a man", "dogs", "the bus is"]]}
    found = {model: [scorer.score(dict(enumerate(captions))) for captions in runs] for model, runs in said.items()}
    for model, scored in found.items():
        for seed, scores in enumerate(scored, start=1):
            ciders = [image["CIDEr"] for image in scores.per_image]
            write_run(tmp_path, model, seed, 1.0, said[model][seed - 1], ciders)
    statistics = [[scores.statistics for scores in scored] for scored in found.values()]
    resampled = [resample(each, 100, 3, stream) for stream, each in enumerate(statistics)]
    expected = difference(*resampled)["CIDEr"]
    systems = systems_of(tmp_path)
    assert astuple(compare(systems, [], 100, 3)[0][0, 1]["CIDEr"]) == pytest.approx(astuple(expected), abs=1e-9)
    assert compare(systems, ["CIDEr"], 100, 3)[0][0, 1]["CIDEr"] == expected
    file = tmp_path / "flickr8k-sat_soft-seed2" / "captions.jsonl"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[1:]))
    assert compare(systems_of(tmp_path), [], 100, 3) == ({}, [])


def test_systems_are_compared_by_the_scores_that_both_have(runs: Path) -> None:
    file = runs / "flickr8k-lstm-seed1" / "captions.jsonl"
    file.write_text(file.read_text().replace('"CIDEr":', '"ROUGE-L": 40.0, "CIDEr":'))
    assert list(compare(systems_of(runs), [], 10, 0)[0][0, 1]) == ["CIDEr"]


def test_systems_of_a_page_look_different(tmp_path: Path) -> None:
    for number in range(16):
        write_run(tmp_path / "runs", f"model_{number}", 1, 1.0, ["a man"], [50])
    page, _ = page_of(tmp_path / "runs", tmp_path / "report")
    assert len(set(re.findall(r'<h4><span class="(swatch [^"]+)"', page))) == 16


def test_boxes_of_drawn_scenes_are_those_of_their_words(tmp_path: Path) -> None:
    example = ShapesReader(tmp_path, train=2, val=2, test=2, size=32)()["test"][0]
    reference = example.references[0]
    found = noun_boxes([example.path])[example.path]
    assert all(noun.box in found[reference.words[noun.word]] for noun in reference.nouns)
    assert noun_boxes([tmp_path / "elsewhere" / "1.png"]) == {}
