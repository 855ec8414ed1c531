"""Reader of captions in a table, one per row, with separate splits.

A row has an image and a caption; `IMAGE` and `CAPTION` are the names of their columns, others are
ignored. A table is

- text with a header, separated by commas, tabs, bars or semicolons, as Kaggle distributes Flickr8k
  and Flickr30k, or without a header (`1.jpg,a dog`);
- `name.jpg#0<TAB>caption`, as the authors of Flickr8k and Flickr30k published them (Hodosh, Young
  and Hockenmaier, "Framing Image Description as a Ranking Task", 2013);
- a JSON list of objects, or one object per line (`metadata.jsonl`), whose caption may be a list of
  captions, such as BLIP's files and AI Challenger's.
"""

import csv
import logging
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, TypeAdapter

from captioning.config.types import UserPath, validated_class
from captioning.data.example import SPLITS
from captioning.data.readers import parsing, reading
from captioning.data.readers.reading import (
    FailFastList,
    FileName,
    OfEachSplit,
    Part,
    ReadSplits,
    Text,
)
from captioning.data.readers.skipping import at, or_skip
from captioning.errors import CaptioningError, quoted
from captioning.files import SUFFIXES, open_bounded

TOKEN = re.compile(r"(.+)#\d+\t(.*)")
IMAGE = ("image", "image_name", "file_name", "filename", "path", "image_id")
CAPTION = ("caption", "comment", "text", "raw")
OTHER_NAMES = {"train": ["training"], "val": ["validation", "valid", "validate", "dev"], "test": []}
SHARES: Mapping[str, Part] = {"train": (0, 0.8), "val": (0.8, 0.9), "test": (0.9, 1)}
SEPARATORS = ",\t|;"
LONGEST = 20  # lines of a quoted caption
WITHOUT_HEADER = {2: ["image", "caption"], 3: ["image", "comment_number", "caption"]}
NAME = "a list of objects with an image and a caption"
EXAMPLE = (
    f"the first line must be image,caption (images may also be called {', '.join(IMAGE[1:])}, and "
    f"captions {', '.join(CAPTION[1:])}), and a caption with a comma must be quoted: "
    '1.jpg,"a dog, running"'
)

log = logging.getLogger(__name__)


_Name = Annotated[
    FileName, BeforeValidator(lambda name: name.strip() if isinstance(name, str) else name)
]


@dataclass(slots=True)
class _Row:
    image: _Name
    caption: Text | list[Text]
    split: Any
    further: list[_Name]


def _with_suffix(table: Path) -> Path:
    """The table, or one of its name with another suffix."""
    others = map(table.with_suffix, (".csv", ".tsv", ".txt", ".jsonl", ".json"))
    return next((path for path in (table, *others) if path.is_file()), table)


@validated_class
class TableReader:
    """Photographs in a folder, captions in a table, splits by lists of file names or shares.

    An image's id is its file name. The words are `split_words(caption)`; captions without words are
    left out.

    Args:
        root: folder of the photographs; a photograph is `root/image`.
        captions: the table, in UTF-8; if it is absent, one of this name that ends in .csv, .tsv,
            .jsonl or .json.
        splits: for each of `train`, `val` and `test`, a file with one file name per line, or a
            share of the photographs. Photographs in none of the three are left out. Without any of
            three such files, the column `split` of the table decides, or `SHARES`.
        images: the columns of the images, if an example has several; the first gives its id, and
            the last ones may be empty.
    """

    root: UserPath
    captions: Annotated[UserPath, AfterValidator(_with_suffix), AfterValidator(reading.existing)]
    splits: OfEachSplit[Part]
    images: Sequence[str] = ()

    def __call__(self) -> ReadSplits:
        """Read `train`, `val` and `test`."""
        table = self.captions
        rows = _read(table, self.images)
        captions = _by_image(rows)
        further = {row.image: row.further for row in rows}
        paths = {
            name: tuple(self.root / file for file in (name, *others))
            for name, others in further.items()
        }
        lists = [Path(part) for part in self.splits.values() if isinstance(part, str | Path)]
        unlisted = len(lists) == len(SPLITS)
        unlisted = unlisted and not any(path.expanduser().is_file() for path in lists)
        column = {row.image: str(row.split).strip().lower() for row in rows if row.split}
        splits: ReadSplits = {}
        for name in SPLITS:
            part, texts = SHARES[name] if unlisted else self.splits[name], captions
            if unlisted and column:
                names = (name, *OTHER_NAMES[name])
                part = (0, 1)
                texts = {key: captions[key] for key, split in column.items() if split in names}
            splits[name] = reading.choose_examples(part, texts, paths, table)
        if unlisted:
            shares = "80 %, 10 % and 10 %, pseudorandom and always the same"
            how = "its column split" if column else shares
            absent = ", ".join(path.name for path in lists)
            log.info("%s has no %s beside it: splits by %s", table, absent, how)
        reading.check_splits(splits, table)
        return splits


