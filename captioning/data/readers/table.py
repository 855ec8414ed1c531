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
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

from captioning.config.types import UserPath, validated_class
from captioning.data.example import SPLITS
from captioning.data.readers.groups import group_of
from captioning.data.readers.options import options
from captioning.data.readers.parsing import (
    Text,
    at,
    captions_of,
    has_list,
    json_text,
    or_skip,
    parse_json_lines,
    read_json,
    read_lines,
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
LONGEST = 20  # lines of a quoted caption
WITHOUT_HEADER = {2: ["image", "caption"], 3: ["image", "comment_number", "caption"]}
NAME = "a list of objects with an image and a caption"
PlacedRows = Iterator[tuple[str, Mapping[str, Any]]]
Columns = Callable[[tuple[str, ...]], tuple[str | None, list[str], str]]
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
    split: Any
    further: list[_Name]
    group: str


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
        entries, column = _read(table, self.root, SETTINGS, self.images, self.caption_columns)
        lists = [part for part in self.splits.values() if isinstance(part, Path)]
        shared = any(isinstance(part, tuple) for part in self.splits.values())
        unlisted = not shared and not any(map(Path.is_file, lists))
        splits: ReadSplits = {}
        for name in SPLITS:
            part, chosen = self.splits[name], entries
            if unlisted and part is not None:
                part = (0, 1) if column else SHARES[name]
                if column:
                    chosen = {key: entries[key] for key, split in column.items() if split == name}
            elif isinstance(part, Path) and name not in options().needed:
                part = part if part.is_file() else None
            splits[name] = choose_examples(part, chosen, table)
        if unlisted:
            shares = "80 %, 10 % and 10 %, pseudorandom and always the same"
            how = "its column split" if column else shares
            absent = ", ".join(path.name for path in lists)
            log.info("%s has no %s beside it: splits by %s", table, absent, how)
            if column and None not in self.splits.values():
                splits = complete(splits, table)
        return check_splits(splits, table)


def table_entries(path: Path) -> dict[str, Entry]:
    """The captions of each image, in the table's order, and its group."""
    return _read(path, Path(), EXAMPLE)[0]


def _read(
    path: Path,
    root: Path,
    advice: str,
    images: Sequence[str] = (),
    captions: Sequence[str] = (),
) -> tuple[dict[str, Entry], dict[str, str | None]]:
    """The entries below `root`, and the splits that rows name, by image.

    `images` are the columns of several images of each row, `captions` its captions'; `advice` is
    for a table without such columns.
    """
    entries: dict[str, Entry] = {}
    splits: dict[str, str | None] = {}
    # alike in most rows
    columns = cache(partial(find_columns, images=images[:1], captions=captions))
    for location, values in _rows(path, columns, advice):
        with or_skip(), at(location):
            image, texts, split = columns(tuple(values))
            if image is None or not texts:
                raise _lacks([*map(str, values)], columns, advice)
            if absent := [name for name in images[1:] if name not in values]:
                raise CaptioningError(f"there is no column {quoted(absent[0])}")
            cells = [values[column] for column in images[1:]]
            names = list(takewhile(bool, cells))
            if any(cells[len(names) :]):  # an image's place in the row tells which one it is
                raise CaptioningError(f"{quoted(values[image])} has an image after an empty column")
            parsed = _Row(
                image=values[image],
                captions=[values[name] for name in texts],
                split=values.get(split),
                further=names,
                group=group_of(values),
            )
            paths = tuple(root / file for file in (parsed.image, *parsed.further))
            entry = entries.setdefault(parsed.image, Entry(paths, [], ""))
            if entry.paths != paths:
                raise CaptioningError(f"{quoted(parsed.image)} has other images in an earlier row")
            entry.captions += parsed.captions
            entry.group = parsed.group
            if parsed.split:
                splits[parsed.image] = split_called(parsed.split)
    return entries, splits


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


def _names_columns(header: Sequence[str], columns: Columns) -> bool:
    image, texts, _ = columns(tuple(header))
    names = [name.lower() for name in header]
    return bool(texts) and all(names.count((name or "").lower()) == 1 for name in (image, *texts))


def _lacks(names: Sequence[str], columns: Columns, advice: str) -> CaptioningError:
    what = "images" if columns(tuple(names))[0] is None else "captions"
    return CaptioningError(
        f"{quoted(', '.join(names))} does not name one column of {what}; {advice}"
    )


def _rows(path: Path, columns: Columns, advice: str) -> PlacedRows:
    """Each row with its place."""
    with open_bounded(path) as file:
        begin = file.read(99).removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    if begin == b"{" and has_list(json_text(path), "images"):
        raise CaptioningError(
            f"{path} is no table: a JSON in Karpathy's layout is read by data=karpathy "
            "data.json=FILE data.images=FOLDER, one in COCO's by data=coco_official"
        )
    if begin not in (b"[", b"{"):
        yield from _text_rows(path, columns, advice)
        return
    if begin == b"[":
        rows: Iterable[dict[str, Any]] = read_json(path, FailFastList[dict[str, Any]], NAME)
    else:
        rows = parse_json_lines(read_lines(path), dict[str, Any])
    for position, row in enumerate(rows):
        yield f"{path}: [{position}]", row


def _text_rows(path: Path, columns: Columns, advice: str) -> PlacedRows:
    lines = read_lines(path)
    location, first = lines[0] if lines else (str(path), "")
    # the one that comes first in the line
    separator = min(SEPARATORS, key=(first + SEPARATORS).find)
    if TOKEN.fullmatch(first):
        separator = "#"
    header = [name.strip() for name in _fields([first], separator)[0]]
    if separator == "#":
        header = WITHOUT_HEADER[2]
    elif _names_columns(header, columns):
        lines = lines[1:]
    elif len(header) in WITHOUT_HEADER and header[0].lower().endswith(SUFFIXES):
        header = WITHOUT_HEADER[len(header)]
    else:
        with at(location):
            raise _lacks(header, columns, advice)
    number = 0
    while number < len(lines):
        location, line = lines[number]
        # a carriage return in a caption that is not quoted is a blank
        texts = [text.replace("\r", " ") for _, text in lines[number : number + LONGEST]]
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
