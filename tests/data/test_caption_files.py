"""Files of captions and references: what is read, and what is refused with its place."""

import json
from pathlib import Path
from typing import Any

import pytest

from captioning.data.caption_files import common_images, read_captions, read_references
from captioning.errors import CaptioningError

IMAGES = [{"id": 7}, {"id": 3}, {"id": "a.jpg"}]
ANNOTATIONS = [
    {"id": 1, "image_id": 3, "caption": "A dog."},
    {"id": 2, "image_id": 7, "caption": "a cat"},
    {"id": 3, "image_id": 3, "caption": "the dog\u2028runs"},
    {"id": 4, "image_id": "a.jpg", "caption": "birds"},
]


def saved(folder: Path, content: Any, name: str = "file.json") -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def lines(*entries: Any) -> str:
    return "".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries)


def test_results_and_annotations(tmp_path: Path) -> None:
    results = [{"image_id": 7, "caption": "a cat", "score": 1}, {"image_id": "a.jpg", "caption": ""}]
    assert read_captions(saved(tmp_path, results)) == {7: "a cat", "a.jpg": ""}
    references = read_references(saved(tmp_path, {"images": IMAGES, "annotations": ANNOTATIONS, "info": {}}))
    assert references == {7: ["a cat"], 3: ["A dog.", "the dog\u2028runs"], "a.jpg": ["birds"]}
    assert list(references) == [7, 3, "a.jpg"]


def test_lines_of_a_run_are_both(tmp_path: Path) -> None:
    text = lines(
        {"image_id": 7, "caption": "a\u2028cat", "references": ["x", "y"], "scores": {"CIDEr": 1.0}},
        {"image_id": "a.jpg", "caption": "b", "references": ["z"]},
    )
    path = saved(tmp_path, text, "captions.jsonl")
    assert read_captions(path) == {7: "a\u2028cat", "a.jpg": "b"}
    assert read_references(path) == {7: ["x", "y"], "a.jpg": ["z"]}


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("[{", ["not JSON", "line 1 column"]),
        ("", ["not JSON"]),
        ("[" * 100_000, ["nested too deeply"]),
        ([], ["holds no captions"]),
        ("null", ["holds null", '{"image_id", "caption"}']),
        ({"images": [], "annotations": []}, ["an object with the keys 'images', 'annotations'", "file of references?"]),
        ([{"image_id": 1, "caption": "a"}, 5], ["[1] is a number, not an object"]),
        ([{"image_id": 1, "text": "a"}], ["[0] has no caption; it has 'image_id', 'text'"]),
        ([{"caption": "a"}], ["[0] has no image_id"]),
        ([{"image_id": 1.5, "caption": "a"}], ["[0]: image_id is a number; it must be a whole number or text"]),
        ([{"image_id": True, "caption": "a"}], ["[0]: image_id is true or false"]),
        ([{"image_id": [1], "caption": "a"}], ["[0]: image_id is a list"]),
        ([{"image_id": 1, "caption": None}], ["[0]: caption is null; it must be text"]),
        ([{"image_id": 1, "caption": "a " * 6000}], ["[0]: caption has 12,000 characters"]),
        ([{"image_id": 1, "caption": "a \ud83d"}], ["[0]: caption holds half a character", "'a \\ud83d'"]),
        ([{"image_id": "\ud83d", "caption": "a"}], ["[0]: image_id holds half a character"]),
        ([{"image_id": 1, "caption": "a"}] * 2, ["[1]: the image 1 has a caption already"]),
    ],
)
def test_malformed_captions(tmp_path: Path, content: Any, parts: list[str]) -> None:
    path = saved(tmp_path, content)
    with pytest.raises(CaptioningError) as refused:
        read_captions(path)
    for part in (str(path), *parts):
        assert part in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (lines({"image_id": 1, "caption": "a"}) + "{\n", ["line 2 is not JSON"]),
        (lines({"image_id": 1, "caption": "a"}) + "[" * 100_000 + "\n", ["line 2 is nested too deeply"]),
        (lines({"image_id": 1, "caption": "a"}, {"image_id": 1, "caption": "a"}), ["line 2: the image 1"]),
        (lines({"image_id": 1, "caption": 3}), ["line 1: caption is a number"]),
    ],
)
def test_malformed_lines(tmp_path: Path, content: str, parts: list[str]) -> None:
    path = saved(tmp_path, content, "captions.jsonl")
    with pytest.raises(CaptioningError) as refused:
        read_captions(path)
    for part in (str(path), *parts):
        assert part in str(refused.value)


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ([{"image_id": 1, "caption": "a"}], ["no COCO annotation file", "references=FILE"]),
        ({"images": [{"sentences": []}]}, ["Karpathy", "captions.jsonl of a run"]),
        ({"images": [], "annotations": []}, ["no images"]),
        ({"annotations": ANNOTATIONS}, ["images is null; it must be a list"]),
        ({"images": IMAGES, "annotations": {}}, ["annotations is an object; it must be a list"]),
        ({"images": [{"file_name": "x"}], "annotations": []}, ["images[0] has no id"]),
        ({"images": [*IMAGES, {"id": 3}], "annotations": ANNOTATIONS}, ["images[3]: the image 3 occurs twice"]),
        ({"images": IMAGES[:2], "annotations": ANNOTATIONS}, ["annotations[3]: the image 'a.jpg' is not among"]),
        ({"images": [*IMAGES, {"id": 9}], "annotations": ANNOTATIONS}, ["no references for 1 of 4 images: 9"]),
        ({"images": IMAGES, "annotations": [{"image_id": 3}]}, ["annotations[0] has no caption"]),
        ("{" * 100_000, ["not JSON"]),
        ('{"a":' * 100_000, ["nested too deeply"]),
    ],
)
def test_malformed_references(tmp_path: Path, content: Any, parts: list[str]) -> None:
    path = saved(tmp_path, content)
    with pytest.raises(CaptioningError) as refused:
        read_references(path)
    for part in (str(path), *parts):
        assert part in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("entry", "part"),
    [
        ({"image_id": 1, "caption": "a"}, "line 1 has no references"),
        ({"image_id": 1, "references": "a"}, "line 1: references is text; it must be a list"),
        ({"image_id": 1, "references": ["a", 2]}, "line 1: references[1] is a number"),
        ({"image_id": 1, "references": []}, "no references for 1 of 1 images: 1"),
    ],
)
def test_malformed_references_in_lines(tmp_path: Path, entry: Any, part: str) -> None:
    with pytest.raises(CaptioningError) as refused:
        read_references(saved(tmp_path, lines(entry), "captions.jsonl"))
    assert part in str(refused.value)


