"""The photographs of examples on disk: found, under similar names too, or listed as absent."""

import logging
import os
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

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
    paths = [path for examples in splits.values() for e in examples for path in e.paths]
    gone = set(absent)
    every = gone.issuperset(paths)
    if absent and (skipped is None or every):
        advice = "leave them out with data.skip_broken=true"
        if every:
            advice = _advice(absent[0], setting)
        names = listed(list(map(quoted, absent)))
        raise CaptioningError(
            f"{len(absent)} of {len(paths)} photographs are not on disk: {names}; {advice}"
        )
    if skipped is not None:
        skipped += [CaptioningError(f"{quoted(path)} is not on disk") for path in absent]
    return {
        name: [example for example in examples if gone.isdisjoint(example.paths)]
        for name, examples in splits.items()
    }


def find_on_disk(splits: Splits) -> tuple[Splits, list[Path]]:
    """Give examples the names that their photographs have on disk, and list the absent ones.

    A photograph may have another name than its example says, see `match_names`.
    """
    paths = [path for examples in splits.values() for e in examples for path in e.paths]
    absent = absent_files(paths)
    found = _similar_files(absent, paths)
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


def _similar_files(absent: Sequence[Path], paths: Collection[Path]) -> dict[Path, Path]:
    """The photographs in place of absent ones, see `match_names`, that are none of `paths`.

    A backslash divides folders too. If all are absent, folders that are not there are left out of
    the names, one by one from the first, such as those of another machine.
    """
    found: dict[Path, Path] = {}
    existing, left = cache(_existing), {}
    present = sorted({existing(path.parent) for path in absent}, key=lambda each: len(each.parts))
    for path in absent:
        there = next(folder for folder in present if folder in path.parents)
        left[path] = there, re.split(r"[/\\]", str(path.relative_to(there)))
    alone = len(left) == len(paths)
    while left:
        folders: dict[Path, dict[str, list[Path]]] = defaultdict(lambda: defaultdict(list))
        for path, (there, parts) in left.items():
            folders[there.joinpath(*parts[:-1])][parts[-1]].append(path)
        for folder, names in folders.items():
            files = {file for file in folder.glob("*") if file.suffix.lower() in SUFFIXES}
            free = files.difference(paths, found.values())
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
