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
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, TypeAdapter

from captioning.config.types import validated
from captioning.data.example import SPLITS, Example
from captioning.data.readers import reading
from captioning.data.readers.reading import FailFastList, FileName, OfEachSplit, Part, Text
from captioning.data.readers.skipping import at, or_skip
from captioning.errors import CaptioningError, quoted
from captioning.files import SUFFIXES, open_bounded
from captioning.machine import is_rank_zero

TOKEN = re.compile(r"(.+)#\d+\t(.*)")
IMAGE = ("image", "image_name", "file_name", "filename", "path", "image_id")
CAPTION = ("caption", "comment", "text", "raw")
OTHER_NAMES = {
    "training": "train",
    "validation": "val",
    "valid": "val",
    "validate": "val",
    "dev": "val",
}
SHARES: Mapping[str, Part] = {"train": (0, 0.8), "val": (0.8, 0.9), "test": (0.9, 1)}
SEPARATORS = ",\t|;"
LONGEST = 20  # lines of a quoted caption
WITHOUT_HEADER = {2: ["image", "caption"], 3: ["image", "comment_number", "caption"]}
NAME = "a list of objects with an image and a caption"
EXAMPLE = (
    f"the first line must be image,caption (images may also be called {', '.join(IMAGE[1:])}, and "
    "captions "
    f'{", ".join(CAPTION[1:])}), and a caption with a comma must be quoted: 1.jpg,"a dog, running"'
)

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Row:
    image: Annotated[
        FileName, BeforeValidator(lambda name: name.strip() if isinstance(name, str) else name)
    ]
    caption: Text | list[Text]


class TableReader:
    """Photographs in a folder, captions in a table, splits by lists of file names or shares.

    An image's id is its file name. The words are `split_words(caption)`; captions without words are
    left out.

    Args:
        root: folder of the photographs; a photograph is `root/image`. captions: the table, in
        UTF-8; if it is absent, one of this name that ends in .csv, .tsv, .jsonl or .json. splits:
        for each of `train`, `val` and `test`, a file with one file name per line, or a share of the
            photographs. Photographs in none of the three are left out. Without any of three such
            files, the column `split` of the table decides, or `SHARES`.
    """

    @validated
    def __init__(self, root: str | Path, captions: str | Path, splits: OfEachSplit[Part]) -> None:
        self.root, self.captions = Path(root).expanduser(), Path(captions).expanduser()
        self.splits = {split: splits[split] for split in SPLITS}

    def __call__(self) -> dict[str, list[Example]]:
        """Read `train`, `val` and `test`."""
        table = _beside(self.captions)
        lists = [
            Path(part).expanduser() for part in self.splits.values() if isinstance(part, str | Path)
        ]
        unlisted = len(lists) == len(SPLITS) and not any(path.is_file() for path in lists)
        if unlisted and (column := _split_column(table)):
            captions = table_captions(table)
            paths = {name: self.root / name for name in captions}
            splits: dict[str, list[Example]] = {}
            for split in SPLITS:
                chosen = {name: captions[name] for name in captions if column.get(name) == split}
                splits[split] = reading.choose_examples((0, 1), chosen, paths, table)
        else:
            parts = SHARES if unlisted else self.splits
            examples = _examples(self.root, table, parts.values())
            splits = dict(zip(SPLITS, examples, strict=True))
        if unlisted and is_rank_zero():
            shares = "80 %, 10 % and 10 %, pseudorandom and always the same"
            how, names = "its column split" if column else shares, [path.name for path in lists]
            log.info("%s has no %s beside it: splits by %s", table, ", ".join(names), how)
        reading.check_splits(splits, table)
        return splits


def _examples(root: Path, table: Path, parts: Iterable[Part]) -> Iterator[list[Example]]:
    captions = table_captions(table)
    paths = {name: root / name for name in captions}
    return (reading.choose_examples(part, captions, paths, table) for part in parts)


def table_captions(path: Path) -> dict[str, list[str]]:
    """The captions of each image, in the table's order."""
    captions: dict[str, list[str]] = defaultdict(list)
    rows = TypeAdapter(_Row)
    for place, values in _rows(path):
        with or_skip(), at(place):
            image, caption = (_column(values, names) for names in (IMAGE, CAPTION))
            if image is None or caption is None:
                raise CaptioningError(
                    f"{quoted(', '.join(map(str, values)))} does not name the columns; {EXAMPLE}"
                )
            row = rows.validate_python({"image": values[image], "caption": values[caption]})
            captions[row.image] += [row.caption] if isinstance(row.caption, str) else row.caption
    return captions


