"""The page as a file; what it does is tried in a browser."""

import base64
import hashlib
import io
import json
import re
import shlex
from dataclasses import astuple

import numpy as np
import pytest
from markupsafe import escape
from pictures import plain
from PIL import Image
from written import (
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

from captioning.data.readers.captions import CaptionRecord
from captioning.data.shapes import ShapesReader
from captioning.metrics import Scorer
from captioning.report.comparison import compare_runs
from captioning.report.gallery import ImageEntry, lay_images, noun_boxes, read_image
from captioning.report.page import reproducing_command, table_of

STRANGE = ['</script><script>alert("1")</script>', "'\"&<!--", "\u202eleft \U0001f600"]


@pytest.fixture
def runs(tmp_path):
    """Three systems on three photographs; the first has kept its attention."""
    images = write_photographs(tmp_path / "data" / "images", 3)
    scores = {"attention entropy": 1.0, "attention span": 3.0}
    keep_maps(
        write_run(
            tmp_path / "runs", "sat_soft", 1, 21.0, SAID, [90, 10, 50], images, scores=scores
        ),
        SAID,
    )
    write_run(tmp_path / "runs", "lstm", 1, 18.5, ["a man", "a dog", "a"], [5, 80, 40], images)
    write_run(tmp_path / "runs", "strange<b>", 1, 1.0, STRANGE, [1, 2, 3], images)
    return tmp_path / "runs"


@pytest.fixture
def soft(runs):
    return runs / "flickr8k-sat_soft-seed1"


def page(runs, photographs="auto", **settings):
    text, left_out = page_of(runs, runs.parent / "report", photographs, **settings)
    assert left_out == []
    return text


def held(page, kind):
    """The JSON that the page's script reads."""
    (text,) = re.findall(rf'<script type="application/json" {kind}>(.*?)</script>', page, re.S)
    return json.loads(text)


FACTS = (
    'data-number="21.0" class="best">21.0</td>',
    '<td data-in="cost of training" data-number="1234567.0">1,234,567</td>',
    r'class="quoted">.*?quoted</span> Show, Attend and Tell, soft, \[SAT\] Table 1</th>',
    '<button type="button">entropy</button>',
    "The settings in which the systems of the table differ.",
    *(f'<p class="caption" dir="auto">{caption}</p>' for caption in SAID),
)


def test_all_is_there_without_a_script_no_text_is_markup_and_only_our_script_runs(runs):
    text = page(runs, drawn=True)
    assert not any(harm in text for harm in ("<script>alert", "strange<b>", "<!--"))
    data = held(text, 'class="data"')
    assert [image["answers"][2]["caption"] for image in data["images"]] == STRANGE
    assert [system["attention"] for system in data["systems"]] == ["kept", "none", "none"]
    policy = re.findall(r'Content-Security-Policy" content="(.*?)"', text)[0]
    for tag, part in (
        ("style", r"<style>(.*?)</style>"),
        ("script", r'<script type="module">(.*?)</script>'),
    ):
        digest = base64.b64encode(
            hashlib.sha256(re.findall(part, text, re.S)[0].encode()).digest()
        ).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none';")
    read = re.sub(r"<(script|template).*?</\1>", "", text, flags=re.S)
    assert [fact for fact in FACTS if not re.search(fact, read, re.S)] == []
    assert (read.count('src="data:image/jpeg;base64,'), read.count("no attention")) == (3, 6)
    (curves,) = re.findall(r'<img src="data:image/svg\+xml;base64,([^"]+)"', read)
    assert b"validation loss" in base64.b64decode(curves)
    columns, _ = table_of(systems_of(runs), [], None)
    groups = {column["name"]: column["group"] for column in columns}
    assert groups["attention entropy"] == "attention"
    assert groups["attention span"] == "other scores"  # which only sounds so


def test_photographs_lie_beside_a_page_that_would_be_too_large(runs, tmp_path):
    addresses = held(page(runs, embed_mb=0, image_size=100), 'class="pictures"')
    assert len(set(addresses)) == 1  # they are all alike
    with Image.open(tmp_path / "report" / addresses[0]) as picture:
        assert (picture.format, picture.size) == ("JPEG", (100, 50))
    assert held(page(runs, None), 'class="pictures"') == [None] * 3
    elsewhere = (tmp_path / "data").rename(tmp_path / "moved") / "images"
    for file in runs.rglob("captions.jsonl"):  # out of its folder and in again
        file.write_text(file.read_text().replace("1.png", "../images/1.png"))
    first, *others = held(page(runs, str(elsewhere)), 'class="pictures"')
    assert first is None
    assert None not in others
    (elsewhere / "text.png").write_text("no picture")
    for name in ("absent.png", "text.png", "a\0b", ""):
        assert read_image([elsewhere / name], 64) == (b"", None)
    Image.fromarray(np.array([[0, 2048, 4095]], dtype=np.uint16)).save(elsewhere / "deep.png")
    shown, _ = read_image([elsewhere / "deep.png"], 64)
    with Image.open(io.BytesIO(shown)) as picture:
        assert np.asarray(picture)[0, :, 0] == pytest.approx([0, 127, 255], abs=9)


def test_the_images_of_an_example_are_side_by_side_as_squares(tmp_path):
    for name, colour in (("a.png", "red"), ("b.png", "blue"), ("c+d.png", "lime")):
        plain(tmp_path / name, (90, 30), colour)
    settings = {"data.reader.root": str(tmp_path), "backbone.images": 2}
    padded = settings | {"backbone.of.resize": "pad"}
    names = ["a.png+b.png", "a.png", "c+d.png", "a.png+../b.png", "a.png+absent.png", "b.png"]
    images = [
        ImageEntry(i, ["a"], {i > 4: CaptionRecord(image_id=i, caption="a", photograph=name)})
        for i, name in enumerate(names)
    ]
    lay_images(images, [settings, padded], "auto", 60)
    assert [image.size for image in images] == [(60, 30)] * 3 + [None] * 2 + [(60, 30)]
    red, blue, lime, black = (250, 0, 0), (0, 0, 250), (0, 250, 0), (0, 0, 0)
    for image, expected in zip(
        [image for image in images if image.size],
        [(red, red, blue), (red, red, black), (lime, lime, black), (blue, black, black)],
        strict=True,
    ):
        with Image.open(io.BytesIO(image.jpeg)) as picture:
            found = [picture.getpixel(place) for place in ((15, 15), (15, 3), (45, 15))]
        assert np.abs(np.array(found) - expected).max() < 20


def test_maps_are_bytes_in_shares_of_their_peak(runs, soft):
    keep_maps(soft, ["a man walks", *SAID[1:]], attended=True)  # the first is of another test
    text = page(runs, heads=1)
    assert re.findall(r'id="(map-.*?)"', text) == ["map-1-0-1", "map-1-0-2"]
    first, second = (held(text, f'id="map-1-0-{image}"') for image in (1, 2))
    assert (first["names"], second["names"]) == (["mean", "inter 1 1"], ["mean"])
    mean = np.frombuffer(base64.b64decode(second["maps"]), np.uint8).reshape(1, 3, 4, 4)
    assert [np.unravel_index(each.argmax(), each.shape) for each in mean[0]] == list(CORNERS[:3])
    assert set(mean.flatten()) == {255, 5}
    assert [first["path"], second["path"]] == [[0, 5, 5]] * 2  # beyond `heads` too
    assert "Hard attention that took one place" in text


def test_damaged_files_are_named_and_left_out(runs, soft, tmp_path):
    (soft / "attention.npz").write_bytes(b"no archive")
    damage = '{"image_id": 1, "caption": "\\ud83d", "references": []}\n'
    (runs / "flickr8k-lstm-seed1" / "captions.jsonl").write_text(damage)
    text, left_out = page_of(runs, tmp_path / "report")
    assert [line.partition(":")[0] for line in left_out] == [
        "captions of lstm",
        f"attention of {SOFT}",
    ]
    assert held(text, 'class="data"')["systems"][0]["attention"] == "not kept"


def test_cider_needs_no_scorer_to_be_compared(tmp_path):
    """The same as by the statistics that scorers keep, of all runs of each system, the better
    first.
    """
    scorer = Scorer(REFERENCES, ["CIDEr"])
    said = {
        "sat_soft": [SAID, ["a man", "two dogs", "the bus"]],
        "lstm": [["a man", "dogs", "the bus is"]],
    }
    for model, runs in said.items():
        for seed, captions in enumerate(runs, start=1):
            scores = scorer.score(dict(enumerate(captions)))
            ciders = [image["CIDEr"] for image in scores.per_image]
            write_run(tmp_path, model, seed, 1.0, captions, ciders)
    systems = systems_of(tmp_path)
    held, scored = (compare_runs(systems, m)[0][0, 1]["CIDEr"] for m in ([], ["CIDEr"]))
    assert astuple(held) == pytest.approx(astuple(scored), abs=1e-9)
    file = tmp_path / "flickr8k-sat_soft-seed2" / "captions.jsonl"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[1:]))
    assert compare_runs(systems_of(tmp_path), []) == ({}, [])


