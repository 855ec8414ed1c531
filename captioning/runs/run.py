"""The folder of a run, found by configuration and data or made, and locked during training.

`run.json` in it records the digests that identify the run, the code and precision it began with,
and its result. A sweep given again skips finished runs and resumes interrupted ones.
"""

import contextlib
import glob
import hashlib
import json
import logging
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf
from pydantic import BaseModel

from captioning.data.example import Splits, digest
from captioning.data.subwords import BPE, read_tokenizer
from captioning.errors import CaptioningError, listed
from captioning.files import read_state, write_json
from captioning.machine import is_rank_zero
from captioning.runs.folder import differences, in_sweep, lock, new_folder, plain_folder, run_folder
from captioning.runs.results import code_digest
from captioning.runs.settings import plain_settings, read_settings, result_settings
from captioning.runs.source import FOLDER, digests, keep_source, own_source

if TYPE_CHECKING:
    from captioning.backbones.base import Backbone
    from captioning.runs.networks import PretrainedWeights

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
    result: Result | None = None

    @classmethod
    def of(cls, folder: Path) -> "Record":
        """That of a folder; empty where a process ended before it was written."""
        if not (folder / "run.json").exists():
            return cls()
        advice = "move its folder away, and the run begins anew"
        return read_state(folder / "run.json", cls.model_validate_json, advice)

    def write(self, folder: Path) -> None:
        write_json(folder / "run.json", self.model_dump())


def identity(
    config: DictConfig,
    splits: Splits,
    backbone: "Backbone",
    initial: "PretrainedWeights | None" = None,
) -> dict[str, str]:
    """Return digests of settings, data, backbone with weights, tokenizer, and initial weights."""
    subwords = OmegaConf.select(config, "data.vocabulary.subwords")
    tokenizer = None if subwords in (None, BPE) else read_tokenizer(str(subwords))
    return {
        "settings": settings_digest(plain_settings(config, "folder")),
        "data": digest(splits),
        "backbone": backbone.digest,
        **({} if tokenizer is None else {"tokenizer": _sha256(tokenizer)}),
        **({} if initial is None else {"init_from": initial.digest}),
    }


def compared_settings(config: Any) -> dict[str, str]:
    """Return settings as JSON that affect the result and that no other digest covers."""
    settings = result_settings(config).items()
    return {key: json.dumps(v, default=str) for key, v in settings if not WEIGHTS.fullmatch(key)}


def settings_digest(config: Any) -> str:
    settings = sorted(compared_settings(config).items())
    return _sha256(json.dumps(settings))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class RunFolder:
    """A new run, or an earlier one of the same identity to resume.

    `path` is of the folder, which `open` makes for a new run; `precision` is the one that the run
    began with, on any machine; `result` is of a finished run.
    """

    def __init__(self, config: DictConfig, identity: Mapping[str, str], precision: str) -> None:
        self._config, self._identity = config, identity
        self._source = own_source(plain_settings(config, "folder"))
        self._earlier = _find_earlier(config, identity, digests(self._source))
        self.path = self._earlier or run_folder(config)
        self._kept = self._earlier is not None  # whatever comes
        record = self._read()
        self.precision: str = record.precision or precision
        if self.result is not None:
            OmegaConf.update(config, "folder", str(self.path))
        if self.finished:
            log.info("this run is finished: %s; resume=false begins a new one", self.path)
        if self._earlier and record.code != code_digest():
            log.warning("the code has changed since %s began", self.path)

    def _read(self) -> Record:
        record = Record.of(self.path) if self._earlier else Record()
        self.result = None if record.result is None else record.result.model_dump()
        return record

    @property
    def finished(self) -> bool:
        """The run has ended, with its test if configured; a search trial may be tested later."""
        tested = not self._config.test or (self.path / "scores.json").exists()
        return self.result is not None and tested

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """Make the folder of a new run, set `config.folder`, and lock the folder.

        A new folder disappears again if nothing in it can be resumed.
        """
        if self._earlier is None and is_rank_zero():
            self.path = new_folder(self._config, self.path, self._begin)
        OmegaConf.update(self._config, "folder", str(self.path))
        with lock(self.path):
            self._read()  # another process may have finished it
            try:
                yield
            except BaseException:
                if not self._kept and is_rank_zero():
                    shutil.rmtree(self.path)
                raise

    def _begin(self, folder: Path) -> None:
        record = Record(digests=dict(self._identity), code=code_digest(), precision=self.precision)
        record.source = digests(self._source)
        record.write(folder)
        keep_source(folder, self._source)

    def checkpoint(self) -> Path | None:
        """The latest undamaged checkpoint to resume from; damaged ones are renamed."""
        self._kept = True
        latest = latest_valid_checkpoint(self.path) if self._earlier else None
        log.info("run folder: %s%s", self.path, f"\nresuming from {latest}" if latest else "")
        return latest

    def finish(self, result: Mapping[str, Any]) -> None:
        """Record the result."""
        self.result = dict(result)
        if is_rank_zero():
            record = Record.of(self.path)
            record.result = Result.model_validate(result)
            record.write(self.path)