def _beside(table: Path) -> Path:
    """The table, or if it is absent, one of the same name in another form."""
    others = (table.with_suffix(suffix) for suffix in (".csv", ".tsv", ".txt", ".jsonl", ".json"))
    return table if table.is_file() else next((other for other in others if other.is_file()), table)


def _split_column(table: Path) -> dict[str, str]:
    """The split of each image by the column `split`, if there is one."""
    found = {}
    for _, values in _rows(table):
        image = _column(values, IMAGE)
        if image is not None and "split" in values:
            name = str(values["split"]).strip().lower()
            found[str(values[image]).strip()] = OTHER_NAMES.get(name, name)
    return found


def _column(names: Iterable[str], known: Iterable[str]) -> str | None:
    return next((name for name in known if name in names), None)


def _rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each row with its place."""
    with open_bounded(path) as file:
        begin = file.read(99).removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    if begin == b"{" and reading.has_list(reading.json_text(path), "images"):
        raise CaptioningError(
            f"{path} is no table: a JSON in Karpathy's layout is read by data=karpathy "
            "data.json=FILE "
            "data.images=FOLDER, one in COCO's by data=coco_official"
        )
    return _json_rows(path, begin == b"[") if begin in (b"[", b"{") else _text_rows(path)


def _json_rows(path: Path, as_list: bool) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if as_list:
        rows = reading.read_json(path, FailFastList[dict[str, Any]], NAME)
    else:
        rows = reading.read_json_lines(path, dict[str, Any])
    return ((f"{path}: [{position}]", row) for position, row in enumerate(rows))


def _text_rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    lines = reading.read_lines(path)
    place, first = lines[0] if lines else (str(path), "")
    if TOKEN.fullmatch(first):
        header, separator = WITHOUT_HEADER[2], "#"
    else:
        separator = min(
            SEPARATORS, key=lambda each: first.find(each) if each in first else len(first)
        )
        header = [name.strip() for name in _fields([first], separator)[0]]
        named, headless = _header(header), WITHOUT_HEADER.get(len(header))
        if not named and headless and header[0].lower().endswith(tuple(SUFFIXES)):
            header = headless
        else:
            with at(place):
                if not named:
                    raise CaptioningError(f"{first!r:.60} does not name the columns; {EXAMPLE}")
            lines = lines[1:]
    number = 0
    while number < len(lines):
        place, line = lines[number]
        number += 1
        with or_skip(), at(place):
            if separator == "#":
                match = TOKEN.fullmatch(line)
                fields = list(match.groups()) if match else []
            else:
                fields, used = _fields(
                    [text for _, text in lines[number - 1 : number + LONGEST]], separator
                )
                number += used - 1
            # a line of Kaggle's Flickr30k lacks its second bar
            if (
                separator == "|"
                and len(fields) == len(header) - 1
                and re.match(r"\s*\d+\s", fields[-1])
            ):
                fields[-1:] = fields[-1].strip().split(maxsplit=1)
            if len(fields) != len(header):
                raise CaptioningError(
                    f"{line!r:.60} does not have the columns {', '.join(header)}; {EXAMPLE}"
                )
            yield place, dict(zip(header, fields, strict=True))


def _header(names: list[str]) -> bool:
    """Return True if the columns of images and captions are named, once each."""
    found = [_column(names, known) for known in (IMAGE, CAPTION)]
    return all(name is not None and names.count(name) == 1 for name in found)


def _fields(lines: list[str], separator: str) -> tuple[list[str], int]:
    """The fields of the first row, none if it is malformed, and the number of its lines."""
    if separator == "|":  # whose captions have unpaired quotes
        return lines[0].split("|"), 1
    # Few lines, and strictly, so that an unclosed quote cannot swallow all lines after it.
    rows = csv.reader((f"{line}\n" for line in lines), delimiter=separator, strict=True)
    try:
        return next(rows), rows.line_num
    except csv.Error:
        return [], 1
