"""The photographs of examples on disk: found, under similar names too, or listed as absent."""

import logging
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from captioning.data.caption_words import Ragged, offsets
from captioning.data.columns import DIGEST, digests, files_of, take
from captioning.data.example import Example, Splits
from captioning.data.readers.ids import match_names
from captioning.data.rows import is_row
from captioning.errors import CaptioningError, listed, quoted
from captioning.files import SUFFIXES

log = logging.getLogger(__name__)


def on_disk(splits: Splits, skipped: list[Exception] | None, setting: str) -> Splits:
    """Refuse, or leave out and list, examples whose photographs are absent from the folder that a
    `setting` names.
    """
    splits, absent, lacking = find_on_disk(splits)
    count = sum(len(files_of(examples)[0].values) for examples in splits.values())
    every = len(absent) == count
    if absent and (skipped is None or every):
        advice = "leave them out with data.skip_broken=true"
        if every:
            advice = _advice(absent[0], setting)
        names = listed(list(map(quoted, absent)))
        raise CaptioningError(
            f"{len(absent)} of {count} photographs are not on disk: {names}; {advice}"
        )
    if not absent:
        return splits
    assert skipped is not None
    skipped += [CaptioningError(f"{quoted(path)} is not on disk") for path in absent]
    return {
        name: take(examples, np.delete(np.arange(len(examples)), lacking[name]))
        for name, examples in splits.items()
    }


def find_on_disk(splits: Splits) -> tuple[Splits, list[Path], dict[str, list[int]]]:
    """Give examples the names that their photographs have on disk.

    A photograph may have another name than its example says, see `match_names`.

    Returns:
        The splits, the absent photographs, and the positions of the examples that lack one.
    """
    files = {name: files_of(examples) for name, examples in splits.items()}
    there = _digests_in({folder for _, folders in files.values() for folder in folders})
    lacking = {name: _lacking(part, there) for name, (part, _) in files.items()}
    paths = {
        name: [e.paths for e in take(splits[name], np.array(positions, np.int64))]
        for name, positions in lacking.items()
    }
    absent = [
        path
        for examples in paths.values()
        for each in examples
        for path in each
        if not _among(digests([str(path)]), there)[0]
    ]
    every = np.concatenate([part.values for part, _ in files.values()])
    found = _similar_files(absent, len(absent) == len(every), np.sort(every)) if absent else {}
    if not found:
        return splits, absent, lacking
    one, path = next(iter(found.items()))
    log.info(
        "photographs under similar names on disk: %d, as %a for %a",
        len(found),
        str(path),
        str(one),
    )

    def renamed(example: Example) -> Example:
        path, *further = (found.get(path, path) for path in example.paths)
        return replace(example, path=path, further=tuple(further))

    gone = set(absent).difference(found)
    lacking = {
        name: [
            position
            for position, each in zip(lacking[name], paths[name], strict=True)
            if not gone.isdisjoint(each)
        ]
        for name in splits
    }
    splits = {name: list(map(renamed, examples)) for name, examples in splits.items()}
    return splits, [path for path in absent if path in gone], lacking


def _digests_in(folders: Iterable[str]) -> np.ndarray:
    """The sorted digests of all files in folders, and that of what is no file.

    One listing per folder, as network disks are slow.
    """
    found = [np.zeros(1, DIGEST)]
    for folder in folders:
        if os.path.isdir(folder or "."):  # noqa: PTH112, because paths are slower
            with os.scandir(folder or ".") as entries:
                found.append(digests(folder + entry.name for entry in entries))
    return np.sort(np.concatenate(found))


def _among(asked: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Which of the digests asked for are among known ones, which are sorted."""
    return known[np.searchsorted(known, asked).clip(max=len(known) - 1)] == asked


def _lacking(files: Ragged, there: np.ndarray) -> list[int]:
    """The numbers of the lists that have a digest which is not there."""
    absent = offsets(~_among(files.values, there))[files.starts]
    return np.flatnonzero(np.diff(absent)).tolist()


def absent_files(paths: Iterable[Path]) -> list[Path]:
    """The paths that are not on disk; one listing per folder, as network disks are slow."""
    folders = defaultdict(list)
    for path in paths:
        if not is_row(path):
            folders[path.parent].append(path)
    absent = []
    for folder, files in folders.items():
        present = set(os.listdir(folder)) if folder.is_dir() else ()  # noqa: PTH208, because paths are slower
        absent += [path for path in files if path.name not in present]
    return absent


def _similar_files(absent: Sequence[Path], alone: bool, taken: np.ndarray) -> dict[Path, Path]:
    """The photographs in place of absent ones, see `match_names`, that no digest of `taken` names.

    A backslash divides folders too. If there are no others, folders that are not there are left out
    of the names, one by one from the first, such as those of another machine.
    """
    found: dict[Path, Path] = {}
    existing, left = cache(_existing), {}
    present = sorted({existing(path.parent) for path in absent}, key=lambda each: len(each.parts))
    for path in absent:
        there = next(folder for folder in present if folder in path.parents)
        left[path] = there, re.split(r"[/\\]", str(path.relative_to(there)))
    while left:
        folders: dict[Path, dict[str, list[Path]]] = defaultdict(lambda: defaultdict(list))
        for path, (there, parts) in left.items():
            folders[there.joinpath(*parts[:-1])][parts[-1]].append(path)
        for folder, names in folders.items():
            files = [file for file in folder.glob("*") if file.suffix.lower() in SUFFIXES]
            ours = _among(digests(map(str, files)), taken)
            free = {file for file, own in zip(files, ours, strict=True) if not own}
            free = free.difference(found.values())
            for name, file in match_names(names, {file.name for file in free}).items():
                if len(names[name]) == 1:
                    found[names[name][0]] = folder / file
        left = {
            path: (there, parts[1:])
            for path, (there, parts) in left.items()
            if alone and path not in found and len(parts) > 1
        }
    return found


def _existing(folder: Path) -> Path:
    return next(parent for parent in (folder, *folder.parents) if parent.is_dir())


def _advice(path: Path, setting: str) -> str:
    """Name the folder near an absent photograph that holds it, if there is one."""
    for folder in (*sorted(path.parent.glob("*")), *sorted(path.parent.parent.glob("*"))):
        if folder != path.parent and (folder / path.name).is_file():
            where = quoted(folder)
            return f"{quoted(path.name)} is in {where}: set {setting}={where}"
    return f"set data.root to the folder of the data set, or {setting} to that of the photographs"
