"""The photographs of examples on disk: found, under similar names too, or listed as absent."""

import logging
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain
from pathlib import Path

import numpy as np

from captioning.data.caption_words import offsets
from captioning.data.columns import DIGEST, digests, file_counts, files_of, take
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
    splits, absent = find_on_disk(splits)
    if not absent:
        return splits
    count = sum(file_counts(examples).sum() for examples in splits.values())
    every = len(absent) == count
    if skipped is None or every:
        advice = "leave them out with data.skip_broken=true"
        if every:
            advice = _advice(absent[0], setting)
        names = listed(list(map(quoted, absent)))
        raise CaptioningError(
            f"{len(absent)} of {count} photographs are not on disk: {names}; {advice}"
        )
    skipped += [CaptioningError(f"{quoted(path)} is not on disk") for path in absent]
    gone = np.sort(digests(map(str, absent)))
    return {name: take(part, ~_has_any(part, gone)) for name, part in splits.items()}


def find_on_disk(splits: Splits) -> tuple[Splits, list[Path]]:
    """Give examples the names that their photographs have on disk, and list the absent ones.

    A photograph may have another name than its example says, see `match_names`.
    """
    every = [files_of(examples) for examples in splits.values()]
    names = np.sort(np.concatenate([files.values for files, _ in every]))
    gone = names[~_among(names, _digests_in({each for _, folders in every for each in folders}))]
    if not gone.size:
        return splits, []
    lost = (take(examples, _has_any(examples, gone)) for examples in splits.values())
    absent = absent_files(path for e in chain.from_iterable(lost) for path in e.paths)
    found = _similar_files(absent, len(absent) == len(names), names)
    if not found:
        return splits, absent
    one, there = next(iter(found.items()))
    log.info(
        "photographs under similar names on disk: %d, as %a for %a",
        len(found),
        str(there),
        str(one),
    )

    def renamed(example: Example) -> Example:
        path, *further = (found.get(path, path) for path in example.paths)
        return replace(example, path=path, further=tuple(further))

    splits = {name: list(map(renamed, examples)) for name, examples in splits.items()}
    return splits, [path for path in absent if path not in found]


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
    return np.searchsorted(known, asked) < np.searchsorted(known, asked, "right")


def _has_any(examples: Sequence[Example], known: np.ndarray) -> np.ndarray:
    """Which of the examples have a file of these digests, which are sorted."""
    files, _ = files_of(examples)
    return np.diff(offsets(_among(files.values, known))[files.starts]) > 0


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
