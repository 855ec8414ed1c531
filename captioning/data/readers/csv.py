"""Reader of captions in a table, one per line, with the splits apart.

Two forms: CSV with a header that names the columns `image` and `caption`, in which Kaggle has Flickr8k and Flickr30k,
or the same with tabs in the place of commas; and `name.jpg#0<TAB>caption` without a header, in which the authors of
Flickr8k and Flickr30k published them (Hodosh, Young and Hockenmaier, "Framing Image Description as a Ranking Task",
2013).
"""

import csv
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from captioning.data.example import Example, Reference
from captioning.data.readers.files import read_lines
from captioning.data.readers.part import Ends, Part
from captioning.data.readers.splits import (
    check_splits,
    make_example,
    make_reference,
    photograph_path,
    three,
)
from captioning.errors import CaptioningError

Lines = list[tuple[str, str]]
_TOKEN = re.compile(r"(.+)#\d+\t(.*)")


class TableReader:
    """Photographs in a folder, captions in one table, splits by lists of file names or by shares.

    Args:
        root: folder of the photographs; a photograph is `root/image`.
        captions: the table, in UTF-8.
        splits: for each of `train`, `val` and `test` a file with one file name per line, or a share of the photographs
            (see `Part`). Photographs in none of the three are left out.
    """

    def __init__(self, root: str | Path, captions: str | Path, splits: Mapping[str, str | Path | Ends]) -> None:
        self.root = Path(root).expanduser()
        self.captions = Path(captions).expanduser()
        self.parts = {split: Part(part) for split, part in three(splits).items()}

    def __call__(self) -> dict[str, list[Example]]:
        """Read `train`, `val` and `test`; an image's id is its file name.

        The words are `split_words(caption)`; a caption without words is left out.

        Raises:
            CaptioningError: table or list missing, not UTF-8 or malformed, a split without images, a listed photograph
                without captions, a path that leaves the root, a photograph in two splits.
        """
        references, paths = _read(self.root, self.captions)
        names = list(paths)
        splits = {
            split: [
                make_example(name, paths[name], str(self.captions), references[name])
                for name in map(str, part.choose(names, self.captions))
            ]
            for split, part in self.parts.items()
        }
        check_splits(splits, self.captions)
        return splits


def table_examples(root: Path, captions: Path) -> list[Example]:
    """All photographs of a table, in its order.

    Raises:
        CaptioningError: it is missing, not UTF-8 or malformed, a photograph has no words, or its path leaves the root.
    """
    references, paths = _read(root, captions)
    return [make_example(name, path, str(captions), references[name]) for name, path in paths.items()]


def _read(root: Path, captions: Path) -> tuple[dict[str, list[Reference | None]], dict[str, Path]]:
    references: dict[str, list[Reference | None]] = defaultdict(list)
    paths: dict[str, Path] = {}
    for place, name, text in _rows(read_lines(captions), captions):
        if name not in paths:
            paths[name] = photograph_path(root, name, place)
        references[name].append(make_reference(text, place))
    return references, paths


def _rows(lines: Lines, path: Path) -> Iterator[tuple[str, str, str]]:
    """Place, file name and caption of every line."""
    if not lines:
        raise CaptioningError(f"{path} is empty; it must hold captions")
    first = lines[0][1]
    if "\t" not in first:
        return _csv_rows(lines, ",")
    return _token_rows(lines) if _TOKEN.fullmatch(first) else _csv_rows(lines, "\t")


def _token_rows(lines: Lines) -> Iterator[tuple[str, str, str]]:
    for place, line in lines:
        match = _TOKEN.fullmatch(line)
        if not match:
            raise CaptioningError(f"{place}: {line!r:.60} is not of the form name.jpg#0<TAB>caption")
        yield place, match[1], match[2]


def _csv_rows(lines: Lines, delimiter: str) -> Iterator[tuple[str, str, str]]:
    header = [name.strip() for name in _fields(*lines[0], delimiter)]
    if header.count("image") != 1 or header.count("caption") != 1:
        raise CaptioningError(
            f"{lines[0][0]}: the header {lines[0][1]!r:.60} does not name the columns image and caption; the first "
            "line must be image,caption"
        )
    image, caption = header.index("image"), header.index("caption")
    for place, line in lines[1:]:
        fields = _fields(place, line, delimiter)
        if len(fields) != len(header):
            raise CaptioningError(
                f"{place}: {line!r:.60} has {len(fields)} columns and the header {len(header)}; a caption with a "
                'comma stands in quotes: 1.jpg,"a dog, running"'
            )
        yield place, fields[image].strip(), fields[caption]


def _fields(place: str, line: str, delimiter: str) -> list[str]:
    """Each line on its own, so that a quote that is never closed cannot swallow the lines after it."""
    try:
        return next(csv.reader([line], delimiter=delimiter, strict=True))
    except csv.Error as error:
        raise CaptioningError(f"{place}: {line!r:.60} is not CSV: {error}") from error
