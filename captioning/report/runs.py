"""Tested runs, read from their folders as untrusted data, with bounds and checks."""

import re
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, Field, SkipValidation

from captioning.config.types import Config, PositiveInt, Seed, between
from captioning.data.readers.captions import HINT
from captioning.data.words import Language
from captioning.errors import CaptioningError, quoted
from captioning.files import read_state
from captioning.metrics.statistics import IN_GROUP
from captioning.metrics.table import HEADLINES
from captioning.runs.evaluation.captions import CaptionRecord, add_scores, collapse, read_records
from captioning.runs.folders.history import LARGEST, read_history
from captioning.runs.folders.record import completed_settings
from captioning.runs.settings import each_setting, is_in, read_runs

PER_RUN = (
    "seed",
    "data.train_images_seed",
    "callbacks",
    "trainer.accelerator",  # the machine's, as the next
    "data.eval_batch_size",
)
"""Settings that may change a result, and in which runs of one system may differ nevertheless."""
SHARED = ("callbacks.weight_averaging",)
"""Settings among those in which they may not: other weights are tested."""
PRECISION = "trainer.precision"
SPEED = "train/captions per second"
SEED = re.compile(r"-seed\d+(?=[-/])")  # in the name of a run's folder

# Text that is printed as it is: no line breaks, no control characters, no halves of characters.
Line = Annotated[str, Field(pattern=r"^\P{C}*$", max_length=200)]
Number = Annotated[float, Field(ge=-LARGEST, le=LARGEST, allow_inf_nan=False)]
Score = Annotated[float, Field(allow_inf_nan=False)] | None  # whatever a run has computed


class Provenance(BaseModel, strict=True):
    data_digest: Line | None = None
    images_tested: PositiveInt | None = None
    images_of_split: PositiveInt | None = None
    parameters: dict[Line, Annotated[int, between(0, 10**15)]] = {}
    seconds_to_best: Number | None = None
    seconds_trained: Number | None = None
    device: Line = "?"
    commit: Line | None = None
    precision: Line | None = None
    signatures: dict[Line, Line] = {}
    versions: dict[Line, Line] = {}
    source: dict[Line, Line] = {}  # digests of the user's own modules, by path
    decoding: dict[Line, Any] = {}
    system: Line | None = None  # of an evaluation
    checkpoint: dict[Line, Any] = {}  # its file and digest
    references: Any = None  # the file that has them, unless `captions.jsonl` does

    @property
    def part(self) -> str:
        """The tested part of the test split, empty for all of it."""
        tested, every = self.images_tested or 0, self.images_of_split or 0
        return f"{tested:,} of {every:,}" if tested < every else ""


class RunProvenance(Provenance):
    data_digest: Line
    images_tested: PositiveInt
    images_of_split: PositiveInt


class TestRecord(BaseModel, strict=True):
    """Contents of `scores.json`; null stands for a score that could not be computed."""

    scores: dict[Line, Score]
    views: dict[Line, dict[Line, Score]] = {}
    groups: dict[Line, dict[Line, Score]] = {}  # number of images, and scores
    provenance: Provenance

    @property
    def known(self) -> dict[str, float]:
        """The scores that are there, also the main ones of groups, such as `CIDEr: in-domain`."""
        every = self.scores | {
            f"{name}{IN_GROUP}{label}": scores.get(name)
            for label, scores in self.groups.items()
            for name in HEADLINES
        }
        return {
            name: score
            for name, score in every.items()
            if score is not None and abs(score) <= LARGEST
        }


