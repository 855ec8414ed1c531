"""What all readers share: types of entries, reading files into them, the choice of images for a split, and checks.

An error names the file and the place in it: `dataset.json: images[17].sentences[2].raw=3: must be a valid string`.
"""

import gc
import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from annotated_types import MaxLen, MinLen
from pydantic import AfterValidator, FailFast, Field, Strict, TypeAdapter, ValidationError

from captioning.config.types import Probability
from captioning.data.example import Example, Reference, Splits
from captioning.data.vocabulary import split_words
from captioning.errors import CaptioningError, quoted

# No data set of captions comes near; one of a million silences METEOR, hours after the start.
MAX_CHARACTERS = 10_000
MAX_LISTED = 3
"""Photographs that an error names."""
T = TypeVar("T")


def _below(name: str) -> str:
    if os.path.isabs(name) or "\0" in name or ".." in re.split(r"[/\\]", name):  # noqa: PTH117, for a path is slower
        raise ValueError("must be a path below the folder of photographs")
    return name


def _rising(ends: tuple[float, float]) -> tuple[float, float]:
    if ends[0] >= ends[1]:
        raise ValueError("must be two numbers from 0 to 1, the smaller first")
    return ends


Text = Annotated[str, MaxLen(MAX_CHARACTERS)]
ImageId = int | Text
Folder = Annotated[Text, AfterValidator(_below)]
FileName = Annotated[Folder, Field(pattern=r"[^./]")]
Each = Annotated[list[T], FailFast()]
"""A long list; errors name its first wrong entry."""
Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = ("train", "val", "test")
OfEachSplit = Annotated[Mapping[Split, T], MinLen(3)]
Part = str | Path | Annotated[tuple[Probability, Probability], Strict(False), AfterValidator(_rising)]
"""Which images of a file make a split: the two ends of a share of them, such as [0, 0.8], or a text file with one image
per line, its id or, where photographs have no ids, its file name."""


