"""Shared parts of the readers: types of entries, parsing, splits and checks.

Errors name the file and the position: `dataset.json: images[17].sentences[2].raw=3: must be a valid
string`.
"""

import gc
import json
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, TypeVar

from annotated_types import MaxLen, MinLen
from pydantic import AfterValidator, FailFast, Field, Strict, TypeAdapter, ValidationError

from captioning.config.types import Probability, rising
from captioning.data.example import Example, Reference, Split, Splits
from captioning.data.readers.skipping import SKIPPED, at, or_skip, without_faulty
from captioning.data.words import ENGLISH_WORDS, Language, split_words
from captioning.errors import CaptioningError, listed, quoted
from captioning.files import read_bytes

# Far above any real caption; a caption of a million characters makes METEOR hang, hours after the
# start.
MAX_CHARACTERS = 10_000
TEXTS = (".json", ".jsonl", ".csv", ".tsv", ".txt", ".token")
_WORDLESS = "{} has no caption with a word; remove it or give it one"
T = TypeVar("T")


def _below(name: str) -> str:
    if os.path.isabs(name) or "\0" in name or ".." in re.split(r"[/\\]", name):  # noqa: PTH117, because paths are slower
        raise ValueError("must be a path below the folder of photographs")
    return name


Text = Annotated[str, MaxLen(MAX_CHARACTERS)]
ImageId = int | Text
Folder = Annotated[Text, AfterValidator(_below)]
FileName = Annotated[Folder, Field(pattern=r"[^./]")]
FailFastList = Annotated[list[T], FailFast()]
"""A long list; errors name its first wrong entry."""
Reader = Callable[[], dict[str, list[Example]]]
OfEachSplit = Annotated[Mapping[Split, T], MinLen(3)]
Part = (
    str | Path | Annotated[tuple[Probability, Probability], Strict(False), AfterValidator(rising)]
)
"""The images of a file that make a split: the two ends of a share, such as [0, 0.8], or a text file
with one image id (or file name, if photographs have no ids) per line.
"""


