"""`run.json`: what identifies a run, its progress and result; and the search for earlier runs."""

import glob
import json
import logging
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from captioning.config.registry import target_of
from captioning.config.schemas.run import RunSettings
from captioning.config.settings import each_field
from captioning.config.types import Config, Modules
from captioning.errors import CaptioningError, listed, quoted
from captioning.files import read_state, write_json
from captioning.machine import is_rank_zero
from captioning.runs.folders.choices import FREE, result_settings
from captioning.runs.folders.folder import in_sweep, is_being_written, plain_folder, run_folder
from captioning.runs.folders.source import FOLDER
from captioning.runs.settings import differing, each_setting, is_in, list_differences, read_settings

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
    return _as_texts(result_settings(config))


def _as_texts(settings: Config) -> dict[str, str]:
    """Settings as JSON, without those of weights."""
    return {
        key: json.dumps(value, default=str)
        for key, value in settings.items()
        if not WEIGHTS.fullmatch(key)
    }


def changed_settings(before: Config, now: Config) -> dict[str, tuple[str, str]]:
    """Both values, as JSON, of each setting in which an earlier run differs from the present one.

    A setting that one of them lacks has the default with which it is declared.
    """
    earlier = completed_settings(before, dict(each_setting(now)))
    present = completed_settings(now, dict(each_setting(before)))
    return differing(_as_texts(earlier), _as_texts(present), quoted(None))


def completed_settings(config: Config, known: Config, modules: Modules = None) -> Config:
    """The settings that may change a result, with the declared defaults of those that are absent.

    Args:
        config: the settings of a run.
        known: settings by key, of which the absent ones are wanted, as another run has them.
        modules: that parts may come from beside ours, whose defaults are unknown otherwise; None
            for any, as in one's own command.
    """
    given, settings = dict(each_setting(config)), result_settings(config)
    lacking = {key for key in known.keys() - given.keys() if not is_in(key, FREE)}
    defaults = default_settings(given, lacking, modules) if lacking else {}
    for key in lacking & defaults.keys():
        default = list(defaults[key]) if isinstance(defaults[key], tuple) else defaults[key]
        if default not in (None, []):
            # 1 and 1.0 are one value, and two texts
            settings[key] = known[key] if known[key] == default else default
    return settings


def default_settings(settings: Config, lacking: Iterable[str], modules: Modules) -> dict[str, Any]:
    """The defaults of the schema, and of the classes of parts with `lacking` settings, by key.

    Example:
        `{"data.groups": None, "optimizer.lr": 0.001, "decoding.filters.min_length": 0, ...}`
    """
    defaults = {
        key: field.get_default(call_default_factory=True)
        for key, field in each_field(RunSettings)
        if not field.is_required()
    }
    groups = {key.rpartition(".")[0] for key in lacking}
    for key, target in settings.items():
        group, _, last = key.rpartition(".")
        if last != "_target_" or group not in groups:  # Lightning's take seconds to import
            continue
        try:
            taken = signature(target_of(group, target, modules)).parameters
        except CaptioningError:  # of a group that no part is built from
            continue
        for name, parameter in taken.items():
            if parameter.default is not parameter.empty:
                defaults[f"{group}.{name}"] = parameter.default
    return defaults


@dataclass(frozen=True)
class Earlier:
    """A run folder that may be gone on with."""

    folder: Path
    record: Record
    equal: bool  # it has the identity of the present run

    @property
    def unfinished(self) -> bool:
        return self.record.result is None

    def tell(self, what: str) -> None:
        state = "unfinished" if self.unfinished else "finished"
        log.info("%s is %s: %s; %s", self.folder, state, self.record.progress, what)


def find_earlier(
    settings: RunSettings, identity: Mapping[str, str], source: Mapping[str, str]
) -> Path | None:
    """Find the run to go on with: its folder, or None for a new run.

    With `resume=true`, and in sweeps, it is the run of the same identity and own modules that has
    got furthest; with `resume=true` also in a folder that was renamed. A single run without one
    takes the latest folder of its name, and `resume=FOLDER` that folder: other settings or data are
    refused. Otherwise unfinished runs are named in the log.
    """
    if settings.resume is False:
        return None
    wanted = in_sweep() or settings.resume is not None
    numbered, others = _candidates(settings, identity, must_read=wanted)
    equal = [run for run in numbered + others if run.equal]
    same = [run for run in equal if run.record.source == source]
    same.sort(key=lambda run: (run.unfinished, -(run.record.done or 0)))
    free = [run for run in same if not is_being_written(run.folder)]
    if not wanted:
        for run in free:
            if run.unfinished and run.record.done:
                word = "true" if run is free[0] else run.folder
                run.tell(f"resume={word} continues it; this is a new run")
        return None
    if same:
        for run in free[1:]:
            run.tell(f"it has the same settings; resume={run.folder} takes it")
        return (free or same)[0].folder
    latest = next(iter(equal + numbered), None)
    if latest is None:
        if not in_sweep():
            log.info("resume=true finds no run of these settings in %s: this is new", settings.runs)
    elif not in_sweep():
        _check_continues(latest, settings, identity, source)
        return latest.folder
    elif latest.equal:
        edited = _edited(latest, source)
        log.info("%s has changed since %s began: this is a new run", edited, latest.folder)
    return None


