"""Reader of captions in a table, one per line, with the splits apart.

Two forms: CSV with a header that names the columns `image` and `caption`, in which Kaggle has Flickr8k and Flickr30k,
or the same with tabs in the place of commas; and `name.jpg#0<TAB>caption` without a header, in which the authors of
Flickr8k and Flickr30k published them (Hodosh, Young and Hockenmaier, "Framing Image Description as a Ranking Task",
2013).
"""

import csv
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from captioning.config.types import validated
from captioning.data.example import Example
from captioning.data.readers.schema import FileName, Text, at, read_lines
from captioning.data.readers.splits import SPLITS, OfEachSplit, check_splits, make_example, make_reference
from captioning.data.readers.subset import Share, Subset
from captioning.errors import CaptioningError

_TOKEN = re.compile(r"(.+)#\d+\t(.*)")
_EXAMPLE = 'the first line must be image,caption, and a caption with a comma stands in quotes: 1.jpg,"a dog, running"'


@dataclass(slots=True)
class Row:
    """A line of the table."""

    image: FileName
    caption: Text


class TableReader:
    """Photographs in a folder, captions in one table, splits by lists of file names or by shares.

    An image's id is its file name. The words are `split_words(caption)`; a caption without words is left out.

    Args:
        root: folder of the photographs; a photograph is `root/image`.
        captions: the table, in UTF-8.
        splits: for each of `train`, `val` and `test` a file with one file name per line, or a share of the photographs
            (see `Subset`). Photographs in none of the three are left out.
    """

    @validated
    def __init__(self, root: str | Path, captions: str | Path, splits: OfEachSplit[str | Path | Share]) -> None:
        self.root = Path(root).expanduser()
        self.captions = Path(captions).expanduser()
        self.subsets = {split: Subset(splits[split]) for split in SPLITS}

    def __call__(self) -> dict[str, list[Example]]:
        """Read `train`, `val` and `test`."""
        captions = _captions(self.captions)
        splits: dict[str, list[Example]] = {
            split: [
                _example(self.root, str(name), captions[str(name)], self.captions)
                for name in subset.choose(list(captions), self.captions)
            ]
            for split, subset in self.subsets.items()
        }
        check_splits(splits, self.captions)
        return splits


def table_examples(root: Path, captions: Path) -> list[Example]:
    """All photographs of a table, in its order."""
    return [_example(root, name, texts, captions) for name, texts in _captions(captions).items()]


def _example(root: Path, name: str, captions: list[str], source: Path) -> Example:
    return make_example(name, root / name, map(make_reference, captions), str(source))


def _captions(path: Path) -> dict[str, list[str]]:
    captions: dict[str, list[str]] = defaultdict(list)
    rows = TypeAdapter(Row)
    for place, image, caption in _rows(path):
        with at(place):
            row = rows.validate_python({"image": image, "caption": caption})
        captions[row.image].append(row.caption)
    return captions


def _rows(path: Path) -> Iterator[tuple[str, str, str]]:
    """Place, file name and caption of every line."""
    lines = read_lines(path)
    place, first = lines[0] if lines else (str(path), "")
    if _TOKEN.fullmatch(first):
        for place, line in lines:
            if not (match := _TOKEN.fullmatch(line)):
                raise CaptioningError(f"{place}: {line!r:.60} is not of the form name.jpg#0<TAB>caption")
            yield place, match[1], match[2]
        return
    delimiter = "\t" if "\t" in first else ","
    header = [name.strip() for name in _fields(first, delimiter)]
    if header.count("image") != 1 or header.count("caption") != 1:
        raise CaptioningError(f"{place}: {first!r:.60} does not name the columns; {_EXAMPLE}")
    for place, line in lines[1:]:
        values = _fields(line, delimiter)
        if len(values) != len(header):
            raise CaptioningError(f"{place}: {line!r:.60} is not CSV of {len(header)} columns; {_EXAMPLE}")
        fields = dict(zip(header, values, strict=True))
        yield place, fields["image"].strip(), fields["caption"]


def _fields(line: str, delimiter: str) -> list[str]:
    """The columns of a line, none where it is not CSV."""
    # Each line on its own, so that a quote that is never closed cannot swallow the lines after it.
    try:
        return next(csv.reader([line], delimiter=delimiter, strict=True))
    except csv.Error:
        return []
