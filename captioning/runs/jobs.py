"""The jobs of a sweep: their names, their log lines, and their ranking."""

import atexit
import json
import logging
import math
import multiprocessing
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
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
from captioning.machine import exit_with_parent, is_rank_zero
from captioning.runs.settings import FREE, each_setting, is_in, read_settings

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


class SweepCallback(Callback):
    """Hydra callback that prepares, names, logs and ranks the jobs of a sweep.

    The object is pickled into the process of each job; results are read from the run folders.
    """

    def __init__(self) -> None:
        self._launcher = os.getpid()
        self._swept: list[str] = []

    def on_multirun_start(self, config: DictConfig, **settings: Any) -> None:
        params = config.hydra.sweeper.get("params") or {}
        given = parse_overrides(config.hydra.overrides.task)
        swept = [each.key_or_group for each in given if each.is_sweep_override()]
        self._swept = [*params, *swept]
        swept_params = parse_overrides(f"{key}={value}" for key, value in params.items())
        told = planned(swept_params, given)
        if (
            is_rank_zero() and told and "BasicSweeper" in config.hydra.sweeper._target_
        ):  # a search has its own number
            print(told, flush=True)
        unnamed = {*NAMED, *(each.key_or_group for each in given)} - ({*self._swept} - {*NAMED})
        with read_write(config), open_dict(config):
            config.hydra.overrides.hydra.append(
                f"hydra.job.config.override_dirname.exclude_keys={json.dumps(sorted(unnamed))}"
            )
        if is_rank_zero() and OmegaConf.select(config, "callbacks.checkpoint") is not None:
            # also if the program ends with a failure
            atexit.register(print_ranking, Path(config.hydra.sweep.dir), given, swept_params)

    def on_job_start(self, config: DictConfig, **settings: Any) -> None:
        if os.getpid() != self._launcher:
            prepare()
        if os.getppid() == self._launcher:  # joblib's processes would continue the sweep without it
            exit_with_parent(self._launcher)
        elif self._launcher != os.getpid() and exit_with_parent.cache_info().currsize:
            os._exit(
                1
            )  # the sweep has ended since this process began a job of it, and no other is to begin
        if config.hydra.mode != RunMode.MULTIRUN:
            return
        if multiprocessing.parent_process() is not None:
            for handler in logging.getLogger().handlers:
                handler.setFormatter(logging.Formatter(f"[{config.hydra.job.num}] %(message)s"))
        if is_rank_zero():
            log.info("job %d: %s", config.hydra.job.num, " ".join(self._settings(config)))

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **settings: Any) -> None:
        job_return.__class__ = SweepResult
        if job_return.status is not JobStatus.FAILED:
            return
        reason = explain(job_return._return_value)
        if config.hydra.mode == RunMode.MULTIRUN and self._swept:
            swept = " ".join(self._settings(config))
            print(f"job {config.hydra.job.num} ({swept}) failed: {reason}", file=sys.stderr)
        # a sweep of several processes ends with its first failure, which the others may not have
        # had
        distributed = sys.modules.get("torch.distributed")
        if distributed and distributed.is_initialized():
            print(f"error: {reason}", file=sys.stderr)
            sys.exit(1)

    def _settings(self, config: DictConfig) -> list[str]:
        given = parse_overrides(config.hydra.overrides.task)
        return [str(each.input_line) for each in given if each.key_or_group in self._swept]


def planned(params: Sequence[Override], given: Sequence[Override]) -> str:
    """Say how many jobs a sweep has, and of which settings; empty for intervals and patterns."""
    chosen = {each.key_or_group: each for each in (*params, *given)}
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


def print_ranking(runs: Path, given: Sequence[Override], params: Sequence[Override]) -> None:
    """Print the runs of a sweep, which was begun by `given` settings, by their results."""
    from captioning.runs.run import Record, Result  # here: every command loads this module

    sweeps = {each.key_or_group: each for each in (*params, *given) if each.is_sweep_override()}
    fixed = _decisive(given, sweeps)
    jobs = []
    for path in runs.glob("*/run.json"):
        settings = read_settings(path.with_name("config.yaml"))
        overrides = parse_overrides(settings["overrides"])
        if _decisive(overrides, sweeps) != fixed:
            continue
        values = {**dict(each_setting(settings)), **settings["choices"]}
        values |= {each.key_or_group: each.value() for each in overrides}
        chosen = {key: values.get(key) for key in sweeps}
        if all(_is_among(chosen[key], sweep) for key, sweep in sweeps.items()):
            best = (Record.of(path.parent).result or Result(best=None)).best
            checkpoint = settings["callbacks"]["checkpoint"]
            named = [f"{key}={value}" for key, value in chosen.items()]
            monitor, mode = checkpoint["monitor"], checkpoint["mode"]
            jobs.append(Job(named, best, str(path.parent), monitor, mode))
    if jobs:
        print(ranking(jobs))


def _is_among(value: Any, sweep: Override) -> bool:
    if not sweep.is_discrete_sweep() or isinstance(sweep.value(), Glob):
        return True
    return str(value) in map(str, sweep.sweep_iterator())


def _decisive(overrides: Sequence[Override], sweeps: Collection[str]) -> dict[str, str]:
    """What is set beside the `sweeps`, and may change a result."""
    return {
        each.key_or_group: str(each.value())
        for each in overrides
        if each.key_or_group not in sweeps and not is_in(each.key_or_group, FREE)
    }


@dataclass(frozen=True, slots=True)
class Job:
    """A run of a sweep."""

    settings: Sequence[str]  # that the sweep varies
    score: float | None  # of the best checkpoint
    folder: str
    monitor: str
    mode: str


def ranking(jobs: Sequence[Job]) -> str:
    """A table of systems over their seeds, if any has several, and one of jobs.

    The best come first, and those without a score last.
    """
    systems: dict[str, list[Job]] = {}
    for job in jobs:
        system = " ".join(setting for setting in job.settings if not setting.startswith("seed="))
        systems.setdefault(system, []).append(job)
    tables = [_ranked("systems", systems)] if len(systems) < len(jobs) else []
    single = {" ".join(job.settings) + f"  {job.folder}": [job] for job in jobs}
    return "\n".join([*tables, _ranked("jobs", single)])


def _ranked(what: str, groups: Mapping[str, Sequence[Job]]) -> str:
    """Lines of mean and standard deviation of named jobs."""
    from captioning.metrics.table import score_called  # here: every command loads this module

    first = next(iter(groups.values()))[0]
    sign, printed = (
        -1 if first.mode == "max" else 1,
        score_called(first.monitor.removeprefix("val/")).printed,
    )
    rows = []
    for name, jobs in groups.items():
        scores = [job.score for job in jobs if job.score is not None]
        shown = printed(mean(scores)) if scores else "-"
        if len(scores) > 1:
            shown += f" ± {printed(stdev(scores))}"
        seeds = f"  seeds: {len(scores)}" if len(jobs) > 1 else ""
        rows.append((not scores, sign * mean(scores or [0]), f"{name}{seeds}", shown))
    width = max(6, *(len(shown) for *_, shown in rows))
    lines = [f"\n{what} by {first.monitor}"]
    for rank, (_, _, name, shown) in enumerate(sorted(rows), start=1):
        lines.append(f"{rank:>4}{shown:>{width + 2}}  {name}".rstrip())
    return "\n".join(lines)