@pytest.mark.parametrize("read", [read_captions, read_references])
@pytest.mark.parametrize("name", ["no.json", "no.jsonl", ""])
def test_missing_files(tmp_path: Path, read: Any, name: str) -> None:
    with pytest.raises(CaptioningError, match="is a folder" if not name else "is not there"):
        read(tmp_path / name)


def test_all_images_or_none() -> None:
    references = {i: ["x"] for i in range(6)}
    whole = dict.fromkeys(reversed(range(6)), "y")
    assert common_images(references, {"captions=a": whole, "against=b": whole}, False) == list(range(6))
    part = {0: "y", 5: "y", "z": "y"}
    with pytest.raises(CaptioningError) as refused:
        common_images(references, {"captions=a": whole, "against=b": part}, False)
    message = str(refused.value)
    assert message.startswith("against=b has no caption for 4 of 6 images: 1, 2, 3, ...")
    assert "it has 1 for images without references: 'z'" in message
    assert "common_only=true" in message
    assert common_images(references, {"captions=a": whole, "against=b": part}, True) == [0, 5]
    with pytest.raises(CaptioningError, match="captions=a has 2 for images without references: 8, 9"):
        common_images(references, {"captions=a": whole | {8: "y", 9: "y"}}, False)


@pytest.mark.parametrize("common_only", [True, False])
def test_numbers_are_not_text(common_only: bool) -> None:
    with pytest.raises(CaptioningError, match="1"):
        common_images({1: ["x"]}, {"captions=a": {"1": "y"}}, common_only)
