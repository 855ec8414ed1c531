"""The jobs of a sweep: their names, their log lines, and their ranking."""

import atexit
import json
import logging
import math
import multiprocessing
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from hydra.core.override_parser.types import Glob, Override
from hydra.core.utils import JobReturn, JobStatus
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from captioning.config.arguments import parse_overrides
from captioning.config.command import prepare
from captioning.config.explain import explain
from captioning.files import write_json
from captioning.machine import end_with, is_first

NAMED = ("name", "model", "seed")
"""Settings that every run folder is called by."""

log = logging.getLogger(__name__)


class SweepResult(JobReturn):
    """Result of a job, whose exception is raised without Hydra's own line before it."""

    @property  # type: ignore[misc]  # nobody sets it anew
    def return_value(self) -> Any:
        if self.status is JobStatus.FAILED:
            raise self._return_value
        return self._return_value


class Jobs(Callback):
    """Hydra callback that prepares, names, logs and ranks the jobs of a sweep.

    The object is pickled into the process of each job, which leaves its result as a file in the
    sweep's folder.
    """

    def __init__(self) -> None:
        self._launcher = os.getpid()
        self._swept: list[str] = []
        self._folder: Path | None = None

    def on_multirun_start(self, config: DictConfig, **settings: Any) -> None:
        params = config.hydra.sweeper.get("params") or {}
        given = parse_overrides(config.hydra.overrides.task)
        swept = [each.key_or_group for each in given if each.is_sweep_override()]
        self._swept = [*params, *swept]
        told = planned([f"{key}={value}" for key, value in params.items()], given)
        if (
            is_first() and told and "BasicSweeper" in config.hydra.sweeper._target_
        ):  # a search has its own number
            print(told, flush=True)
        unnamed = {*NAMED, *(each.key_or_group for each in given)} - ({*self._swept} - {*NAMED})
        with read_write(config), open_dict(config):
            config.hydra.overrides.hydra.append(
                f"hydra.job.config.override_dirname.exclude_keys={json.dumps(sorted(unnamed))}"
            )
        if is_first() and OmegaConf.select(config, "callbacks.checkpoint") is not None:
            runs = Path(config.hydra.sweep.dir)
            runs.mkdir(parents=True, exist_ok=True)
            self._folder = Path(tempfile.mkdtemp(prefix=".sweep-", dir=runs))
            atexit.register(self._rank)  # also if the program ends with a failure

    def on_multirun_end(self, config: DictConfig, **settings: Any) -> None:
        if self._folder is not None:  # of a training, in the first process
            atexit.unregister(self._rank)
            self._rank()

    def on_job_start(self, config: DictConfig, **settings: Any) -> None:
        if os.getpid() != self._launcher:
            prepare()
        if os.getppid() == self._launcher:  # joblib's processes would continue the sweep without it
            end_with(self._launcher)
        elif self._launcher != os.getpid() and end_with.cache_info().currsize:
            os._exit(
                1
            )  # the sweep has ended since this process began a job of it, and no other is to begin
        if config.hydra.mode != RunMode.MULTIRUN:
            return
        if multiprocessing.parent_process() is not None:
            for handler in logging.getLogger().handlers:
                handler.setFormatter(logging.Formatter(f"[{config.hydra.job.num}] %(message)s"))
        if is_first():
            log.info("job %d: %s", config.hydra.job.num, " ".join(self._settings(config)))

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **settings: Any) -> None:
        job_return.__class__ = SweepResult
        failed = job_return.status is JobStatus.FAILED
        if config.hydra.mode == RunMode.MULTIRUN and self._folder is not None:
            swept, value = self._settings(config), job_return._return_value
            done: Any = job_return.cfg
            if failed:
                print(
                    f"job {config.hydra.job.num} ({' '.join(swept)}) failed: {explain(value)}",
                    file=sys.stderr,
                )
            result = {
                "settings": swept,
                "score": None if failed else value,
                "folder": "failed" if failed else done.get("folder"),
                "monitor": done.callbacks.checkpoint.monitor,
                "mode": done.callbacks.checkpoint.mode,
            }
            write_json(self._folder / f"{config.hydra.job.num}.json", result)
        # a sweep of several processes ends with its first failure, which the others may not have
        # had
        distributed = sys.modules.get("torch.distributed")
        if failed and distributed and distributed.is_initialized():
            print(f"error: {explain(job_return._return_value)}", file=sys.stderr)
            sys.exit(1)

    def _settings(self, config: DictConfig) -> list[str]:
        given = parse_overrides(config.hydra.overrides.task)
        return [str(each.input_line) for each in given if each.key_or_group in self._swept]

    def _rank(self) -> None:
        assert self._folder is not None
        jobs = [
            json.loads(path.read_text(encoding="utf-8")) for path in self._folder.glob("*.json")
        ]
        shutil.rmtree(self._folder, ignore_errors=True)
        if jobs:
            print(ranking(jobs))


def planned(params: list[str], given: Sequence[Override]) -> str:
    """Say how many jobs a sweep has, and of which settings; empty for intervals and patterns."""
    chosen = {each.key_or_group: each for each in (*parse_overrides(params), *given)}
    swept = {key: each for key, each in chosen.items() if each.is_sweep_override()}
    if not swept or not all(each.is_discrete_sweep() for each in swept.values()):
        return ""
    if any(isinstance(each.value(), Glob) for each in swept.values()):
        return ""
    numbers = {key: len(list(each.sweep_iterator())) for key, each in swept.items()}
    factors = " x ".join(f"{number} of {key}" for key, number in numbers.items())
    return (
        f"{math.prod(numbers.values()):,} jobs: {factors}; those that are finished are not repeated"
    )


def ranking(jobs: list[dict[str, Any]]) -> str:
    """A table of systems over their seeds, if any has several, and one of jobs.

    The best come first, and those without a score last.
    """
    systems: dict[str, list[dict[str, Any]]] = {}
    for job in jobs:
        system = " ".join(setting for setting in job["settings"] if not setting.startswith("seed="))
        systems.setdefault(system, []).append(job)
    single = [(" ".join(job["settings"]), [job]) for job in jobs]
    tables = [_ranked("systems", list(systems.items()))] if len(systems) < len(jobs) else []
    return "\n".join([*tables, _ranked("jobs", single)])


def _ranked(what: str, groups: list[tuple[str, list[dict[str, Any]]]]) -> str:
    """Lines of mean and standard deviation of named jobs."""
    from captioning.metrics.table import score_called

    monitor, sign = groups[0][1][0]["monitor"], -1 if groups[0][1][0]["mode"] == "max" else 1
    printed = score_called(monitor.removeprefix("val/")).printed
    rows = []
    for name, jobs in groups:
        scores = [job["score"] for job in jobs if job["score"] is not None]
        shown = printed(mean(scores)) if scores else "-"
        shown += f" ± {printed(stdev(scores))}" if len(scores) > 1 else ""
        note = jobs[0]["folder"] or "" if len(jobs) == 1 else f"seeds: {len(scores)}"
        rows.append((not scores, sign * mean(scores or [0]), name, shown, note))
    width, score = max(len(row[2]) for row in rows), max(6, *(len(row[3]) for row in rows))
    lines = [f"\n{what} by {monitor}"]
    for place, (_, _, name, shown, note) in enumerate(sorted(rows), start=1):
        lines.append(f"{place:>4}{shown:>{score + 2}}  {name:<{width}}  {note}".rstrip())
    return "\n".join(lines)