def test_systems_of_a_page_look_different(tmp_path):
    for number in range(16):
        write_run(tmp_path / "runs", f"model_{number}", 1, 1.0, ["a man"], [50])
    assert len(set(re.findall(r'<h4><span class="(swatch [^"]+)"', page(tmp_path / "runs")))) == 16


def test_boxes_of_drawn_scenes_are_those_of_their_words(tmp_path):
    example = ShapesReader(tmp_path, train=2, val=2, test=2, size=32)()["test"][0]
    reference = example.references[0]
    found = noun_boxes([example.path])[example.path]
    assert all(noun.box in found[reference.words[noun.word]] for noun in reference.nouns)
    assert noun_boxes([tmp_path / "elsewhere" / "1.png"]) == {}


def test_the_command_of_a_system_is_the_recorded_one(tmp_path):
    given = ["model=sat_soft", "data.root='my data'", "seed=1", "test=false", "optimizer.lr=0.1"]
    recorded = {"overrides": given, "config_dir": "conf of mine"}
    for seed in (1, 2):
        write_run(tmp_path, "sat_soft", seed, **recorded)
    write_run(tmp_path, "up_down", 3, overrides=["experiment=unknown", "model=up_down"])
    soft, other = systems_of(tmp_path)
    command_of_soft = reproducing_command(soft)
    assert shlex.split(command_of_soft) == [
        *("captioning", "run", "--config-dir", "conf of mine", "-m", "model=sat_soft"),
        *("data.root=my data", "optimizer.lr=0.1", "seed=1,2"),
    ]
    assert shlex.split(reproducing_command(other))[2:] == [
        *("hydra.mode=RUN", "experiment=unknown", "model=up_down", "seed=3")
    ]
    assert escape(command_of_soft) in page(tmp_path)
