"""A run on disk, from its first step to its result: found or made, held while it trains, gone on with, ended."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from captioning.config.precision import precision_of
from captioning.machine import is_first
from captioning.runs.earlier import earlier_run, resume_point
from captioning.runs.folder import lock, new_folder, run_folder
from captioning.runs.record import begin, end, recorded_precision, result

log = logging.getLogger(__name__)


class RecordedRun:
    """The run of a configuration: a new one, or an earlier one of the same digests, where it is to go on with that.

    Args:
        config: of the run.
        digests: as in `captioning.runs.record`.

    Attributes:
        folder: of the run; that of a new one is made when it is opened.
        precision: with which it began, on whatever machine; of a new one what `trainer.precision` is here.
        result: what it has ended with; None while it has not.

    Raises:
        CaptioningError: `resume` is to go on with a run of other settings or data.
    """

    def __init__(self, config: DictConfig, digests: Mapping[str, str]) -> None:
        self._earlier, self._digests = earlier_run(config, digests), digests
        self.folder: Path = self._earlier or run_folder(config)
        began = recorded_precision(self._earlier) if self._earlier else None
        self.precision: str = began or precision_of(config.trainer)
        self.result = self._result()
        if self.finished(config) and is_first():
            log.info("this run is finished: %s; a new one begins with resume=false", self.folder)
        if self.result is not None:
            OmegaConf.update(config, "folder", str(self.folder))

    def finished(self, config: DictConfig) -> bool:
        """Whether it has ended, and with a test where `config` has one: a trial may be tested later."""
        return self.result is not None and (not config.test or (self.folder / "scores.json").exists())

    def _result(self) -> dict[str, Any] | None:
        return result(self._earlier) if self._earlier else None

    @contextmanager
    def open(self, config: DictConfig) -> Iterator[None]:
        """Makes the folder of a new run, keeps others out of it, and sets `config.folder`.

        Raises:
            CaptioningError: the folder cannot be made, or another process trains in it.
        """
        if self._earlier is None and is_first():
            self.folder = new_folder(config, self.folder, lambda folder: begin(folder, self._digests, self.precision))
        OmegaConf.update(config, "folder", str(self.folder))
        with lock(self.folder):
            self.result = self._result()  # another process may have ended it meanwhile
            yield

    def resume_point(self, state: Mapping[str, Tensor]) -> Path | None:
        """The checkpoint to go on from, which holds what `state` has; None for a new run.

        Raises:
            CaptioningError: as for `captioning.runs.earlier.resume_point`.
        """
        point = resume_point(self.folder, state) if self._earlier else None
        if is_first():
            log.info("run folder: %s%s", self.folder, f"\ngoing on from {point}" if point else "")
        return point

    def end(self, result: Mapping[str, Any]) -> None:
        """Records how the run has ended."""
        self.result = dict(result)
        if is_first():
            end(self.folder, self.result)
