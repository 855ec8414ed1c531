"""The folder of a run, found by configuration and data or made, and locked during training.

A sweep given again skips finished runs and resumes interrupted ones.
"""

import contextlib
import json
import logging
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from captioning.config.schemas.run import RunSettings
from captioning.data.columns import data_digest
from captioning.data.example import Splits
from captioning.data.subwords import BPE, read_tokenizer
from captioning.errors import CaptioningError
from captioning.files import sha256
from captioning.machine import is_rank_zero
from captioning.runs.folders.folder import lock, new_folder, run_folder
from captioning.runs.folders.record import Record, Result, compared_settings, find_earlier
from captioning.runs.folders.source import digests, keep_source, own_source
from captioning.runs.provenance import code_digest

if TYPE_CHECKING:
    from captioning.backbones.base import Backbone
    from captioning.runs.checkpoints.initial import PretrainedWeights

log = logging.getLogger(__name__)


def identity(
    settings: RunSettings,
    splits: Splits,
    backbone: "Backbone",
    initial: "PretrainedWeights | None" = None,
) -> dict[str, str]:
    """Return digests of settings, data, backbone with weights, tokenizer, and initial weights."""
    digests = {
        "settings": sha256(json.dumps(sorted(compared_settings(settings.plain).items()))),
        "data": data_digest(splits),
        "backbone": backbone.digest,
    }
    words = settings.data.vocabulary
    if isinstance(words, dict) and words.get("subwords") not in (None, BPE):
        digests["tokenizer"] = sha256(read_tokenizer(words["subwords"]))
    if initial:
        digests["init_from"] = initial.digest
    return digests


class RunFolder:
    """A new run, or an earlier one of the same identity to resume.

    `path` is of the folder, which `open` makes for a new run; `precision` is the one that the run
    began with, on any machine; `result` is of a finished run.
    """

    def __init__(
        self, config: DictConfig, settings: RunSettings, identity: Mapping[str, str], precision: str
    ):
        self._config, self._settings, self._identity = config, settings, identity
        self._source = own_source(settings.plain)
        self._earlier = find_earlier(settings, identity, digests(self._source))
        self.path = self._earlier or run_folder(settings)
        self._kept = self._earlier is not None  # whatever comes
        record = self._read()
        self.precision = record.precision or precision
        if self.result:
            config.folder = str(self.path)
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
        tested = not self._settings.test or (self.path / "scores.json").exists()
        return self.result is not None and tested

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """Make the folder of a new run, set `config.folder`, and lock the folder.

        A new folder disappears again if nothing in it can be resumed.
        """
        if self._earlier is None and is_rank_zero():
            self.path = new_folder(self._config, self.path, self._begin)
        self._config.folder = str(self.path)
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
    """The latest checkpoint that can be read; what a killed run has left half-written goes."""
    from captioning.runs.checkpoints.checkpoint import (
        read_checkpoint,  # here, because PyTorch takes seconds
    )

    for part in folder.glob("checkpoints/*.part"):
        part.unlink(missing_ok=True)
    both = [folder / "checkpoints" / f"{name}.ckpt" for name in ("last", "previous")]
    paths = [path for path in both if path.exists()]
    for path in paths:
        try:
            read_checkpoint(path)
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
