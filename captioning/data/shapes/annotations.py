"""COCO-form annotation files with a box for every noun: written here, read here.

    {"info": {...}, "images": [{"id", "file_name", "width", "height"}],
     "annotations": [{"id", "image_id", "caption", "nouns": [{"word", "bbox": [x, y, width, height]}]}]}

Boxes are in pixels, as in COCO's own files; `word` counts the caption's words from 0.
"""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from captioning.data.example import Example, Noun, Reference
from captioning.data.shapes.phrasing import Phrase


def image_entry(image_id: int, file_name: str, size: int) -> dict[str, Any]:
    """One entry of `images`, for a square picture of `size` pixels."""
    return {"id": image_id, "file_name": file_name, "width": size, "height": size}


def caption_entry(caption_id: int, image_id: int, phrase: Phrase, size: int) -> dict[str, Any]:
    """One entry of `annotations`."""
    nouns = []
    for word, thing in phrase.nouns:
        left, top, right, bottom = (value * size for value in thing.box)
        nouns.append({"word": word, "bbox": [round(value, 3) for value in (left, top, right - left, bottom - top)]})
    return {"id": caption_id, "image_id": image_id, "caption": phrase.text, "nouns": nouns}


def write_annotations(path: Path, info: dict[str, Any], images: list[Any], captions: list[Any]) -> None:
    """Writes a file that `read_annotations` reads."""
    path.write_text(json.dumps({"info": info, "images": images, "annotations": captions}), encoding="utf-8")


def read_annotations(path: Path) -> list[Example]:
    """Reads the file; picture names are relative to its folder.

    Raises:
        OSError, ValueError, KeyError: the file is missing or is not of this form.
    """
    content = json.loads(path.read_text(encoding="utf-8"))
    references: dict[int, list[Reference]] = defaultdict(list)
    sides = {image["id"]: (image["width"], image["height"]) for image in content["images"]}
    for entry in content["annotations"]:
        nouns = tuple(
            Noun(noun["word"], _fractions(noun["bbox"], *sides[entry["image_id"]])) for noun in entry["nouns"]
        )
        references[entry["image_id"]].append(Reference(entry["caption"], tuple(entry["caption"].split()), nouns))
    return [
        Example(image["id"], path.parent / image["file_name"], tuple(references[image["id"]]))
        for image in content["images"]
    ]


def _fractions(bbox: list[float], width: int, height: int) -> tuple[float, float, float, float]:
    left, top, across, down = bbox
    return left / width, top / height, (left + across) / width, (top + down) / height
