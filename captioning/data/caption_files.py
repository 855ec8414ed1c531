"""Captions and references that lie in files, for scoring without a model.

A file of captions is COCO's results format, `[{"image_id", "caption"}, ...]`, or the `captions.jsonl` of a run or an
evaluation, one such object a line. References are one of COCO's annotation files, `{"images": [{"id"}, ...],
"annotations": [{"image_id", "caption"}, ...]}`, or a `captions.jsonl`, whose lines hold a list `references`.
Source: Chen et al., "Microsoft COCO Captions: Data Collection and Evaluation Server", 2015.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from captioning.data.readers.files import read_json, read_lines
from captioning.data.readers.splits import MAX_CHARACTERS, is_whole
from captioning.errors import CaptioningError

ImageId = int | str
NAMED = 3
"""Image ids that an error shows."""


def read_captions(path: Path) -> dict[ImageId, str]:
    """The caption of each image, in the file's order.

    Raises:
        CaptioningError: the file is missing or malformed, or has an image twice; it names the place.
    """
    captions: dict[ImageId, str] = {}
    for place, item in _lines(path) if path.suffix == ".jsonl" else _results(path):
        image_id = _image_id(item, "image_id", place)
        if image_id in captions:
            raise CaptioningError(f"{place}: the image {image_id!r:.200} has a caption already; give each image one")
        captions[image_id] = _text(_value(item, "caption", place), f"{place}: caption")
    if not captions:
        raise CaptioningError(f"{path} holds no captions")
    return captions


def read_references(path: Path, bare: bool = False) -> dict[ImageId, list[str]]:
    """The references of each image, in the order of the images.

    Args:
        path: of the file.
        bare: whether images may be without references.

    Raises:
        CaptioningError: the file is missing or malformed, has an image twice, a reference of an image that is not
            there, or an image without references where it must not be; it names the place.
    """
    references = _references_of_lines(path) if path.suffix == ".jsonl" else _annotations(path)
    without = [] if bare else [image_id for image_id, texts in references.items() if not texts]
    if without or not references:
        what = f"references for {len(without)} of {len(references)} images: {_named(without)}" if without else "images"
        raise CaptioningError(f"{path} has no {what}")
    return references


def common_images(
    references: Mapping[ImageId, Collection[str]], files: Mapping[str, Mapping[ImageId, str]], common_only: bool
) -> list[ImageId]:
    """The images to score, in the order of `references`.

    Args:
        references: by image.
        files: captions by image, and these by what the errors call them.
        common_only: leave out images that `references` or one of the files has not.

    Raises:
        CaptioningError: no image is in all of them; or, without `common_only`, not all are.
    """
    for name, captions in files.items():
        missing = [image_id for image_id in references if image_id not in captions]
        extra = [image_id for image_id in captions if image_id not in references]
        if (missing or extra) and not common_only:
            problems = []
            if missing:
                problems.append(f"has no caption for {len(missing)} of {len(references)} images: {_named(missing)}")
            if extra:
                problems.append(f"has {len(extra)} for images without references: {_named(extra)}")
            raise CaptioningError(
                f"{name} {'; and it '.join(problems)}. Scores of a part of the images compare with nothing; "
                "common_only=true scores the images that all files have, and says so in scores.json"
            )
    images = [image_id for image_id in references if all(image_id in captions for captions in files.values())]
    if not images:
        raise CaptioningError(
            f"{', '.join(files)} and the references have no image in common; ids of the references: "
            f"{_named(list(references))}"
        )
    return images


def _results(path: Path) -> Iterator[tuple[str, Any]]:
    content = read_json(_existing(path))
    if not isinstance(content, list):
        keys = f" with the keys {_named(list(content))}" if isinstance(content, dict) else ""
        hint = "; is it the file of references?" if isinstance(content, dict) and "annotations" in content else ""
        raise CaptioningError(f'{path} holds {_kind(content)}{keys}, not a list of {{"image_id", "caption"}}{hint}')
    return ((f"{path}: [{position}]", item) for position, item in enumerate(content))


def _lines(path: Path) -> Iterator[tuple[str, Any]]:
    for place, line in read_lines(_existing(path)):
        try:
            yield place, json.loads(line)
        except ValueError as error:
            raise CaptioningError(f"{place} is not JSON: {error}") from error
        except RecursionError as error:
            raise CaptioningError(f"{place} is nested too deeply to hold a caption; is it the right file?") from error


def _references_of_lines(path: Path) -> dict[ImageId, list[str]]:
    references: dict[ImageId, list[str]] = {}
    for place, item in _lines(path):
        image_id = _image_id(item, "image_id", place)
        if image_id in references:
            raise CaptioningError(f"{place}: the image {image_id!r:.200} occurs twice")
        texts = _list(_value(item, "references", place), f"{place}: references")
        references[image_id] = [_text(text, f"{place}: references[{i}]") for i, text in enumerate(texts)]
    return references


def _annotations(path: Path) -> dict[ImageId, list[str]]:
    content = read_json(_existing(path))
    if not isinstance(content, dict) or "annotations" not in content:
        karpathy = isinstance(content, dict) and "images" in content
        hint = (
            "has no list annotations, as the Karpathy layout; score with the captions.jsonl of a run on this data set"
            if karpathy
            else "is no COCO annotation file (an object with the lists images and annotations); set references=FILE"
        )
        raise CaptioningError(f"{path} {hint}")
    references: dict[ImageId, list[str]] = {}
    for position, image in enumerate(_list(content.get("images"), f"{path}: images")):
        image_id = _image_id(image, "id", f"{path}: images[{position}]")
        if image_id in references:
            raise CaptioningError(f"{path}: images[{position}]: the image {image_id!r:.200} occurs twice")
        references[image_id] = []
    for position, item in enumerate(_list(content["annotations"], f"{path}: annotations")):
        place = f"{path}: annotations[{position}]"
        image_id = _image_id(item, "image_id", place)
        if image_id not in references:
            raise CaptioningError(f"{place}: the image {image_id!r:.200} is not among the images")
        references[image_id].append(_text(_value(item, "caption", place), f"{place}: caption"))
    return references


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise CaptioningError(f"{path} is {'a folder' if path.is_dir() else 'not there'}; name a file of captions")
    return path


def _value(item: Any, key: str, place: str) -> Any:
    if not isinstance(item, dict):
        raise CaptioningError(f"{place} is {_kind(item)}, not an object with {key}")
    if key not in item:
        raise CaptioningError(f"{place} has no {key}; it has {_named(list(item)) or 'nothing'}")
    return item[key]


def _image_id(item: Any, key: str, place: str) -> ImageId:
    image_id = _value(item, key, place)
    if isinstance(image_id, int) and not isinstance(image_id, bool):
        return image_id
    return _text(image_id, f"{place}: {key}", allowed="a whole number or text")


def _text(value: Any, place: str, allowed: str = "text") -> str:
    if not isinstance(value, str):
        raise CaptioningError(f"{place} is {_kind(value)}; it must be {allowed}")
    if len(value) > MAX_CHARACTERS:
        raise CaptioningError(f"{place} has {len(value):,} characters; the scorers compare at most {MAX_CHARACTERS:,}")
    if not is_whole(value):
        raise CaptioningError(f"{place} holds half a character, such as a cut emoji: {value!r:.99}")
    return value


def _list(value: Any, place: str) -> list[Any]:
    if not isinstance(value, list):
        raise CaptioningError(f"{place} is {_kind(value)}; it must be a list")
    return value


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
    return kinds.get(type(value), "null")


def _named(values: list[Any]) -> str:
    return ", ".join(f"{value!r:.60}" for value in values[:NAMED]) + (", ..." if len(values) > NAMED else "")
