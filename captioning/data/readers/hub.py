"""Reader of what the library `datasets` reads: sets of the Hugging Face Hub, parquet, WebDatasets.

The library keeps a set in Arrow files, which are mapped into memory: captions are read by column,
and images by row when they are needed (`captioning.data.rows`). A column inside another one is
called `json.captions`. No code of a set is run: the library refuses loading scripts.

Of a folder the library gets its data files alone, since it would follow a README.md to any address
and any file, and what it unpacks is limited.
"""

import logging
import re
import sys
import zlib
from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import cache
from itertools import chain
from pathlib import Path
from resource import RLIMIT_DATA, RLIMIT_FSIZE, getpagesize, getrlimit, setrlimit
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator, ValidationError

from captioning.config.types import UserPath, given_path, validated_class
from captioning.data.caption_words import Ragged, offsets
from captioning.data.columns import Columns, RowWriter
from captioning.data.readers.groups import group_of
from captioning.data.readers.options import options
from captioning.data.readers.parsing import ImageId, Text, are_captions, at, captions_of, or_skip
from captioning.data.readers.reading import (
    OTHER_NAMES,
    SHARES,
    OfEachSplit,
    ReadSplits,
    Share,
    check_splits,
    choose_examples,
)
from captioning.data.readers.table import find_columns
from captioning.data.rows import PREFIX, arrow_table
from captioning.errors import CaptioningError, listed, quoted
from captioning.files import LARGEST, RATIO
from captioning.progress import has_bars

IDS = ("cocoid", "image_id", "img_id", "imgid", "filename", "file_name", "image_name")
MODULES = {
    ".tar": "webdataset",
    "metadata.csv": "imagefolder",
    "metadata.jsonl": "imagefolder",
    "metadata.parquet": "imagefolder",
    ".parquet": "parquet",
}
"""Those of the library that find images, by the end of the names of what they read."""
TEXT = re.compile(r"(large_)?(list<\w+: )?(large_)?string( not null)?>?")

log = logging.getLogger(__name__)


@validated_class
class _Row:
    image_id: ImageId
    captions: Annotated[list[Text], BeforeValidator(captions_of)]


class _Images:
    """Rows, and for each the size of its image, or a number that stands for its file."""

    def __init__(self) -> None:
        self.rows, self.contents = RowWriter("/"), array("q")

    def finish(self) -> Columns:
        """The images, whose rows must have the same content."""
        images, contents = self.rows.finish().by_image(), np.array(self.contents)
        rows, of_rows = images.rows, contents[images.rows.values]
        own = of_rows == of_rows[rows.starts[:-1]].repeat(rows.lengths)
        images = replace(images, rows=Ragged(rows.values[own], offsets(own)[rows.starts]))
        for place in np.searchsorted(rows.starts, np.flatnonzero(~own), side="right") - 1:
            with or_skip():
                raise CaptioningError(
                    f"{quoted(images[int(place)].image_id)} has another image in an earlier row; "
                    "name the column of the ids by data.reader.id_column=COLUMN"
                )
        return images


