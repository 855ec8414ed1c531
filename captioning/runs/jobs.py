"""The jobs of a sweep: their names, their log lines, and their ranking."""

import atexit
import json
import logging
import math
import multiprocessing
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple
from uuid import uuid4

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Glob, Override
from hydra.core.utils import JobReturn
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from hydra.utils import get_class
from omegaconf import DictConfig, OmegaConf

from captioning.config.arguments import parse_overrides
from captioning.config.command import prepare
from captioning.config.explain import explain, is_expected
from captioning.config.settings import Settings, check_settings
from captioning.machine import exit_with_parent, is_rank_zero, share_gpu
from captioning.metrics.table import score_called
from captioning.runs.folders.choices import keep_swept
from captioning.runs.folders.record import Record

ALIKE = (
    "captioning.runs.evaluation.data_set",
    "captioning.training.inputs",
    "captioning.training.setup",
)
"""Modules whose lines are often the same in all jobs of a sweep."""
log = logging.getLogger(__name__)


class SweepCallback(Callback):
    """Hydra callback that checks, prepares, names, logs and ranks the jobs of a sweep.

    The object is pickled into the process of each job; results are read from the run folders.

    Args:
        settings: the path of the command's schema.
    """

    def __init__(self, settings: str):
        self._settings = settings
        self._launcher = os.getpid()
        self._swept: list[str] = []
        self._ended = Path()  # a line for each job, from whatever process it ran in

    def on_multirun_start(self, config: DictConfig, **settings: Any) -> None:
        params = config.hydra.sweeper.get("params") or {}
        swept_params = parse_overrides(f"{key}={value}" for key, value in params.items())
        given = [*swept_params, *parse_overrides(config.hydra.overrides.task)]
        self._swept = [
            *params,
            *(override.key_or_group for override in given if override.is_sweep_override()),
        ]
        error = _shared_error(get_class(self._settings), _jobs(config, given))
        if error:
            print(f"error: {error}", file=sys.stderr)
            sys.exit(1)  # an exception would be a warning of Hydra's
        if is_rank_zero() and OmegaConf.select(config, "callbacks.checkpoint"):
            # The ranking is printed also if the program ends with a failure.
            self._ended = Path(config.hydra.sweep.dir, f".jobs-{uuid4().hex}")
            atexit.register(print_ranking, self._ended)
        on_cpu = OmegaConf.select(config, "trainer.accelerator") == "cpu"
        if config.hydra.launcher.get("n_jobs", 1) != 1 and not on_cpu:
            share_gpu()
        # joblib leaves the semaphores of a stopped sweep to this process, which would tell the user
        os.environ.setdefault("PYTHONWARNINGS", "ignore:resource_tracker")

    def on_job_start(self, config: DictConfig, **settings: Any) -> None:
        keep_swept(self._swept)
        if os.getpid() != self._launcher:
            prepare()
            if multiprocessing.parent_process():  # by hydra/launcher=processes
                if os.getppid() != self._launcher:
                    os._exit(1)  # the sweep has ended: no other job is to begin
                exit_with_parent(self._launcher)
                for handler in logging.getLogger().handlers:
                    handler.setFormatter(logging.Formatter(f"[{config.hydra.job.num}] %(message)s"))
        if config.hydra.mode == RunMode.MULTIRUN:
            swept = " ".join(self._swept_values(config).values())
            log.info("job %d: %s", config.hydra.job.num, swept)
            for name in ALIKE:
                logger = logging.getLogger(name)
                if not logger.filters:  # of an earlier job of this process
                    logger.addFilter(_once())

    def _swept_values(self, config: DictConfig) -> dict[str, str]:
        """The override of each swept setting by its key, such as `optimizer.lr=0.001`."""
        given = parse_overrides(config.hydra.overrides.task)
        return {
            override.key_or_group: str(override.input_line)
            for override in given
            if override.key_or_group in self._swept
        }

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **settings: Any) -> None:
        run = job_return.cfg
        if run is None or config.hydra.mode != RunMode.MULTIRUN or not is_rank_zero():
            return
        checkpoint = OmegaConf.select(run, "callbacks.checkpoint")  # none of an evaluation
        if checkpoint and run.folder:
            values = self._swept_values(config)
            values.pop("seed", None)
            name = " ".join(values.values())
            job = Job(name, run.seed, run.folder, checkpoint.monitor, checkpoint.mode)
            with self._ended.open("a", encoding="utf-8") as file:
                file.write(json.dumps(job) + "\n")


