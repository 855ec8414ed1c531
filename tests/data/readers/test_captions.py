"""Files of captions and references: what is read, and what is refused with its place."""

import json
from pathlib import Path
from typing import Any

import pytest

from captioning.data.readers.captions import common_images, read_captions, read_references
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


def test_all_images_or_none() -> None:
    references = {i: ["x"] for i in range(6)}
    whole: dict[Any, str] = dict.fromkeys(reversed(range(6)), "y")
    assert common_images(references, {"captions=a": whole, "against=b": whole}, False) == list(range(6))
    part = {0: "y", 5: "y", "z": "y"}
    with pytest.raises(CaptioningError, match=r"^against=b .* 4 of 6 images: 1, 2, 3, \.\.\.; .* 1 for .*: 'z'\."):
        common_images(references, {"captions=a": whole, "against=b": part}, False)
    assert common_images(references, {"captions=a": whole, "against=b": part}, True) == [0, 5]
    with pytest.raises(CaptioningError, match=r"captions=a .* 2 for .*: 8, 9"):
        common_images(references, {"captions=a": whole | {8: "y", 9: "y"}}, False)


@pytest.mark.parametrize("common_only", [True, False])
def test_numbers_are_not_text(common_only: bool) -> None:
    with pytest.raises(CaptioningError, match="1"):
        common_images({1: ["x"]}, {"captions=a": {"1": "y"}}, common_only)