class Run(BaseModel, coerce_numbers_to_str=True):
    """One tested run."""

    name: Line  # the experiment's, or the data set's
    seed: Annotated[Seed, Field(strict=True)]
    model: Annotated[Line, Field(min_length=1)]  # such as `sat_soft`
    data: Line  # such as `coco`
    experiment: Line  # its file in `conf/experiment`, `null` for a run of none
    # parts and swept settings that differ from the system's defaults, by name: `score`,
    # `optimizer.lr`
    choices: dict[Line, str]
    overrides: list[str]  # settings of its command line
    recorded: Config  # all settings, by key
    # as text by key, without `PER_RUN`; and the beginning of each own module's digest
    settings: dict[Line, str]
    folder: Path
    # when, in ns; of copies that are equally old the highest number in the name
    tested: tuple[int, int, str]
    scores: dict[str, float]  # of the test split, times 100
    provenance: RunProvenance
    history: SkipValidation[list[dict[str, float]]]  # rows of `metrics.csv`, without empty fields

    @cached_property
    def captions(self) -> list[CaptionRecord]:
        """The lines of `captions.jsonl`, with references, read when they are first asked for."""
        return read_records(self.folder)

    def add_scores(self, cache: Path, modules: Sequence[str]) -> None:
        """Add what a record leaves out: how many captions differ, and scores of single captions.

        See `captions.add_scores`.
        """
        different = float(len({record.caption for record in self.captions}))
        self.scores.setdefault("different captions", different)
        if self.provenance.references:
            add_scores(self.captions, self.scores, self.spoken(modules), cache)

    @cached_property
    def collapsed(self) -> str | None:
        """A warning if far too many images have the same caption."""
        with suppress(CaptioningError):  # which is told where they are compared
            return collapse(self.captions)
        return None

    def spoken(self, modules: Sequence[str]) -> Language:
        """The language of its captions; functions of the user that split them are in `modules`."""
        keys = ("language", "tokens")
        return Language.of({key: self.recorded.get(f"data.{key}") for key in keys}, modules)

    @property
    def variant(self) -> object:
        """Equal for runs of a model that differ in their seed alone."""
        return tuple(sorted(self.settings.items()))

    @property
    def captions_per_second(self) -> float | None:
        """The mean of those logged in training."""
        logged = [row[SPEED] for row in self.history if SPEED in row]
        return fmean(logged) if logged else None

    def seconds_to(self, cider: float) -> float | None:
        """Return seconds of training to the first validation with this CIDEr, or None."""
        times = zip(*self.curve("val/CIDEr", "seconds"), strict=True)
        return next((time for time, score in times if score >= cider), None)

    def curve(self, value: str, against: str) -> tuple[list[float], list[float]]:
        """The logged values of one column, and those of `against` in the same rows."""
        if value == "train/nll":
            return self.training_loss(against)
        rows = [row for row in self.history if value in row and against in row]
        return [row[against] for row in rows], [row[value] for row in rows]

    def training_loss(self, against: str) -> tuple[list[float], list[float]]:
        """Return mean training losses up to each validation or epoch end, with `against` there."""
        ends, means, since = [], [], list[dict[str, float]]()
        for row in self.history:
            over = "val/nll" in row or (
                "train/nll" in row and since and row.get("epoch") != since[-1]["epoch"]
            )
            if over and since:
                end = self._position(row if "val/nll" in row else since[-1], against)
                if end is not None:
                    ends.append(end)
                    means.append(fmean(logged["train/nll"] for logged in since))
                since = []
            if "train/nll" in row and "epoch" in row:
                since.append(row)
        return ends, means

    def _position(self, row: dict[str, float], against: str) -> float | None:
        """The value of `against` in a row. Seconds are logged at validations alone, and steps
        between two of them take the same time.
        """
        if against in row or against != "seconds" or "step" not in row:
            return row.get(against)
        seconds, steps = self.curve("step", "seconds")
        return float(np.interp(row["step"], [0.0, *steps], [0.0, *seconds])) if steps else None


def find_runs(folder: Path) -> tuple[list[Run], list[str]]:
    """Return tested runs below a folder, sorted by name, and a line per skipped run."""
    if not folder.is_dir():
        raise CaptioningError(
            f"runs={folder!s:.200} is not a folder; captioning run writes its runs into runs/"
        )
    runs, refused = read_runs(folder, _read)
    known: dict[str, Config] = {}  # what runs of each model have recorded
    for run in runs:
        known[run.model] = known.get(run.model, {}) | run.recorded
    for run in runs:
        run.settings = system_settings(run.recorded, known[run.model]) | run.settings
    return runs, refused


def in_pairs(runs: Sequence[Run], setting: str | None) -> tuple[Sequence[Run], list[str]]:
    """Runs in the order of a setting, and its values; as they are where it has one value twice."""
    if setting is None:
        return runs, []
    by_value = {str(run.recorded.get(setting)): run for run in runs}
    if len(by_value) < len(runs):
        return runs, []
    values = sorted(by_value)
    return [by_value[value] for value in values], values


def system_settings(config: Config, known: Config | None = None) -> dict[str, str]:
    """Return the settings that runs of one system share, as text by key.

    One that is absent, and that others have as `known`, has its default.
    """
    completed = completed_settings(config, known or {}, modules=())
    settings = {key: repr(value) for key, value in completed.items()}
    if "init_from" in settings:  # seeds of a system go on from seeds of another
        settings["init_from"] = SEED.sub("-seed*", settings["init_from"])
    return {
        key: text for key, text in settings.items() if is_in(key, SHARED) or not is_in(key, PER_RUN)
    }


def read_record(path: Path) -> TestRecord:
    return read_state(path, TestRecord.model_validate_json, HINT, 2**20)


def _read(folder: Path, config: Config) -> Run:
    """The run of a configuration, of which nothing is resolved, imported or called."""
    if config.get("debug"):
        raise CaptioningError("it was a dry run (debug=true)")
    scores = folder / "scores.json"
    if not scores.exists():
        ended = "it has not ended" if config.get("test", True) else "it was not tested (test=false)"
        raise CaptioningError(ended)
    record = read_record(scores)
    recorded = dict(each_setting(config))
    choices = dict(each_setting(config["choices"])) if config.get("choices") else {}
    settings = system_settings(config)
    if record.provenance.precision:  # what `auto` was on the run's machine
        settings[PRECISION] = repr(record.provenance.precision)
    return Run.model_validate(
        {
            "name": recorded.get("name"),
            "seed": recorded.get("seed"),
            "overrides": recorded.get("overrides", []),
            "model": choices.pop("model", None),
            "data": choices.pop("data", None),
            "experiment": choices.pop("experiment", None) or "null",
            "choices": {key: quoted(value) for key, value in choices.items()},
            "recorded": recorded,
            "settings": settings
            | {path: code[:8] for path, code in record.provenance.source.items()},
            "folder": folder,
            "tested": (scores.stat().st_mtime_ns, len(folder.name), folder.name),
            "scores": record.known,
            "provenance": record.provenance.model_dump(),
            "history": read_history(folder),
        }
    )
