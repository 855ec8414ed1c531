"""The photographs of examples on disk: found, under similar names too, or listed as absent."""

import logging
import os
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from captioning.data.example import Example, Splits
from captioning.data.readers.ids import match_names
from captioning.data.rows import is_row
from captioning.errors import CaptioningError, listed, quoted
from captioning.files import SUFFIXES

log = logging.getLogger(__name__)


def on_disk(splits: Splits, skipped: list[Exception] | None) -> Splits:
    """Refuse, or leave out and list, examples whose photographs are absent."""
    splits, absent = find_on_disk(splits)
    paths = [path for examples in splits.values() for e in examples for path in e.paths]
    gone = set(absent)
    every = gone.issuperset(paths)
    if absent and (skipped is None or every):
        advice = "leave them out with data.skip_broken=true"
        if every:
            advice = _advice(absent[0])
        names = listed([quoted(path) for path in absent])
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
    absent = absent_files(p for examples in splits.values() for e in examples for p in e.paths)
    found = {path: similar for path, similar in absent.items() if similar is not None}
    if not found:
        return splits, list(absent)
    one, there = next(iter(found.items()))
    log.info(
        "photographs with another suffix, case or form of letters on disk: %d, as %a for %a",
        len(found),
        there.name,
        one.name,
    )

    def renamed(example: Example) -> Example:
        path, *further = (found.get(path, path) for path in example.paths)
        return replace(example, path=path, further=tuple(further))

    splits = {name: list(map(renamed, examples)) for name, examples in splits.items()}
    return splits, [path for path in absent if path not in found]


def absent_files(paths: Iterable[Path]) -> dict[Path, Path | None]:
    """The paths that are not on disk, each with the image of a similar name there, if any.

    That is none of the other paths, see `match_names`. One listing per folder, as network disks are
    slow.
    """
    folders = defaultdict(set)
    for path in paths:
        if not is_row(path):
            folders[path.parent].add(path.name)
    absent: dict[Path, Path | None] = {}
    for folder, names in folders.items():
        present = set(os.listdir(folder)) if folder.is_dir() else set[str]()  # noqa: PTH208, because paths are slower
        if missing := sorted(names - present):
            images = {name for name in present - names if name.lower().endswith(SUFFIXES)}
            similar = match_names(missing, images)
            for name in missing:
                absent[folder / name] = folder / similar[name] if name in similar else None
    return absent


def _advice(path: Path) -> str:
    """Name the folder near an absent photograph that holds it, if there is one."""
    root = path.parents[1]
    for folder in (root, *sorted(path.parent.glob("*")), *sorted(root.glob("*"))):
        if folder != path.parent and (folder / path.name).is_file():
            where = quoted(folder)
            return f"{quoted(path.name)} is in {where}: set data.reader.root={where}"
    return (
        "set data.root to the folder of the data set, or data.reader.root to that of the "
        "photographs"
    )