def latest_valid_checkpoint(folder: Path) -> Path | None:
    """The latest checkpoint that can be read."""
    from captioning.runs.checkpoint import read  # here, because PyTorch takes seconds

    both = [folder / "checkpoints" / f"{name}.ckpt" for name in ("last", "previous")]
    paths = [path for path in both if path.exists()]
    for path in paths:
        try:
            read(path)
            return path
        except CaptioningError as error:
            damaged = path.with_suffix(".damaged")
            log.warning("%s; it is kept as %s", error, damaged.name)
            with contextlib.suppress(FileNotFoundError):  # another process was faster
                path.rename(damaged)
    if paths:
        raise CaptioningError(
            f"no checkpoint in {folder} can be read; start a new run with resume=false"
        )
    return None


def _find_earlier(
    config: DictConfig, identity: Mapping[str, str], source: Mapping[str, str]
) -> Path | None:
    """Find the folder of an equal run of the same own modules, preferably a finished one; None for
    a new run.

    Runs are looked for if `config.resume`, and in sweeps, where a job without an earlier run is a
    new run. A single run resumes the latest folder of its name: other settings or data are refused.
    """
    sweep = in_sweep()
    if not (sweep if config.resume is None else config.resume):
        return None
    plain, folders = plain_folder(config), _numbered(run_folder(config))
    # other settings may have been swept when it began
    others = sorted(plain.parent.glob(f"{glob.escape(plain.name)}*/run.json"))
    records = {folder: Record.of(folder) for folder in [*folders, *(p.parent for p in others)]}
    equal = [folder for folder, record in records.items() if record.digests == identity]
    same = [folder for folder in equal if records[folder].source == source]
    finished = [folder for folder in same if records[folder].result is not None]
    if same:
        return [*finished, *same][0]
    if not (equal or folders):
        return None
    latest = [*equal, *folders][0]
    record = records[latest]
    changed = dict(source.items() ^ record.source.items())
    edited = listed(sorted(changed))
    if sweep:
        if equal:
            log.info("%s has changed since %s began: this is a new run", edited, latest)
        return None
    before = compared_settings(read_settings(latest / "config.yaml"))
    differing = differences(before, compared_settings(plain_settings(config, str(latest))))
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
            f"resume=true continues {latest}, but {problems[0]}. Restore what it began with, or "
            f"start a new run with {given}"
        )
    if record.result is None:
        log.warning(
            "the backbone has changed since %s began: its result will belong to neither version",
            latest,
        )
    return latest


def _numbered(base: Path) -> list[Path]:
    """The run folders among `base`, `base-2`, `base-3`, ..., the latest first."""
    folders = {1: base}
    for path in base.parent.glob(f"{glob.escape(base.name)}-*"):
        number = path.name.removeprefix(f"{base.name}-")
        if number.isdigit():
            folders[int(number)] = path
    latest_first = [folders[number] for number in sorted(folders, reverse=True)]
    return [folder for folder in latest_first if (folder / "run.json").exists()]
