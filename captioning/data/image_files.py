"""Photographs on disk: those of a folder, their fingerprints, and whether they decode."""

import json
import logging
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import NoReturn, Protocol

import numpy as np
from filelock import FileLock
from torch import Tensor

from captioning.data.columns import AT_ONCE, file_names, take
from captioning.data.example import Example, Splits, image_names
from captioning.data.readers.captions import read_examples
from captioning.data.readers.on_disk import find_on_disk
from captioning.data.readers.reading import check_splits
from captioning.data.rows import is_row
from captioning.errors import CaptioningError, quoted
from captioning.files import SUFFIXES, find_images, sha256, write_json
from captioning.progress import progress_bar

HINT = "correct it, or skip such photographs with data.skip_broken=true"
SAMPLE, PLACES = 64, 4
"""Bytes of a file of features by which it is known, at each of so many places."""

log = logging.getLogger(__name__)


class Reading(Protocol):
    """Conversion of a file to an image `[C, H, W]` uint8."""

    def read(self, source: Path) -> Tensor:
        """Decode and resize one photograph, or raise a `CaptioningError` with the reason."""
        ...

    def resample(self, epoch: int) -> "Reading":
        """The same, with views drawn again for each epoch."""
        ...


def readable(splits: Splits, transform: Reading, folder: Path, skip_broken: bool) -> Splits:
    """Keep the examples whose photographs decode; skipped photographs are logged.

    Every photograph is decoded once per data set; `folder` caches which failed. If several
    processes start at the same time, one decodes and the others wait.
    """
    names = [name for each in splits.values() for files in file_names(each) for name in files]
    broken = _broken(names, transform, folder)
    if not broken:
        return splits
    kept = {
        split: take(examples, np.array([*map(broken.keys().isdisjoint, file_names(examples))]))
        for split, examples in splits.items()
    }
    for split, examples in splits.items():
        found = chain.from_iterable(file_names(examples))
        skipped = [broken[name] for name in found if name in broken]
        if skipped and not skip_broken:
            raise CaptioningError(f"{skipped[0]}; {HINT}")
        if skipped and not kept[split]:
            raise CaptioningError(f"{skipped[0]}; no other photograph of {split} can be read")
        for reason in skipped:
            log.warning("skipped in %s: %s", split, reason)
    return kept


def _broken(names: Sequence[str], transform: Reading, folder: Path) -> dict[str, str]:
    """The unreadable photographs and the reasons."""
    missing = {name for name in names if not is_row(name) and not os.path.isfile(name)}  # noqa: PTH113, because `Path.is_file` may raise
    files = [name for name in names if name not in missing]
    record = folder / sha256(b"\n".join(fingerprints(files)))[:32]
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(record.with_suffix(".lock")):
        try:
            suspects = [files[number] for number in json.loads(record.read_bytes())]
            known = True
        except (FileNotFoundError, ValueError, TypeError, IndexError, RecursionError):  # or damaged
            suspects, known = [], False
        # Try them again, so that a damaged record excludes no readable photograph.
        broken = _failures(suspects, transform)
        if not known or len(broken) < len(suspects):
            broken = _failures(files, transform)
            write_json(record, [number for number, name in enumerate(files) if name in broken])
    return _failures(list(missing), transform) | broken


def _failures(names: Sequence[str], transform: Reading) -> dict[str, str]:
    broken = {}

    def read(name: str) -> None:
        try:
            transform.read(Path(name))
        except CaptioningError as error:
            broken[name] = str(error)

    bar = progress_bar("photographs checked", len(names), "image", delay=2)
    with ThreadPoolExecutor() as pool, bar:  # threads suffice: Pillow decodes without the GIL
        for first in range(0, len(names), AT_ONCE):  # as each waits in an object of its own
            part = names[first : first + AT_ONCE]
            list(pool.map(read, part))
            bar.update(len(part))
    return {name: broken[name] for name in names if name in broken}


def fingerprints(paths: Iterable[Path | str]) -> list[bytes]:
    """Identify photographs by path below their common folder, size and modification time.

    Reading every byte of a large data set at each start would take minutes, and no file changes by
    accident without changing one of the three. A data set may be moved; after a copy without
    modification times its features are computed again. A row is known by the fingerprint that the
    library `datasets` gives to its content, which is in its path.
    """
    here = Path.cwd()
    names = [name if name.startswith("/") else str(here / name) for name in map(str, paths)]
    folders = {name.rpartition("/")[0] or "/" for name in names}
    start = len(os.path.commonpath(folders).rstrip("/")) + 1 if names else 0
    prints = []
    for name in names:
        if is_row(name):
            prints.append(os.fsencode("/".join(name.split("/")[-4:])))
            continue
        status = os.stat(name)  # noqa: PTH116, because paths are slower
        below = os.fsencode(name[start:])
        prints.append(b"%s\0%d\0%d" % (below, status.st_size, status.st_mtime_ns))
    return prints


def feature_fingerprints(files: Sequence[Path]) -> list[bytes]:
    """Identify files of features as `fingerprints`, by the inode's time and by a few bytes, too.

    Features of equal shapes have equal sizes, and archives may give all files one time.
    """
    prints = []
    for file, usual in zip(files, fingerprints(files), strict=True):
        status = file.stat()
        sample = b""
        with file.open("rb") as opened:
            for part in range(PLACES):
                opened.seek(max(0, status.st_size * (part + 1) // PLACES - SAMPLE))
                sample += opened.read(SAMPLE)
        changed = b"%d" % status.st_ctime_ns
        prints.append(b"\0".join([usual, changed, sha256(sample).encode()]))
    return prints


def read_folder(folder: Path, references: Path | None) -> tuple[list[Example], int]:
    """Find the photographs in a folder and its subfolders, sorted by path, and count missing ones.

    Missing are the photographs of the file `references` that the folder lacks. An image's id is
    that of the file, or its path relative to the folder; file names are relative to the folder too.
    No photograph is opened.
    """
    paths = sorted(find_images(folder, _raise))
    if not paths:
        raise CaptioningError(
            f"there are no photographs in images={quoted(folder)}: name a folder with files of "
            f"{', '.join(SUFFIXES)}"
        )
    names = image_names([Example(0, path, ()) for path in paths], folder)
    alone = {path: Example(name, path, ()) for name, path in zip(names, paths, strict=True)}
    if references is None:
        return list(alone.values()), 0
    examples = find_on_disk({"images": read_examples(folder, references)})[0]["images"]
    captioned = {example.path: example for example in examples}
    others = [example for path, example in alone.items() if path not in captioned]
    check_splits({"images": [*examples, *others]}, references)
    absent = len(captioned.keys() - alone.keys())
    if absent == len(captioned):
        first = image_names(examples[:1], folder) or ["none"]
        raise CaptioningError(
            f"references={quoted(references)} and images={quoted(folder)} have no photograph in "
            f"common; the first of the references: {quoted(first[0])}"
        )
    return [captioned.get(path, example) for path, example in alone.items()], absent


def _raise(error: OSError) -> NoReturn:
    raise error
