"""Fingerprint image files and check that they decode."""

import hashlib
import json
import logging
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from filelock import FileLock
from torch import Tensor

from captioning.data.example import Splits
from captioning.errors import CaptioningError
from captioning.files import write_json
from captioning.machine import is_first
from captioning.progress import counter

ADVICE = "repair it, or skip such photographs with data.skip_broken=true"

log = logging.getLogger(__name__)


class Reading(Protocol):
    """How a file becomes an image `[C, H, W]` uint8."""

    def read(self, source: Path) -> Tensor:
        """Decode and resize one photograph; raises a `CaptioningError` with the reason where it cannot."""
        ...


def readable(splits: Splits, transform: Reading, folder: Path, skip_broken: bool) -> Splits:
    """The examples whose photographs can be read; rank 0 logs those that are skipped, if they may be.

    Every photograph is decoded to know, once per data set: `folder` keeps which failed. Of several processes that ask
    at the same time one decodes and the others wait.
    """
    paths = list(dict.fromkeys(example.path for examples in splits.values() for example in examples))
    broken = _broken(paths, transform, folder)
    kept = {name: [each for each in examples if each.path not in broken] for name, examples in splits.items()}
    for name, examples in splits.items():
        skipped = [broken[example.path] for example in examples if example.path in broken]
        if skipped and not (skip_broken and kept[name]):
            advice = f"no other of {name} can be read" if skip_broken else ADVICE
            raise CaptioningError(f"{skipped[0]}; {advice}")
        for reason in skipped if is_first() else ():
            log.warning("skipped in %s: %s", name, reason)
    return kept


def _broken(paths: Sequence[Path], transform: Reading, folder: Path) -> dict[Path, str]:
    """The photographs that cannot be read, and why."""
    missing = {path for path in paths if not os.path.isfile(path)}  # noqa: PTH113, for `Path.is_file` may raise
    files = [path for path in paths if path not in missing]
    record = folder / hashlib.sha256(b"\n".join(fingerprints(files))).hexdigest()[:32]
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(record.with_suffix(".lock")):
        try:
            suspects = [files[number] for number in json.loads(record.read_bytes())]
        except (FileNotFoundError, ValueError, TypeError, IndexError, RecursionError):  # or damaged
            suspects = None
        # They are tried again, and so a damaged record excludes nothing.
        broken = _failures(suspects or [], transform)
        if suspects is None or len(broken) < len(suspects):
            broken = _failures(files, transform)
            write_json(record, [number for number, path in enumerate(files) if path in broken])
    return _failures(list(missing), transform) | broken


def _failures(paths: Sequence[Path], transform: Reading) -> dict[Path, str]:
    def failure(path: Path) -> str | None:
        try:
            transform.read(path)
        except CaptioningError as error:
            return str(error)
        return None

    with ThreadPoolExecutor() as pool:  # threads are enough: Pillow decodes without Python's lock
        reasons = counter("photographs tried", len(paths), "image", iterable=pool.map(failure, paths), delay=2)
        return {path: reason for path, reason in zip(paths, reasons, strict=True) if reason is not None}


def fingerprints(paths: Sequence[Path]) -> list[bytes]:
    """Identify photographs in a key: path below their common folder, size and time of modification.

    Reading every byte of a large data set at each start would take minutes, and a changed file that keeps all three
    does not come about by accident. A data set may move together; one copied without its times of modification is
    computed again.
    """
    paths = [path.absolute() for path in paths]
    common = len(Path(os.path.commonpath({path.parent for path in paths})).parts) if paths else 0
    found = []
    for path in paths:
        status, name = path.stat(), os.fsencode("/".join(path.parts[common:]))
        found.append(b"%s\0%d\0%d" % (name, status.st_size, status.st_mtime_ns))
    return found
