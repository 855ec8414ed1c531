"""Finished runs, read back from their folders."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np

from captioning.config.settings import is_in
from captioning.errors import CaptioningError
from captioning.files import read_state
from captioning.report.reading import ADVICE, Config, Provenance, read_config, read_history, read_record

FREE = ("seed", "callbacks")
"""Decisive settings in which runs of one system may differ."""
NOT_FREE = ("callbacks.weight_averaging",)
"""Those among them in which they may not: other weights are tested."""

SPEED = "train/captions per second"


@dataclass(frozen=True, slots=True)
class Run:
    """One tested run.

    Attributes:
        folder: where it lies.
        model: the name of its configuration, such as `sat_soft`.
        data: likewise, such as `coco`.
        name: the experiment's, or the data set's.
        experiment: its file in `conf/experiment`, `null` for a run of none; None: it was not recorded.
        seed: of the run.
        settings: what it was configured with, as text by its key, without `FREE`.
        scores: of the test split, 0-100.
        data_digest: of its data set.
        provenance: as in `scores.json`.
        history: rows of `metrics.csv`, without empty fields.
    """

    folder: Path
    model: str
    data: str
    name: str
    experiment: str | None
    seed: int
    settings: Mapping[str, str]
    scores: Mapping[str, float]
    data_digest: str
    provenance: Provenance
    history: list[dict[str, float]]

    def curve(self, value: str, against: str) -> tuple[list[float], list[float]]:
        """The logged values of one column, and those of `against` in the same rows."""
        rows = [row for row in self.history if value in row and against in row]
        return [row[against] for row in rows], [row[value] for row in rows]

    def training_loss(self, against: str) -> tuple[list[float], list[float]]:
        """The means of the logged training losses up to each validation or end of an epoch, beside `against` there."""
        places, means, since = [], [], list[dict[str, float]]()
        for row in self.history:
            over = "val/nll" in row or ("train/nll" in row and since and row.get("epoch") != since[-1]["epoch"])
            if over and since:
                place = self._place(row if "val/nll" in row else since[-1], against)
                if place is not None:
                    places.append(place)
                    means.append(fmean(each["train/nll"] for each in since))
                since = []
            if "train/nll" in row and "epoch" in row:
                since.append(row)
        return places, means

    def _place(self, row: dict[str, float], against: str) -> float | None:
        """Seconds are logged at validations alone; between two of them all steps take the same time."""
        if against in row or against != "seconds" or "step" not in row:
            return row.get(against)
        seconds, steps = self.curve("step", "seconds")
        return float(np.interp(row["step"], [0.0, *steps], [0.0, *seconds])) if steps else None

    @property
    def part(self) -> str:
        """Of the test split what it was tested on, where that is not all; earlier versions have not recorded it."""
        tested, every = self.provenance.images_tested, self.provenance.images_of_split
        if tested is not None and every is not None:
            return f"{tested:,} of {every:,}" if tested < every else ""
        if self.settings.get("trainer.limit_test_batches", "None") in ("None", "1.0"):
            return ""
        return "not all" if tested is None else f"{tested:,}, not all"

    @property
    def captions_per_second(self) -> float | None:
        """The mean of those logged in training."""
        logged = [row[SPEED] for row in self.history if SPEED in row]
        return fmean(logged) if logged else None

    def seconds_to(self, cider: float) -> float | None:
        """Seconds of training until the first validation with at least this CIDEr; None: never, or not logged."""
        seconds, scores = self.curve("val/CIDEr", "seconds")
        return next((time for time, score in zip(seconds, scores, strict=True) if score >= cider), None)


def find_runs(folder: Path) -> tuple[list[Run], list[str]]:
    """All tested runs below a folder in the order of their names, and a line on each that is left out.

    Raises:
        CaptioningError: the folder is not there.
    """
    if not folder.is_dir():
        raise CaptioningError(f"runs={folder!s:.200} is no folder; captioning.run leaves its runs in runs/")
    found, left_out = [], []
    for path in sorted(folder.rglob("config.yaml")):
        if "wandb" in path.relative_to(folder).parts:
            continue  # W&B's own copy
        try:
            if (config := read_config(path)) is not None:
                found.append(_read(path.parent, config))
        except CaptioningError as error:
            left_out.append(str(error))
    return found, left_out


def system_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Those in which runs of one system agree."""
    return {key: value for key, value in settings.items() if is_in(key, NOT_FREE) or not is_in(key, FREE)}


def _read(folder: Path, config: Config) -> Run:
    if not (folder / "scores.json").exists():
        raise CaptioningError(f"{folder}: {'it has not ended' if config.test else 'it was not tested (test=false)'}")
    record = read_record(folder / "scores.json")
    digest = record.provenance.data_digest
    if digest is None:
        raise CaptioningError(f"{folder / 'scores.json'} has no data_digest, so it is not known what was scored")
    if record.provenance.images_tested is None:  # of an earlier version
        with suppress(CaptioningError):
            record.provenance.images_tested = read_state(folder / "captions.jsonl", _count_lines, ADVICE)
    metrics = folder / "metrics.csv"
    return Run(
        folder=folder,
        model=config.choices.model,
        data=config.choices.data,
        name=config.name,
        experiment=config.choices.experiment,
        seed=config.seed,
        settings=system_settings(config.settings),
        scores={name: score for name, score in record.scores.items() if score is not None},
        data_digest=digest,
        provenance=record.provenance,
        history=read_history(metrics) if metrics.exists() else [],
    )


def _count_lines(content: str) -> int:
    return sum(bool(line.strip()) for line in content.split("\n"))