def _candidates(
    settings: RunSettings, identity: Mapping[str, str], must_read: bool
) -> tuple[list[Earlier], list[Earlier]]:
    """The runs in folders of this name, the latest first, and others; or the one asked for."""
    base, plain = run_folder(settings), plain_folder(settings)
    read = partial(_read, identity=identity, settings=settings.plain)
    if isinstance(settings.resume, str):
        named = read([Path(settings.resume)], must_read=True)
        if not named:
            raise CaptioningError(
                f"resume={settings.resume} is not a run folder: it has no run.json"
            )
        return named, []
    numbered = read(_numbered(base), must_read=must_read)
    # those of other swept settings; where it is asked for, also those in folders of any name
    pattern = "*" if settings.resume else f"{glob.escape(plain.name)}*"
    others = {path.parent for path in plain.parent.glob(f"{pattern}/run.json")}
    return numbered, read(sorted(others.difference(run.folder for run in numbered)))


def _read(
    folders: Iterable[Path], identity: Mapping[str, str], settings: Config, must_read: bool = False
) -> list[Earlier]:
    """The runs in folders, compared with the present one; a damaged one is left out, or raises."""
    runs = []
    for folder in folders:
        try:
            if (folder / "run.json").exists():
                record = Record.of(folder)
                equal = _is_equal(folder, record, identity, settings)
                runs.append(Earlier(folder, record, equal))
        except CaptioningError:
            if must_read:
                raise
    return runs


def _is_equal(folder: Path, record: Record, identity: Mapping[str, str], settings: Config) -> bool:
    """Tell whether a run has the identity of the present one."""
    if record.digests | {"settings": identity["settings"]} != identity:
        return False
    # Other code may have made another digest of the same settings, or may have others.
    return record.digests == identity or not changed_settings(
        read_settings(folder / "config.yaml"), settings
    )


def _edited(run: Earlier, source: Mapping[str, str]) -> str:
    """The own modules that have changed since a run began."""
    return listed(sorted(dict(source.items() ^ run.record.source.items())))


def _check_continues(
    run: Earlier, settings: RunSettings, identity: Mapping[str, str], source: Mapping[str, str]
) -> None:
    """Refuse to continue a run of other settings, data, own modules or initial weights."""
    folder, record = run.folder, run.record
    begun = read_settings(folder / "config.yaml")
    size, recorded = settings.model.size, begun["model"].get("size")
    problems = []
    if size != recorded:  # which decides many others
        problems.append(f"came with model.size={size} (it has {recorded})")
    elif both := changed_settings(begun, settings.plain):
        problems.append(f"came with {list_differences(both)}")
    if edited := _edited(run, source):
        problems.append(f"{edited} changed since it began ({folder / FOLDER} has the old one)")
    for name, meaning in (("data", "other data"), ("init_from", "other weights (init_from)")):
        if record.digests.get(name) != identity.get(name):
            problems.append(f"that began from {meaning}")
    if problems:
        given = "resume=false"
        if not run.unfinished:  # its training has ended: nothing is left to continue
            given += f" and its weights, init_from={folder / 'checkpoints' / 'best.ckpt'}"
        raise CaptioningError(
            f"resume={quoted(settings.resume)} continues {folder}, but {problems[0]}. Restore what "
            f"it began with, or start a new run with {given}"
        )
    if run.unfinished:
        log.warning(
            "the backbone has changed since %s began: its result will belong to neither version",
            folder,
        )


def _numbered(base: Path) -> list[Path]:
    """The folders among `base`, `base-2`, `base-3`, ..., the latest first."""
    folders = {1: base}
    for path in base.parent.glob(f"{glob.escape(base.name)}-*"):
        number = path.name.removeprefix(f"{base.name}-")
        if number.isdigit():
            folders[int(number)] = path
    return [folders[number] for number in sorted(folders, reverse=True)]