@dataclass(slots=True)
class Sentence:
    """A caption, and its words if the file has them."""

    raw: Text | None = None
    tokens: Annotated[tuple[Text, ...], MaxLen(MAX_CHARACTERS // 2)] | None = None


def make_example(image_id: ImageId, path: Path, captions: Iterable[Sentence]) -> Example:
    """Make an example of a photograph and its captions, without captions that have no words."""
    references, wordless = [], 0
    for caption in captions:
        text, words = caption.raw, caption.tokens
        if text is None:
            text = " ".join(words or ())
            if words is None or len(text) > MAX_CHARACTERS:
                raise CaptioningError(
                    f"{path.name:.200}: a caption needs raw or tokens of at most {MAX_CHARACTERS} "
                    "characters"
                )
        if words is None:
            words = split_words(text)
        if words:
            references.append(Reference(text, words))
        else:
            wordless += 1
    if not references:
        raise CaptioningError(_WORDLESS.format(path.name[:200]))
    return Example(image_id, path, tuple(references), wordless)


def by_image(found: Iterable[tuple[ImageId, T]]) -> dict[ImageId, T]:
    """A dictionary by image id; duplicate ids are errors."""
    values: dict[ImageId, T] = {}
    for image_id, value in found:
        with or_skip():
            if image_id in values:
                raise CaptioningError(f"the image {image_id!r:.200} occurs twice")
            values[image_id] = value
    return values


def choose_examples(
    part: Part, captions: Mapping[Any, Sequence[str]], paths: Mapping[Any, Path], source: Path
) -> list[Example]:
    """The examples of the images in the file `source` that belong to a split, see `choose`."""
    with at(source):
        chosen, examples = choose(part, list(captions), source), []
        for each in chosen:
            with or_skip():
                examples.append(make_example(each, paths[each], map(Sentence, captions[each])))
        return examples


def choose(part: Part, images: Sequence[ImageId], source: Path) -> list[ImageId]:
    """Choose the images of the file `source` that belong to a split.

    Shares are taken from a pseudorandom order that depends on the ids alone, so that adjacent
    shares, such as [0, 0.8] and [0.8, 1], are disjoint and complete; the result is in the file's
    order. A list keeps its own order.
    """
    if isinstance(part, tuple):
        start, end = (round(each * len(images)) for each in part)
        chosen = set(
            sorted(images, key=lambda image: sha256(str(image).encode()).digest())[start:end]
        )
        return [image for image in images if image in chosen]
    known = {str(image): image for image in images}
    lines = [(place, line.strip()) for place, line in read_lines(Path(part).expanduser())]
    chosen_ids = []
    for place, name in lines:
        with or_skip():
            if name not in known:
                raise CaptioningError(
                    f"{place}: {name:.200} is not among the {len(images)} images of {source}"
                )
            chosen_ids.append(known[name])
    return chosen_ids


def read(
    reader: Reader,
    photographs: bool = True,
    language: Language = ENGLISH_WORDS,
    skipped: list[Exception] | None = None,
) -> Splits:
    """Call a reader, and split its captions again unless they are in English words.

    The photographs must be on disk if a backbone reads `photographs`. Malformed entries, images
    without captions and absent photographs are errors, or are left out and listed in `skipped`.
    """
    outer = SKIPPED.set(skipped)
    # Readers produce no garbage, and for COCO the garbage collector would take half of the time.
    collecting = gc.isenabled()
    gc.disable()
    try:
        splits = reader()
        if skipped:  # one file of several splits is read for each
            skipped[:] = {
                (str(error), *getattr(error, "__notes__", ())): error for error in skipped
            }.values()
        paths = [
            example.path for examples in splits.values() for example in examples if photographs
        ]
        if absent := absent_files(paths):
            if skipped is None or len(absent) == len(paths):
                names = listed([quoted(path) for path in absent])
                advice = (
                    _advice(absent[0])
                    if len(absent) == len(paths)
                    else "leave them out with data.skip_broken=true"
                )
                raise CaptioningError(
                    f"{len(absent)} of {len(paths)} photographs are not on disk: {names}; {advice}"
                )
            skipped += [CaptioningError(f"{quoted(path)} is not on disk") for path in absent]
            gone = {*absent}
            splits = {
                name: [e for e in examples if e.path not in gone]
                for name, examples in splits.items()
            }
        if language != ENGLISH_WORDS:
            splits = {name: _in_words(examples, language) for name, examples in splits.items()}
        if empty := [name for name, examples in splits.items() if skipped and not examples]:
            raise CaptioningError(
                f"no images for {', '.join(empty)} are left of those that are on disk and have "
                "captions"
            )
        return splits
    except FileNotFoundError as error:
        advice = "set data.root to the folder of the data set, or name this file in data.reader"
        path = Path(error.filename or "")
        for folder in (path.parents[1], path.parent) if len(path.parents) > 1 else ():
            found = sorted(
                file.name for file in folder.glob("*.*") if file.is_file() and file.suffix in TEXTS
            )
            if found:
                advice += f"; {quoted(folder)} has {listed(found, 5)}"
        error.add_note(advice)
        raise
    finally:
        SKIPPED.reset(outer)
        if collecting:
            gc.enable()


def _advice(path: Path) -> str:
    """Name the folder near an absent photograph that holds it, if there is one."""
    root = path.parents[1]
    folders = [
        root,
        *(each for near in (path.parent, root) if near.is_dir() for each in sorted(near.iterdir())),
    ]
    found = next(
        (each for each in folders if each != path.parent and (each / path.name).is_file()), None
    )
    if found is None:
        return (
            "set data.root to the folder of the data set, or data.reader.root to that of the "
            "photographs"
        )
    return f"{quoted(path.name)} is in {quoted(found)}: set data.reader.root={quoted(found)}"


def _in_words(examples: Sequence[Example], language: Language) -> list[Example]:
    """The examples with words of `language`, without captions that have none; nouns count other
    words.
    """
    worded = []
    for example in examples:
        found = [
            (reference.text, language.split(reference.text)) for reference in example.references
        ]
        references = tuple(Reference(text, words) for text, words in found if words)
        wordless = example.wordless + len(found) - len(references)
        with or_skip():
            if not references:
                raise CaptioningError(_WORDLESS.format(example.path.name[:200]))
            worded.append(replace(example, references=references, wordless=wordless))
    return worded


def check_splits(splits: Mapping[str, list[Example]], source: object) -> None:
    """Check that no split is empty and no image occurs twice; `source` names the file or files.

    Where `read` may leave out entries, the second of such images is removed.
    """
    with at(source):
        if empty := [split for split, examples in splits.items() if not examples]:
            raise CaptioningError(
                f"no images for {', '.join(empty)}; every split needs at least one"
            )
        first: dict[int | str | Path, str] = {}
        for split, examples in splits.items():
            for example in tuple(examples):
                with or_skip():
                    for key, value, other in (
                        ("image_id", example.image_id, example.path),
                        ("path", example.path, example.image_id),
                    ):
                        told = f"{split} {other!s:.200}"
                        if first.setdefault(value, told) is not told:
                            examples.remove(example)
                            twice = f"{first[value]} and {told}"
                            raise CaptioningError(
                                f"the {key} {value!s:.200} occurs twice, for {twice}"
                            )


def absent_files(paths: Iterable[Path]) -> list[Path]:
    """The paths that are not on disk, by one listing per folder, since network disks are slow per
    file.
    """
    folders: dict[Path, list[Path]] = defaultdict(list)
    for path in paths:
        folders[path.parent].append(path)
    absent: list[Path] = []
    for folder, files in folders.items():
        present = set(os.listdir(folder)) if folder.is_dir() else ()  # noqa: PTH208, because paths are slower
        absent += [path for path in files if path.name not in present]
    return absent


def read_json(path: Path, layout: type[T], name: str) -> T:
    """Parse a JSON file into `layout`, which errors call `name`."""
    with at(f"{path}, read as {name}"):
        return parse_json(json_text(path), layout)


def parse_json(text: str | bytes, layout: type[T]) -> T:
    """Parse the text of a JSON file, see `read_json`."""
    adapter = TypeAdapter(layout)
    while True:
        try:
            return adapter.validate_json(text, strict=True)
        except ValidationError as error:
            if SKIPPED.get() is None:
                raise
            text = without_faulty(adapter, text, error)


def json_text(path: Path) -> str:
    """Decode a JSON file in any of its encodings."""
    content = read_bytes(path)
    return content.decode(json.detect_encoding(content))


def has_list(text: str, name: str) -> bool:
    """Return True if a JSON object has a list called `name`; a search is faster than parsing."""
    return re.search(rf'"{name}"\s*:\s*\[', text) is not None


def read_json_lines(path: Path, layout: type[T]) -> list[T]:
    """Parse each line as JSON."""
    return parse_json_lines(read_lines(path), layout)


def parse_json_lines(lines: Iterable[tuple[str, str]], layout: type[T]) -> list[T]:
    """Parse lines with their places, see `read_lines`."""
    adapter, found = TypeAdapter(layout), []
    for place, line in lines:
        with or_skip(), at(place):
            found.append(adapter.validate_json(line, strict=True))
    return found


def read_lines(path: Path) -> list[tuple[str, str]]:
    """The non-blank lines of a UTF-8 text, each with its place, `FILE, line 3`.

    Only line feeds end a line, because some characters that Python treats as line ends occur in
    captions.
    """
    content = read_bytes(path)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = 1 + content.count(b"\n", 0, error.start)
        error.add_note(f"{path}, line {line} is not UTF-8; save the file as UTF-8")
        raise
    lines = enumerate(text.split("\n"), start=1)
    return [
        (f"{path}, line {number}", line.removesuffix("\r"))
        for number, line in lines
        if line.strip()
    ]
