"""Layouts of caption files as types, and reading files into them.

An error names the file and the place in it: `dataset.json: images[17].sentences[2].raw=3: must be a valid string`.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Annotated, Generic, Literal, TypeVar

from annotated_types import MaxLen
from pydantic import AfterValidator, FailFast, TypeAdapter, ValidationError

from captioning.errors import CaptioningError, quoted

# No data set of captions comes near; one of a million silences METEOR, hours after the start.
MAX_CHARACTERS = 10_000
T = TypeVar("T")


def _inside(name: str) -> str:
    if not _is_inside(PurePath(name)):
        raise ValueError("must be a path below the folder of photographs")
    return name


def _file(name: str) -> str:
    if not (_is_inside(path := PurePath(name)) and path.name):
        raise ValueError("must name a file below the folder of photographs")
    return name


def _is_inside(path: PurePath) -> bool:
    return not (path.is_absolute() or ".." in path.parts or "\0" in str(path))


Text = Annotated[str, MaxLen(MAX_CHARACTERS)]
ImageId = int | Text
Folder = Annotated[Text, AfterValidator(_inside)]
FileName = Annotated[Text, AfterValidator(_file)]
Each = Annotated[list[T], FailFast()]
"""A long list; errors name its first wrong entry."""


@dataclass(slots=True, kw_only=True)
class Sentence:
    """A caption of Karpathy's files."""

    raw: Text | None = None
    tokens: Annotated[list[Text], MaxLen(MAX_CHARACTERS // 2)] | None = None


@dataclass(slots=True, kw_only=True)
class KarpathyImage:
    """A photograph of Karpathy's files, whatever its split."""

    filename: FileName
    filepath: Folder = ""
    cocoid: ImageId | None = None
    imgid: ImageId | None = None
    sentences: list[Sentence]


@dataclass(slots=True, kw_only=True)
class SplitImage(KarpathyImage):
    """The same with its split."""

    split: Literal["train", "val", "test", "restval"]


@dataclass(slots=True)
class KarpathyFile(Generic[T]):
    """`{"images": [...]}`."""

    images: Each[T]


@dataclass(slots=True)
class Identified:
    """An image of a COCO file, as far as scores need it."""

    id: ImageId


@dataclass(slots=True)
class CocoImage(Identified):
    """An image of a COCO file."""

    file_name: FileName


@dataclass(slots=True)
class Annotation:
    """A caption of a COCO file, or of a file of results."""

    image_id: ImageId
    caption: Text


Image = TypeVar("Image", bound=Identified)


@dataclass(slots=True)
class CocoFile(Generic[Image]):
    """`{"images": [...], "annotations": [...]}`."""

    images: Each[Image]
    annotations: Each[Annotation]

    def captions(self, path: Path) -> dict[ImageId, list[str]]:
        """The captions of each image, in the order of the images; `path` names the file in errors."""
        images = enumerate(self.images)
        captions = by_image((f"{path}: images[{position}]", image.id, list[str]()) for position, image in images)
        for position, each in enumerate(self.annotations):
            if each.image_id not in captions:
                raise CaptioningError(f"{path}: annotations[{position}]: no image has the id {each.image_id!r:.200}")
            captions[each.image_id].append(each.caption)
        return captions


def by_image(found: Iterable[tuple[str, ImageId, T]]) -> dict[ImageId, T]:
    """Something of each image; `found` are its places in a file, image ids and values."""
    values: dict[ImageId, T] = {}
    for place, image_id, value in found:
        if image_id in values:
            raise CaptioningError(f"{place}: the image {image_id!r:.200} occurs twice")
        values[image_id] = value
    return values


def read_json(path: Path, layout: type[T], name: str) -> T:
    """Read a JSON file of a layout; errors call it `name`."""
    content = _read_bytes(path)
    with at(f"{path}, read as {name}"):
        encoding = json.detect_encoding(content)
        text = content if encoding == "utf-8" else content.decode(encoding)  # it may be large
        return TypeAdapter(layout).validate_json(text, strict=True)


def read_json_lines(path: Path, layout: type[T]) -> Iterator[tuple[str, T]]:
    """The JSON of each line, with its place in the file."""
    adapter = TypeAdapter(layout)
    for place, line in read_lines(path):
        with at(place):
            found = adapter.validate_json(line, strict=True)
        yield place, found


def read_lines(path: Path) -> list[tuple[str, str]]:
    """The lines of a UTF-8 text that are not blank, each with its place, `FILE, line 3`.

    A byte-order mark and the line ends of Windows are left out. Nothing but a line feed ends a line: some characters
    that Python also takes for line ends occur in captions.
    """
    content = _read_bytes(path)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = 1 + content.count(b"\n", 0, error.start)
        error.add_note(f"{path}, line {line} is not UTF-8; save the file as UTF-8")
        raise
    lines = enumerate(text.split("\n"), start=1)
    return [(f"{path}, line {number}", line.removesuffix("\r")) for number, line in lines if line.strip()]


@contextmanager
def at(place: str) -> Iterator[None]:
    """Errors of validation name the place."""
    try:
        yield
    except (ValidationError, UnicodeDecodeError) as error:
        error.add_note(place)
        raise


def _read_bytes(path: Path) -> bytes:
    if path.exists() and not path.is_file() and not path.is_dir():
        raise CaptioningError(f"{quoted(path)} is a device or a pipe, which might never end; name a file")
    return path.read_bytes()