def table_captions(path: Path) -> dict[str, list[str]]:
    """The captions of each image, in the table's order."""
    return _by_image(_read(path))


def _by_image(rows: Iterable[_Row]) -> dict[str, list[str]]:
    captions: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        captions[row.image] += [row.caption] if isinstance(row.caption, str) else row.caption
    return captions


def _read(path: Path, images: Sequence[str] = ()) -> list[_Row]:
    """The rows; `images` are the columns of several images of each."""
    adapter, rows = TypeAdapter(_Row), []
    further: dict[str, list[str]] = {}
    for location, values in _rows(path, images[:1] or IMAGE):
        with or_skip(), at(location):
            image, caption = (_column(values, names) for names in (images[:1] or IMAGE, CAPTION))
            if image is None or caption is None:
                raise CaptioningError(
                    f"{quoted(', '.join(map(str, values)))} does not name the columns; {EXAMPLE}"
                )
            row = {"image": values[image], "caption": values[caption], "split": values.get("split")}
            if absent := [name for name in images[1:] if name not in values]:
                raise CaptioningError(f"there is no column {quoted(absent[0])}")
            cells = [values[column] for column in images[1:]]
            names = list(takewhile(bool, cells))
            if any(cells[len(names) :]):  # an image's place in the row tells which one it is
                raise CaptioningError(f"{quoted(values[image])} has an image after an empty column")
            parsed = adapter.validate_python(row | {"further": names})
            if further.setdefault(parsed.image, parsed.further) != parsed.further:
                raise CaptioningError(f"{quoted(parsed.image)} has other images in an earlier row")
            rows.append(parsed)
    return rows


def _column(names: Iterable[str], known: Iterable[str]) -> str | None:
    return next((name for name in known if name in names), None)


def _rows(path: Path, images: Sequence[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each row with its place; `images` are possible names of its column of images."""
    with open_bounded(path) as file:
        begin = file.read(99).removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    if begin == b"{" and parsing.has_list(parsing.json_text(path), "images"):
        raise CaptioningError(
            f"{path} is no table: a JSON in Karpathy's layout is read by data=karpathy "
            "data.json=FILE data.images=FOLDER, one in COCO's by data=coco_official"
        )
    if begin not in (b"[", b"{"):
        yield from _text_rows(path, images)
        return
    if begin == b"[":
        rows = parsing.read_json(path, FailFastList[dict[str, Any]], NAME)
    else:
        rows = parsing.parse_json_lines(parsing.read_lines(path), dict[str, Any])
    for position, row in enumerate(rows):
        yield f"{path}: [{position}]", row


def _text_rows(path: Path, images: Sequence[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    lines = parsing.read_lines(path)
    location, first = lines[0] if lines else (str(path), "")
    # the one that comes first in the line
    separator = "#" if TOKEN.fullmatch(first) else min(SEPARATORS, key=(first + SEPARATORS).find)
    header = [name.strip() for name in _fields([first], separator)[0]]
    if separator == "#":
        header = WITHOUT_HEADER[2]
    elif all(header.count(_column(header, known) or "") == 1 for known in (images, CAPTION)):
        lines = lines[1:]
    elif len(header) in WITHOUT_HEADER and header[0].lower().endswith(tuple(SUFFIXES)):
        header = WITHOUT_HEADER[len(header)]
    else:
        raise CaptioningError(f"{location}: {first!r:.60} does not name the columns; {EXAMPLE}")
    number = 0
    while number < len(lines):
        location, line = lines[number]
        texts = [text for _, text in lines[number : number + LONGEST]]
        fields, used = _fields(texts, separator)
        number += used
        with or_skip(), at(location):
            # a line of Kaggle's Flickr30k lacks its second bar
            short = separator == "|" and len(fields) == len(header) - 1
            if short and re.match(r"\s*\d+\s", fields[-1]):
                fields[-1:] = fields[-1].strip().split(maxsplit=1)
            if len(fields) != len(header):
                raise CaptioningError(
                    f"{line!r:.60} does not have the columns {', '.join(header)}; {EXAMPLE}"
                )
            yield location, dict(zip(header, fields, strict=True))


def _fields(lines: Sequence[str], separator: str) -> tuple[list[str], int]:
    """The fields of the first row, none if it is malformed, and the number of its lines."""
    if separator == "|":  # whose captions have unpaired quotes
        return lines[0].split("|"), 1
    if separator == "#":
        match = TOKEN.fullmatch(lines[0])
        return list(match.groups()) if match else [], 1
    # Few lines, and strictly, so that an unclosed quote cannot swallow all lines after it.
    rows = csv.reader((f"{line}\n" for line in lines), delimiter=separator, strict=True)
    try:
        return next(rows), rows.line_num
    except csv.Error:
        return [], 1
