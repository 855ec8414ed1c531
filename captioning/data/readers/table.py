"""Reader of captions in a table, one per row, with separate splits.

A row has an image and a caption; `IMAGE` and `CAPTION` are the names of their columns, in any case,
others are ignored. Columns that are numbered, `caption_1` and so on, have a caption each, and a
cell may be a list of captions, as JSON or Python write it. A table is

- text with a header, separated by commas, tabs, bars or semicolons, as Kaggle distributes Flickr8k
  and Flickr30k, or without a header (`1.jpg,a dog`);
- `name.jpg#0<TAB>caption`, as the authors of Flickr8k and Flickr30k published them (Hodosh, Young
  and Hockenmaier, "Framing Image Description as a Ranking Task", 2013), or, with the language of
  COCO-CN and Flickr8k-CN, `name.jpg#zhm#0`;
- a JSON list of objects, or one object per line (`metadata.jsonl`), whose caption may be a list of
  captions, such as BLIP's files and AI Challenger's.
"""

import csv
import logging
import math
import re
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import islice, takewhile
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, BeforeValidator, ValidationError

from captioning.config.types import UserPath, validated_class
from captioning.data.columns import Columns as ExampleColumns
from captioning.data.columns import RowWriter
from captioning.data.example import SPLITS
from captioning.data.readers.groups import group_of
from captioning.data.readers.options import options
from captioning.data.readers.parsing import (
    Text,
    are_captions,
    at,
    captions_of,
    has_list,
    lines,
    or_skip,
    parse_json_lines,
    read_json,
)
from captioning.data.readers.reading import (
    SHARES,
    Entry,
    FailFastList,
    FileName,
    OfEachSplit,
    Part,
    ReadSplits,
    check_splits,
    choose_examples,
    complete,
    existing,
    split_called,
)
from captioning.errors import CaptioningError, quoted
from captioning.files import SUFFIXES, open_bounded

TOKEN = re.compile(r"(.+?)(?:#(?:en|zh)[a-z]?)?#\d+\t(.*)")
IMAGE = (
    "image, image_name, file_name, filename, path, image_id, filepath, file_path, image_path, id"
)
CAPTION = "caption, captions, comment, text, raw, sentences, txt, title, caption_predicted"
SEPARATORS = ",\t|;"
PLAIN = re.compile(r"(?:\w[\w.-]{0,99}/){0,9}\w[\w.-]{0,99}")  # most names of files
LABELS: dict[str | None, int] = {name: number for number, name in enumerate(SPLITS, start=1)}
OTHER = -1
LONGEST = 20  # lines of a quoted caption
START = 2**20  # bytes in which the list of a JSON object is looked for
WITHOUT_HEADER = {2: ["image", "caption"], 3: ["image", "comment_number", "caption"]}
NAME = "a list of objects with an image and a caption"
PlacedRows = Iterator[tuple[str, Mapping[str, Any]]]
ColumnsOf = Callable[[tuple[str, ...]], tuple[str | None, list[str], str]]
"""Finds the columns of images, of captions and of splits among names (`find_columns`)."""
EXAMPLE = (
    f"the first line must be image,caption (images may be called {IMAGE}, and captions {CAPTION}), "
    'and a caption with a comma must be quoted: 1.jpg,"a dog, running"'
)
SETTINGS = (
    f"{EXAMPLE}; columns of other names are data.reader.images=[COLUMN] and "
    "data.reader.caption_columns=[COLUMN]"
)

log = logging.getLogger(__name__)


_Name = Annotated[
    FileName, BeforeValidator(lambda name: name.strip() if isinstance(name, str) else name)
]