def _once() -> Callable[[logging.LogRecord], bool]:
    """A filter that passes a line once, although each job of a process logs it."""
    passed = set()

    def is_new(record: logging.LogRecord) -> bool:
        line = record.getMessage()
        new = line not in passed
        passed.add(line)
        return new

    return is_new


def _jobs(config: DictConfig, given: Sequence[Override]) -> Iterator[DictConfig]:
    """Compose the jobs of a sweep, if it says which they are, and make each the current one."""
    swept = [override for override in given if override.is_sweep_override()]
    # unlike those of an interval or a glob
    if all(s.is_discrete_sweep() and not isinstance(s.value(), Glob) for s in swept):
        loader = GlobalHydra.instance().config_loader()
        for overrides in BasicSweeper.split_arguments([*given], None)[0]:
            job = loader.load_sweep_config(config, [*overrides])
            HydraConfig.instance().set_config(job)
            yield OmegaConf.masked_copy(job, [str(key) for key in job if key != "hydra"])


def _shared_error(schema: type[Settings], jobs: Iterable[DictConfig]) -> str | None:
    """Return what refuses the settings of every job, if it is the same."""
    shared = None
    for job in jobs:
        message = None
        try:
            check_settings(schema, job)
        except Exception as error:
            if is_expected(error):
                message = explain(error)
        if message is None or shared not in (None, message):
            return None
        shared = message
    return shared


class Job(NamedTuple):
    """A run of a sweep, new or found finished."""

    name: str  # what the sweep varies beside the seed
    seed: int
    folder: str
    monitor: str  # the score of its best checkpoint
    mode: str  # `max` if high ones are good, or `min`


def print_ranking(ended: Path) -> None:
    """Print the runs of a sweep by their results, from the file of its jobs."""
    if not ended.exists():
        return
    lines = ended.read_text(encoding="utf-8").splitlines()
    ended.unlink()
    jobs = [Job(*json.loads(line)) for line in dict.fromkeys(lines)]
    jobs = [job for job in jobs if Path(job.folder, "run.json").exists()]  # not lost by a failure
    for monitor, mode in dict.fromkeys((job.monitor, job.mode) for job in jobs):
        alike = [job for job in jobs if (job.monitor, job.mode) == (monitor, mode)]
        results = [Record.of(Path(job.folder)).result for job in alike]
        scores = [None if result is None else result.best for result in results]
        print(ranking(dict(zip(alike, scores, strict=True)), monitor, mode))
    if any(Path(job.folder, "scores.json").exists() for job in jobs):
        print("next:", shlex.join(["captioning", "report", f"runs={ended.parent}"]))


def ranking(scores_of: Mapping[Job, float | None], monitor: str, mode: str) -> str:
    """A table of jobs by their scores, a row for all seeds.

    The best come first, and those without a score last.
    """
    printed = score_called(monitor.removeprefix("val/")).printed
    rows = []
    for name in dict.fromkeys(job.name for job in scores_of):
        alike = [job for job in scores_of if job.name == name]
        scores = [score for job in alike if (score := scores_of[job]) is not None]
        mean = fmean(scores) if scores else math.inf if mode == "min" else -math.inf
        text = printed(mean) if scores else "-"
        if len(scores) > 1:
            text += f" ± {printed(stdev(scores))}"
        seeds = ",".join(str(seed) for seed in sorted(job.seed for job in alike))
        row = f"{name}  {alike[0].folder}" if len(alike) == 1 else f"{name} seed={seeds}".strip()
        rows.append((mean, text, row))
    rows.sort(reverse=mode == "max")
    lines = [f"\njobs by {monitor}"]
    lines += [
        f"{rank:>4}   {score:>5}  {row}" for rank, (_, score, row) in enumerate(rows, start=1)
    ]
    return "\n".join(lines)
