"""Photographs on disk: those of a folder, their fingerprints, and whether they decode."""

import json
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice
from pathlib import Path
from typing import NoReturn, Protocol

import numpy as np
from filelock import FileLock
from torch import Tensor

from captioning.data.columns import AT_ONCE, file_counts, file_names, path_names, take
from captioning.data.example import Example, Splits, image_names
from captioning.data.readers.captions import read_examples
from captioning.data.readers.kept import kept_key
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
    broken = _broken(splits, transform, folder)
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


def _broken(splits: Splits, transform: Reading, folder: Path) -> dict[str, str]:
    """The unreadable photographs and the reasons."""

    def files() -> Iterator[str]:
        return chain(*chain(*map(file_names, splits.values())))

    known_by = kept_key(splits) or b"\n".join(fingerprints([*files()]))
    record = folder / sha256(known_by)[:32]
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(record.with_suffix(".lock")):
        try:
            recorded = {*json.loads(record.read_bytes())}
        except (FileNotFoundError, ValueError, TypeError, RecursionError):  # or damaged
            recorded = {None}
        numbered = enumerate(files() if recorded else ())
        suspects = [name for number, name in numbered if number in recorded]
        # Try them again, so that a damaged record excludes no readable photograph.
        broken = _failures(suspects, len(suspects), transform)
        if len(broken) < len(recorded):
            count = sum(int(file_counts(examples).sum()) for examples in splits.values())
            broken = _failures(files(), count, transform)
            write_json(record, [number for number, name in enumerate(files()) if name in broken])
    return broken


def _failures(names: Iterable[str], count: int, transform: Reading) -> dict[str, str]:
    broken, rest = dict[str, str](), iter(names)

    def fault(name: str) -> str | None:
        try:
            transform.read(Path(name))
        except CaptioningError as error:
            return str(error)
        return None

    bar = progress_bar("photographs checked", count, "image", delay=2)
    with ThreadPoolExecutor() as pool, bar:  # threads suffice: Pillow decodes without the GIL
        while part := [*islice(rest, AT_ONCE)]:  # as each waits in an object of its own
            faults = zip(part, pool.map(fault, part), strict=True)
            broken |= {name: reason for name, reason in faults if reason is not None}
            bar.update(len(part))
    return broken


def fingerprints(paths: Iterable[Path | str]) -> list[bytes]:
    """Identify photographs by path below their common folder, size and modification time.

    Reading every byte of a large data set at each start would take minutes, and no file changes by
    accident without changing one of the three. A data set may be moved; after a copy without
    modification times its features are computed again. A row is known by the fingerprint that the
    library `datasets` gives to its content, which is in its path.
    """
    here = Path.cwd()
    names = [name if name.startswith("/") else str(here / name) for name in path_names(paths)]
    folders = {name.rpartition("/")[0] or "/" for name in names}
    start = len(os.path.commonpath(folders).rstrip("/")) + 1 if names else 0
    prints = []
    for name in names:
        if is_row(name):
            prints.append(os.fsencode("/".join(name.split("/")[-4:])))
            continue
        try:
            status = os.stat(name)  # noqa: PTH116, because paths are slower
        except OSError:  # reading it says so
            state = 0, 0
        else:
            state = status.st_size, status.st_mtime_ns
        prints.append(b"%s\0%d\0%d" % (os.fsencode(name[start:]), *state))
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