@validated_class
class _Row:
    image: _Name
    captions: Annotated[list[Text], BeforeValidator(captions_of)]
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
        caption_columns: those of the captions; without, `CAPTION` are looked for.
    """

    root: UserPath
    captions: Annotated[UserPath, AfterValidator(_with_suffix), AfterValidator(existing)]
    splits: OfEachSplit[Part]
    images: Sequence[str] = ()
    caption_columns: Sequence[str] = ()

    def __call__(self) -> ReadSplits:
        """Read `train`, `val` and `test`."""
        table = self.captions
        rows, labels = _read(table, self.root, SETTINGS, self.images, self.caption_columns)
        images = rows.by_image()
        named = bool(labels.any())
        lists = [part for part in self.splits.values() if isinstance(part, Path)]
        shared = any(isinstance(part, tuple) for part in self.splits.values())
        unlisted = not shared and not any(map(Path.is_file, lists))
        splits: ReadSplits = {}
        for name in SPLITS:
            part, chosen = self.splits[name], images
            if unlisted and part is not None:
                part = (0, 1) if named else SHARES[name]
                if named:
                    of_rows = labels[images.rows.values]
                    of_images = np.maximum.reduceat(of_rows, images.rows.starts[:-1])
                    chosen = images.take(np.flatnonzero(of_images == LABELS[name]))
            elif isinstance(part, Path) and name not in options().needed:
                part = part if part.is_file() else None
            splits[name] = choose_examples(part, chosen, table)
        if unlisted:
            shares = "80 %, 10 % and 10 %, pseudorandom and always the same"
            how = "its column split" if named else shares
            absent = ", ".join(path.name for path in lists)
            log.info("%s has no %s beside it: splits by %s", table, absent, how)
            if named and None not in self.splits.values():
                splits = complete(splits, table)
        return check_splits(splits, table)


def table_entries(path: Path) -> dict[str, Entry]:
    """The captions of each image, in the table's order, and its group."""
    images = _read(path, Path("/"), EXAMPLE)[0].by_image()
    return {image: Entry(texts, group) for image, _, texts, group in images.entries()}


def _read(
    path: Path,
    root: Path,
    advice: str,
    images: Sequence[str] = (),
    captions: Sequence[str] = (),
) -> tuple[ExampleColumns, np.ndarray]:
    """The rows of a table, with photographs below `root`, and the numbers of their splits.

    `images` are the columns of several images of each row, `captions` its captions'; `advice` is
    for a table without such columns.
    """
    # alike in most rows
    columns = cache(partial(find_columns, images=images[:1], captions=captions))
    further, first = images[1:], dict[str, list[str]]()
    writer, labels = RowWriter(root), array("b")
    for location, values in _rows(path, columns, advice):
        try:
            image, texts, split = columns(tuple(values))
            if image is None or not texts:
                raise _lacks([*map(str, values)], columns, advice)
            names: list[Any] = [values[image]]
            cells = [values[name] for name in texts]
            given = cells[0] if len(cells) == 1 and type(cells[0]) is list else cells
            plain = isinstance(names[0], str) and PLAIN.fullmatch(names[0]) and are_captions(given)
            if further or not plain:
                row = _Row(names[0], cells, _further(values, image, further))
                names, given = [row.image, *row.further], row.captions
            if further and first.setdefault(names[0], names) != names:
                raise CaptioningError(f"{quoted(names[0])} has other images in an earlier row")
            label = values.get(split)
            number = LABELS.get(split_called(label), OTHER) if label else 0
            writer.add(names[0], names, given, group_of(values))
            labels.append(number)
        except (CaptioningError, ValidationError):
            with or_skip(), at(location):
                raise

    return writer.finish(), np.array(labels)


def _further(values: Mapping[str, Any], image: str, columns: Sequence[str]) -> list[Any]:
    """The further images of a row, of which the last ones may be empty."""
    if absent := [name for name in columns if name not in values]:
        raise CaptioningError(f"there is no column {quoted(absent[0])}")
    cells = [values[column] for column in columns]
    names = list(takewhile(bool, cells))
    if any(cells[len(names) :]):  # an image's place in the row tells which one it is
        raise CaptioningError(f"{quoted(values[image])} has an image after an empty column")
    return names


def find_columns(
    names: Iterable[str], images: Sequence[str] = (), captions: Sequence[str] = ()
) -> tuple[str | None, list[str], str]:
    """The columns of images, of captions and of splits among `names`; given ones must be there."""
    by_name = {name.lower(): name for name in names}
    found = (by_name.get(name.lower()) for name in images or IMAGE.split(", "))
    image = next((name for name in found if name is not None), None)
    texts = [by_name[name.lower()] for name in captions if name.lower() in by_name]
    if not captions:
        texts = _caption_columns(by_name)
    elif len(texts) < len(captions):
        texts = []
    return image, texts, by_name.get("split", "split")