@validated_class
class HubReader:
    """Images in rows of a set that the library `datasets` loads, with captions in other columns.

    Rows with one id are one image with the captions of all. Without a column of ids each row is an
    image, called `SPLIT/ROW`.

    Args:
        name: `USER/SET` or `USER/SET@REVISION` of the Hub, a folder, or files such as
            `FOLDER/*.tar`.
        splits: for each of `train`, `val` and `test`, the name of a split, or a share of the images
            in splits that are not named. If the set has one split, its column `split` has the
            names; without that column, `SHARES` apply.
        root: folder in which the library keeps sets; names of photographs are relative to it.
        config: name of a configuration, if a set has several.
        image_column: that of the images.
        caption_columns: those of the captions: a cell is one, or a list.
        id_column: that of the ids; without, `IDS` are looked for.
    """

    name: str
    splits: OfEachSplit[str | Share | None]
    root: UserPath
    config: str | None = None
    image_column: str | None = None
    caption_columns: Sequence[str] = ()
    id_column: str | None = None

    def __call__(self) -> ReadSplits:
        """Read `train`, `val` and `test`."""
        parts: dict[Any, Any] = dict(self.splits)
        loaded = self._load()
        first, *others = loaded.values()
        label = None if others or "split" not in first.column_names else "split"
        if label is None and not others:
            log.info("%s has one split: 80 %%, 10 %% and 10 %% of it, always the same", self.name)
            parts |= {name: SHARES[name] for name, part in parts.items() if isinstance(part, str)}
        meant = {
            split: name
            for name, part in parts.items()
            if isinstance(part, str)
            for split in (part.lower(), *OTHER_NAMES.get(part, ()))
        }
        images = defaultdict[str | None, _Images](_Images)  # of train, val, test or none of them
        for split, data in loaded.items():
            if label or split.lower() in meant or any(isinstance(p, tuple) for p in parts.values()):
                self._read(split, data, label, meant, images)
        finished = cache(lambda key: images[key].finish())
        splits: ReadSplits = {}
        for name, part in parts.items():
            key, share = (name, (0.0, 1.0)) if isinstance(part, str) else (None, part)
            splits[name] = choose_examples(share, finished(key), Path(self.name, name))
        return check_splits(splits, f"{self.name}, whose splits are {', '.join(loaded)}")

    def sources(self) -> list[str]:
        """The Arrow files, each with the library's fingerprint of the content."""
        return [
            f"{entry['filename']} {data._fingerprint}"
            for data in self._load().values()
            for entry in data.cache_files
        ]

    def _read(
        self, split: str, data: Any, label: str | None, meant: Mapping[str, str], images: Any
    ) -> None:
        """Add the images of a split, or of those that its column `label` names."""
        from pyarrow.compute import binary_length

        before = 0
        for entry in data.cache_files:
            table = arrow_table(entry["filename"]).flatten()
            image, captions, image_id = self._columns(table)
            size, file = f"{image}.size", f"{image}.path"
            table = table.append_column(size, binary_length(table[f"{image}.bytes"]))
            wanted = {*captions, image_id, size, file, label, options().groups} & {
                *table.column_names
            }
            batches = table.select([*wanted]).to_batches()
            rows = chain.from_iterable(batch.to_pylist() for batch in batches)
            folder = f"{entry['filename']}/{data._fingerprint}/{image}/{PREFIX}"
            for number, cells in enumerate(rows):
                path = f"{folder}{number}"
                try:
                    key = cells[image_id] if image_id else f"{split}/{before + number}"
                    texts = [cells[name] for name in captions]
                    if not (type(key) in (int, str) and are_captions(texts)):
                        row = _Row(key, texts)
                        key, texts = row.image_id, row.captions
                    content = cells[size]
                    if content is None:
                        path = str(self._file(cells.get(file)))
                        content = -zlib.crc32(path.encode())
                    name = str(cells[label] if label else split).strip().lower()
                    own = images[meant.get(name)]
                    own.rows.add(key, [path.lstrip("/")], texts, group_of(cells))
                    own.contents.append(content)
                except (CaptioningError, ValidationError):
                    with or_skip(), at(path):
                        raise
            before += table.num_rows

    def _file(self, name: str | None) -> Path:
        """The file of a row without bytes, which is where the user or the library put it."""
        folder, path = given_path(self.name), Path(name or "").absolute()
        if folder.is_dir():
            below = lies_in(folder, path)
        else:
            folder = self.root.parent
            below = ".." not in path.parts and path.is_relative_to(folder)
        if not name or not below:
            raise CaptioningError(f"there is no image, or none below {quoted(folder)}")
        return path

    def _columns(self, table: Any) -> tuple[Any, Sequence[str], str | None]:
        """The columns of the image, the captions and the id, given or those alone possible."""
        kinds = {field.name: str(field.type) for field in table.schema}
        # by their last names in small letters; of two with one name the first
        short = {name.rpartition(".")[2].lower(): name for name in reversed(kinds)}
        inner = [name for name, kind in kinds.items() if kind == "binary" and "/" not in name]
        images = [name.removesuffix(".bytes") for name in inner if name.endswith(".bytes")]
        image, image_id = self.image_column, self.id_column
        if image is None and len(images) == 1:
            image = images[0]
        if image_id is None:
            image_id = next((short[name] for name in IDS if name in short), None)
        captions = self.caption_columns or _caption_columns(kinds, short)
        if image in images and captions and {*captions, image_id} <= {*kinds, None}:
            return image, captions, image_id
        plain = table.drop_columns([name for name in kinds if kinds[name] == "binary"])
        shown = [f"{quoted(name)} ({kind})" for name, kind in kinds.items()]
        raise CaptioningError(
            f"{self.name}: name the column of the images by data.reader.image_column=COLUMN and "
            "those of the captions by 'data.reader.caption_columns=[COLUMN]', of "
            f"{listed(shown, 20)}; a row: {quoted(plain.slice(0, 1).to_pylist())}"
        )

    def _load(self) -> dict[str, Any]:
        """The splits by name."""
        try:
            import datasets
        except ImportError as error:
            raise CaptioningError(
                "data=hub needs another package: pip install 'captioning[hub]'"
            ) from error
        if not has_bars(sys.stderr):
            datasets.disable_progress_bars()
        # it would name each of five attempts without a network
        logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
        source, _, revision = self.name.partition("@")
        given, files = given_path(self.name), None
        try:
            # the library may have a module of a name without a slash
            if "/" not in source or given.is_dir() or any(given.parent.glob(given.name)):
                source, files = local_files(given)
            builder = datasets.load_dataset_builder(
                source, self.config, data_files=files, revision=revision or None
            )
            if files:
                prepare(builder)
            builder.download_and_prepare()  # or read what it has prepared
            return builder.as_dataset()
        except Exception as error:  # the library raises anything
            raise CaptioningError(
                f"data.name={quoted(self.name)} cannot be loaded; it must be a folder, files such "
                "as 'FOLDER/*.tar', USER/SET or USER/SET@REVISION of the hub (without a network "
                f"only what it has loaded before). Unpacked, files may have {RATIO} times as many "
                f"bytes, and take 2 GB of memory: {quoted(error.__cause__ or error)}"
            ) from error


