"""`run.json`: what identifies a run, its progress and result; and the search for earlier runs."""

import contextlib
import glob
import hashlib
import json
import logging
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from pydantic import BaseModel

from captioning.errors import CaptioningError, listed, quoted
from captioning.files import read_state, write_json
from captioning.machine import is_rank_zero
from captioning.runs.folders.folder import in_sweep, is_being_written, plain_folder, run_folder
from captioning.runs.folders.source import FOLDER
from captioning.runs.provenance import code_digest
from captioning.runs.settings import (
    list_differences,
    plain_settings,
    read_settings,
    result_settings,
)

WEIGHTS = re.compile(r"backbone\.(.+\.)?weights|init_from")
"""Settings that digests stand for: the same weights may lie in another file."""

log = logging.getLogger(__name__)


class Result(BaseModel, extra="allow"):
    """Result of a finished run; `best` is the tested weights' validation score, if any."""

    best: float | None


class Record(BaseModel):
    """Contents of `run.json`."""

    digests: dict[str, str] = {}
    source: dict[str, str] = {}  # digests of the user's own modules, by path
    code: str | None = None
    precision: str | None = None
    done: int | None = None  # optimiser steps of the last checkpoint
    steps: int | None = None  # of the whole run, where it has an end
    result: Result | None = None

    @property
    def progress(self) -> str:
        """Steps of the last checkpoint, such as `76 of 1,000 steps`."""
        end = "" if self.steps is None else f" of {self.steps:,}"
        return f"{self.done or 0:,}{end} steps"

    @classmethod
    def of(cls, folder: Path) -> "Record":
        """That of a folder; empty where a process ended before it was written."""
        if not (folder / "run.json").exists():
            return cls()
        advice = "move its folder away, and the run begins anew"
        return read_state(folder / "run.json", cls.model_validate_json, advice)

    def write(self, folder: Path) -> None:
        write_json(folder / "run.json", self.model_dump())


def record_progress(folder: Path, done: int, steps: float) -> None:
    """Write the steps of the last checkpoint, and those of the whole run, which may be infinite."""
    if is_rank_zero() and (folder / "run.json").exists():
        record = Record.of(folder)
        record.done, record.steps = done, int(steps) if math.isfinite(steps) else None
        record.write(folder)


def compared_settings(config: Any) -> dict[str, str]:
    """Return settings as JSON that affect the result and that no other digest covers."""
    settings = result_settings(config).items()
    return {key: json.dumps(v, default=str) for key, v in settings if not WEIGHTS.fullmatch(key)}


def settings_digest(config: Any) -> str:
    return sha256(json.dumps(sorted(compared_settings(config).items())))


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def find_earlier(
    config: DictConfig, identity: Mapping[str, str], source: Mapping[str, str]
) -> Path | None:
    """Find the run to go on with: its folder, or None for a new run.

    With `resume=true`, and in sweeps, it is the run of the same identity and own modules that has
    got furthest. A single run without one takes the latest folder of its name, and `resume=FOLDER`
    that folder: other settings or data are refused. Otherwise unfinished runs are named in the log.
    """
    sweep, chosen = in_sweep(), config.resume
    if chosen is False:
        return None
    named = Path(chosen) if isinstance(chosen, str) else None
    wanted = sweep if chosen is None else True
    folders = [named] if named else _numbered(run_folder(config))
    if named and not (named / "run.json").exists():
        raise CaptioningError(f"resume={named} is not a run folder: it has no run.json")
    plain = plain_folder(config)
    # Other settings may have been swept when it began.
    others = [] if named else sorted(plain.parent.glob(f"{glob.escape(plain.name)}*/run.json"))
    records = {}
    equal = []
    for folder in dict.fromkeys([*folders, *(path.parent for path in others)]):
        # A damaged folder is no reason to refuse a run that does not ask for it.
        with contextlib.nullcontext() if wanted else contextlib.suppress(CaptioningError):
            records[folder] = Record.of(folder)
            if _is_equal(folder, records[folder], identity):
                equal.append(folder)
    same = [folder for folder in equal if records[folder].source == source]
    # finished ones first
    same.sort(key=lambda path: (records[path].result is None, -(records[path].done or 0)))
    free = [folder for folder in same if not is_being_written(folder)]
    if not wanted:
        for folder in free:
            if records[folder].result is None and records[folder].done:
                word = "true" if folder == free[0] else folder
                _tell(folder, records[folder], f"resume={word} continues it; this is a new run")
        return None
    if same:
        for folder in free[1:]:
            _tell(folder, records[folder], f"it has the same settings; resume={folder} takes it")
        return [*free, *same][0]
    if not (equal or folders):
        return None
    latest = [*equal, *folders][0]
    record = records[latest]
    edited = listed(sorted(dict(source.items() ^ record.source.items())))
    if sweep:
        if equal:
            log.info("%s has changed since %s began: this is a new run", edited, latest)
        return None
    begun = read_settings(latest / "config.yaml")
    size, recorded = config.model.get("size"), begun["model"].get("size")
    if size == recorded:
        settings = compared_settings(plain_settings(config, str(latest)))
        differing = list_differences(compared_settings(begun), settings)
    else:  # which decides many others
        differing = f"model.size={size} (it has {recorded})"
    problems = [f"came with {differing}"] if differing else []
    if edited:
        problems.append(f"{edited} changed since it began ({latest / FOLDER} has the old one)")
    for name, meaning in (("data", "other data"), ("init_from", "other weights (init_from)")):
        if record.digests.get(name) != identity.get(name):
            problems.append(f"that began from {meaning}")
    if problems:
        given = "resume=false"
        if record.result is not None:  # its training has ended: nothing is left to continue
            given += f" and its weights, init_from={latest / 'checkpoints' / 'best.ckpt'}"
        raise CaptioningError(
            f"resume={quoted(chosen)} continues {latest}, but {problems[0]}. Restore what it began "
            f"with, or start a new run with {given}"
        )
    if record.result is None:
        log.warning(
            "the backbone has changed since %s began: its result will belong to neither version",
            latest,
        )
    return latest


def _tell(folder: Path, record: Record, what: str) -> None:
    state = "unfinished" if record.result is None else "finished"
    log.info("%s is %s: %s; %s", folder, state, record.progress, what)


def _is_equal(folder: Path, record: Record, identity: Mapping[str, str]) -> bool:
    """Tell whether a run has this identity."""
    if record.digests == identity or record.code == code_digest():
        return record.digests == identity
    # Other code may have made another digest of the same settings.
    again = settings_digest(read_settings(folder / "config.yaml"))
    return record.digests | {"settings": again} == identity


def _numbered(base: Path) -> list[Path]:
    """The run folders among `base`, `base-2`, `base-3`, ..., the latest first."""
    folders = {1: base}
    for path in base.parent.glob(f"{glob.escape(base.name)}-*"):
        number = path.name.removeprefix(f"{base.name}-")
        if number.isdigit():
            folders[int(number)] = path
    latest_first = [folders[number] for number in sorted(folders, reverse=True)]
    return [folder for folder in latest_first if (folder / "run.json").exists()]