def _caption_columns(by_name: Mapping[str, str]) -> list[str]:
    """The first of the usual columns of captions that is there, or those with its numbers."""
    for known in CAPTION.split(", "):
        if known in by_name:
            return [by_name[known]]
        numbered = [by_name[name] for name in by_name if re.fullmatch(rf"{known}_?\d+", name)]
        if numbered:
            return numbered
    return []


def _names_columns(header: Sequence[str], columns: ColumnsOf) -> bool:
    image, texts, _ = columns(tuple(header))
    names = [name.lower() for name in header]
    return bool(texts) and all(names.count((name or "").lower()) == 1 for name in (image, *texts))


def _lacks(names: Sequence[str], columns: ColumnsOf, advice: str) -> CaptioningError:
    what = "images" if columns(tuple(names))[0] is None else "captions"
    return CaptioningError(
        f"{quoted(', '.join(names))} does not name one column of {what}; {advice}"
    )


def _rows(path: Path, columns: ColumnsOf, advice: str) -> PlacedRows:
    """Each row with its place."""
    with open_bounded(path, math.inf) as file:
        begin = file.read(START).removeprefix(b"\xef\xbb\xbf").lstrip()
    if begin.startswith(b"{") and has_list(begin.decode(errors="replace"), "images"):
        raise CaptioningError(
            f"{path} is no table: a JSON in Karpathy's layout is read by data=karpathy "
            "data.json=FILE data.images=FOLDER, one in COCO's by data=coco_official"
        )
    if not begin.startswith((b"[", b"{")):
        yield from _text_rows(path, columns, advice)
        return
    if begin.startswith(b"["):
        rows: Iterable[dict[str, Any]] = read_json(path, FailFastList[dict[str, Any]], NAME)
    else:
        rows = parse_json_lines(lines(path, math.inf), dict[str, Any])
    for position, row in enumerate(rows):
        yield f"{path}: [{position}]", row


def _text_rows(path: Path, columns: ColumnsOf, advice: str) -> PlacedRows:
    further = lines(path, math.inf)
    window = deque(islice(further, LONGEST))
    location, first = window[0] if window else (str(path), "")
    # the one that comes first in the line
    separator = min(SEPARATORS, key=(first + SEPARATORS).find)
    if TOKEN.fullmatch(first):
        separator = "#"
    header = [name.strip() for name in _fields([first], separator)[0]]
    if separator == "#":
        header = WITHOUT_HEADER[2]
    elif _names_columns(header, columns):
        window.popleft()
    elif len(header) in WITHOUT_HEADER and header[0].lower().endswith(SUFFIXES):
        header = WITHOUT_HEADER[len(header)]
    else:
        with at(location):
            raise _lacks(header, columns, advice)
    while window or (window := deque(islice(further, LONGEST))):
        location, line = window[0]
        # a carriage return in a caption that is not quoted is a blank
        if '"' in line and len(window) < LONGEST:
            window.extend(islice(further, LONGEST))
        texts = [
            text.replace("\r", " ") for _, text in islice(window, LONGEST if '"' in line else 1)
        ]
        fields, used = _fields(texts, separator)
        for _ in range(used):
            window.popleft()
        # a line of Kaggle's Flickr30k lacks its second bar
        short = separator == "|" and len(fields) == len(header) - 1
        if short and re.match(r"\s*\d+\s", fields[-1]):
            fields[-1:] = fields[-1].strip().split(maxsplit=1)
        if len(fields) == len(header):
            yield location, dict(zip(header, fields, strict=True))
            continue
        with or_skip(), at(location):
            raise CaptioningError(
                f"{line!r:.60} does not have the columns {', '.join(header)}; {EXAMPLE}"
            )


def _fields(lines: Sequence[str], separator: str) -> tuple[list[str], int]:
    """The fields of the first row, none if it is malformed, and the number of its lines."""
    if separator == "|":  # whose captions have unpaired quotes
        return lines[0].split("|"), 1
    if separator == "#":
        match = TOKEN.fullmatch(lines[0])
        return list(match.groups()) if match else [], 1
    if '"' not in lines[0]:
        return lines[0].split(separator), 1
    # Few lines, and strictly, so that an unclosed quote cannot swallow all lines after it.
    rows = csv.reader((f"{line}\n" for line in lines), delimiter=separator, strict=True)
    try:
        return next(rows), rows.line_num
    except csv.Error:
        return [], 1