def _caption_columns(kinds: Mapping[str, str], short: Mapping[str, str]) -> list[str]:
    """The columns of texts that are named like captions; else the only one, of lists if any."""
    texts = {key: name for key, name in short.items() if TEXT.fullmatch(kinds[name])}
    _, named, _ = find_columns(texts)
    if named:
        return [texts[name] for name in named]
    lists = [name for name in texts.values() if ">" in kinds[name]]
    possible = lists or list(texts.values())
    return possible if len(possible) == 1 else []


def local_files(given: Path) -> tuple[str, Any]:
    """The library's module for a folder or a pattern of files, and the files of each split."""
    from datasets.data_files import DataFilesDict, get_data_patterns

    folder, patterns = given.parent, {"train": [given.name]}
    if given.is_dir():
        folder, patterns = given, get_data_patterns(str(given))
    found = DataFilesDict.from_patterns(patterns, str(folder))
    for end, module in MODULES.items():
        chosen = found.filter(file_names=[end])
        for name in chain(*chosen.values()):
            if not lies_in(folder, Path(name)):
                raise CaptioningError(f"{name} is a link to another folder: put a copy there")
        if any(chosen.values()):
            return module, chosen
    raise CaptioningError(f"it has no *{', *'.join(MODULES)}")


def lies_in(folder: Path, file: Path) -> bool:
    """Tell whether a file is in a folder, wherever links lead.

    Files of a `snapshots/REVISION` in the hub's cache are links to its `blobs`.
    """
    places = folder.resolve(), folder.resolve().parent.parent / "blobs"
    return any(file.resolve().is_relative_to(place) for place in places)


def prepare(builder: Any) -> None:
    """Have the library write its Arrow files, within limits of their bytes and of memory."""
    files = map(Path, chain(*builder.config.data_files.values()))
    most = RATIO * sum(file.stat().st_size for file in files) + 2**20
    statm = Path("/proc/self/statm")  # of Linux
    pages = int(statm.read_text().split()[5]) if statm.exists() else 2**30
    with ExitStack() as stack:
        for kind, limit in (RLIMIT_FSIZE, most), (RLIMIT_DATA, pages * getpagesize() + LARGEST):
            before = getrlimit(kind)
            stack.callback(setrlimit, kind, before)
            with suppress(ValueError):  # there is a lower limit already
                setrlimit(kind, (limit, before[1]))
        builder.download_and_prepare(max_shard_size=most)
