"""Reader of captions in a table, one per line, with separate splits.

Two forms: CSV or TSV with a header that names the columns `image` and `caption`, as Kaggle distributes Flickr8k and
Flickr30k; and `name.jpg#0<TAB>caption` without a header, as the authors of Flickr8k and Flickr30k published them
(Hodosh, Young and Hockenmaier, "Framing Image Description as a Ranking Task", 2013).
"""

import csv
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, TypeAdapter

from captioning.config.types import validated
from captioning.data.example import Example
from captioning.data.readers import reading
from captioning.data.readers.reading import SPLITS, FileName, OfEachSplit, Part, Text
from captioning.errors import CaptioningError

TOKEN = re.compile(r"(.+)#\d+\t(.*)")
COLUMNS = ["image", "caption"]
EXAMPLE = 'the first line must be image,caption, and a caption with a comma must be quoted: 1.jpg,"a dog, running"'


@dataclass(slots=True)
class _Row:
    image: Annotated[FileName, BeforeValidator(str.strip)]
    caption: Text


class TableReader:
    """Photographs in a folder, captions in a table, splits by lists of file names or shares.

    An image's id is its file name. The words are `split_words(caption)`; captions without words are left out.

    Args:
        root: folder of the photographs; a photograph is `root/image`.
        captions: the table, in UTF-8.
        splits: for each of `train`, `val` and `test`, a file with one file name per line, or a share of the
            photographs. Photographs in none of the three are left out.
    """

    @validated
    def __init__(self, root: str | Path, captions: str | Path, splits: OfEachSplit[Part]) -> None:
        self.root, self.captions = Path(root).expanduser(), Path(captions).expanduser()
        self.splits = {split: splits[split] for split in SPLITS}

    def __call__(self) -> dict[str, list[Example]]:
        """Read `train`, `val` and `test`."""
        examples = _examples(self.root, self.captions, self.splits.values())
        splits: dict[str, list[Example]] = dict(zip(SPLITS, examples, strict=True))
        reading.check_splits(splits, self.captions)
        return splits


def table_examples(root: Path, captions: Path) -> list[Example]:
    """All photographs of a table, in its order."""
    (examples,) = _examples(root, captions, [(0, 1)])
    return examples


def _examples(root: Path, table: Path, parts: Iterable[Part]) -> Iterator[list[Example]]:
    captions = _captions(table)
    paths = {name: root / name for name in captions}
    return (reading.choose_examples(part, captions, paths, table) for part in parts)


def _captions(path: Path) -> dict[str, list[str]]:
    """The captions of each photograph, in the table's order."""
    lines = reading.read_lines(path)
    place, first = lines[0] if lines else (str(path), "")
    tokens, delimiter = TOKEN.fullmatch(first), "\t" if "\t" in first else ","
    header = COLUMNS if tokens else [name.strip() for name in _fields(first, delimiter)]
    with reading.at(place):
        if any(header.count(name) != 1 for name in COLUMNS):
            raise CaptioningError(f"{first!r:.60} does not name the columns; {EXAMPLE}")
    captions: dict[str, list[str]] = defaultdict(list)
    rows = TypeAdapter(_Row)
    for place, line in lines if tokens else lines[1:]:
        with reading.or_skip(), reading.at(place):
            match = TOKEN.fullmatch(line)
            values = (match.groups() if match else ()) if tokens else _fields(line, delimiter)
            if len(values) != len(header):
                raise CaptioningError(f"{line!r:.60} does not have the columns {', '.join(header)}; {EXAMPLE}")
            row = rows.validate_python(dict(zip(header, values, strict=True)))
            captions[row.image].append(row.caption)
    return captions


def _fields(line: str, delimiter: str) -> list[str]:
    # Parse each line separately, so that an unclosed quote cannot swallow the lines after it.
    try:
        return next(csv.reader([line], delimiter=delimiter, strict=True))
    except csv.Error:
        return []