@dataclass(slots=True)
class Sentence:
    """A caption, and its words where the file has them."""

    raw: Text | None = None
    tokens: Annotated[tuple[Text, ...], MaxLen(MAX_CHARACTERS // 2)] | None = None


def make_example(image_id: ImageId, path: Path, captions: Iterable[Sentence]) -> Example:
    """A photograph with those of its captions that have words, which models and scorers need."""
    references = []
    for caption in captions:
        text, words = caption.raw, caption.tokens
        if text is None:
            text = " ".join(words or ())
            if words is None or len(text) > MAX_CHARACTERS:
                raise CaptioningError(
                    f"{path.name:.200}: a caption needs raw or tokens of at most {MAX_CHARACTERS} characters"
                )
        if words is None:
            words = split_words(text)
        if words:
            references.append(Reference(text, words))
    if not references:
        raise CaptioningError(f"{path.name:.200} has no caption with a word; remove it or give it one")
    return Example(image_id, path, tuple(references))


def by_image(found: Iterable[tuple[ImageId, T]]) -> dict[ImageId, T]:
    """Something of each image, by its id, which must not come twice."""
    values: dict[ImageId, T] = {}
    for image_id, value in found:
        if image_id in values:
            raise CaptioningError(f"the image {image_id!r:.200} occurs twice")
        values[image_id] = value
    return values


def choose(part: Part, images: Sequence[ImageId], source: Path) -> list[ImageId]:
    """The images of the file `source` that make a split: of a share in the file's order, of a list in its own.

    For shares the images are put into an order of chance that depends on their ids alone: adjacent shares, such as
    [0, 0.8] and [0.8, 1], have no image in common and leave none out.
    """
    if isinstance(part, tuple):
        start, end = (round(each * len(images)) for each in part)
        chosen = set(sorted(images, key=lambda image: sha256(str(image).encode()).digest())[start:end])
        return [image for image in images if image in chosen]
    known = {str(image): image for image in images}
    lines = [(place, line.strip()) for place, line in read_lines(Path(part).expanduser())]
    for place, name in lines:
        if name not in known:
            raise CaptioningError(f"{place}: {name:.200} is not among the {len(images)} images of {source}")
    return [known[name] for _, name in lines]


def read(reader: Callable[[], Splits], photographs: bool = True) -> Splits:
    """The examples of a reader, whose photographs must be on disk if a backbone reads `photographs`."""
    # Nothing that a reader builds is garbage: the collector would take half of the time at the size of COCO.
    collecting = gc.isenabled()
    gc.disable()
    try:
        splits = reader()
        paths = [example.path for examples in splits.values() for example in examples if photographs]
        if absent := absent_files(paths):
            names = ", ".join(map(quoted, absent[:MAX_LISTED])) + (", ..." if len(absent) > MAX_LISTED else "")
            advice = "set data.root to the folder that holds them"
            raise CaptioningError(f"{len(absent)} of {len(paths)} photographs are not on disk: {names}; {advice}")
        return splits
    except FileNotFoundError as error:
        error.add_note("data.root must be the folder of the data set, or a setting in data.reader name this file")
        raise
    finally:
        if collecting:
            gc.enable()


def check_splits(splits: Mapping[str, Sequence[Example]], source: object) -> None:
    """Refuse splits without images, or with an image twice; `source` names the file or files."""
    with at(source):
        if empty := [split for split, examples in splits.items() if not examples]:
            raise CaptioningError(f"no images for {', '.join(empty)}; each split needs some")
        for key, other in (("image_id", "path"), ("path", "image_id")):
            counts = Counter(getattr(example, key) for examples in splits.values() for example in examples)
            ((value, count),) = counts.most_common(1)
            if count > 1:
                places = ((split, each) for split, examples in splits.items() for each in examples)
                same = [f"{split} {getattr(each, other)}" for split, each in places if getattr(each, key) == value]
                twice = f"{same[0]:.200} and {same[1]:.200}"
                raise CaptioningError(f"the {key} {value!s:.200} occurs twice, for {twice}")


def absent_files(paths: Iterable[Path]) -> list[Path]:
    """Which of `paths` are not on disk, by one listing per folder: a call per file takes minutes on a network."""
    folders: dict[Path, list[Path]] = defaultdict(list)
    for path in paths:
        folders[path.parent].append(path)
    absent: list[Path] = []
    for folder, files in folders.items():
        present = set(os.listdir(folder)) if folder.is_dir() else ()  # noqa: PTH208, for paths are slower
        absent += [path for path in files if path.name not in present]
    return absent


def read_json(path: Path, layout: type[T], name: str) -> T:
    """Read a JSON file of a layout; errors call it `name`."""
    content = path.read_bytes()
    with at(f"{path}, read as {name}"):
        return TypeAdapter(layout).validate_json(content.decode(json.detect_encoding(content)), strict=True)


def read_json_lines(path: Path, layout: type[T]) -> list[T]:
    """The JSON of each line."""
    adapter, found = TypeAdapter(layout), []
    for place, line in read_lines(path):
        with at(place):
            found.append(adapter.validate_json(line, strict=True))
    return found


def read_lines(path: Path) -> list[tuple[str, str]]:
    """The lines of a UTF-8 text that are not blank, each with its place, `FILE, line 3`.

    Nothing but a line feed ends a line: some characters that Python also takes for line ends occur in captions.
    """
    content = path.read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = 1 + content.count(b"\n", 0, error.start)
        error.add_note(f"{path}, line {line} is not UTF-8; save the file as UTF-8")
        raise
    lines = enumerate(text.split("\n"), start=1)
    return [(f"{path}, line {number}", line.removesuffix("\r")) for number, line in lines if line.strip()]


@contextmanager
def at(place: object) -> Iterator[None]:
    """Name a file, or a place in it, in errors about its content."""
    try:
        yield
    except (CaptioningError, ValidationError, UnicodeDecodeError) as error:
        error.add_note(str(place))
        raise
