"""Finished runs, read back from their folders."""

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml

from captioning.config.settings import decisive_settings, is_in
from captioning.errors import CaptioningError

FREE = ("seed", "callbacks")
"""Decisive settings in which runs of one system may differ."""
NOT_FREE = ("callbacks.weight_averaging",)
"""Those among them in which they may not: other weights are tested."""


@dataclass(frozen=True, slots=True)
class Run:
    """One tested run.

    Attributes:
        folder: where it lies.
        model: the name of its configuration, such as `sat_soft`.
        name: the experiment's, or the data set's.
        seed: of the run.
        settings: what it was configured with, key by key, without `FREE`.
        scores: of the test split, 0-100.
        provenance: as in `scores.json`.
        history: rows of `metrics.csv`, without empty fields.
    """

    folder: Path
    model: str
    name: str
    seed: int
    settings: Mapping[str, Any]
    scores: Mapping[str, float]
    provenance: Mapping[str, Any]
    history: list[dict[str, float]]

    def curve(self, value: str, against: str) -> tuple[list[float], list[float]]:
        """The logged values of one column, and those of `against` in the same rows."""
        rows = [row for row in self.history if value in row and against in row]
        return [row[against] for row in rows], [row[value] for row in rows]

    def training_loss(self, against: str) -> tuple[list[float], list[float]]:
        """The mean of the logged training losses between two validations, beside `against` of the second."""
        places, means, since = [], [], list[float]()
        for row in self.history:
            if "train/nll" in row:
                since.append(row["train/nll"])
            if "val/nll" in row and against in row and since:
                places.append(row[against])
                means.append(fmean(since))
                since = []
        return places, means

    def seconds_to(self, cider: float) -> float | None:
        """Seconds of training until the first validation with at least this CIDEr; None: never, or not logged."""
        seconds, scores = self.curve("val/CIDEr", "seconds")
        return next((time for time, score in zip(seconds, scores, strict=True) if score >= cider), None)


def find_runs(folder: Path) -> tuple[list[Run], list[str]]:
    """All tested runs below a folder in the order of their names, and a line on each that is left out.

    Raises:
        CaptioningError: the folder is not there, or a file of a run cannot be read.
    """
    if not folder.is_dir():
        raise CaptioningError(f"runs={folder} is no folder; captioning.run leaves its runs in runs/")
    found, left_out = [], []
    for config in sorted(folder.rglob("config.yaml")):
        if "wandb" in config.relative_to(folder).parts:
            continue  # W&B's own copy
        try:
            settings = yaml.safe_load(config.read_text(encoding="utf-8"))
            if not isinstance(settings, dict) or "model" not in settings:
                continue  # an evaluation's, or of another program
            if not (config.parent / "scores.json").exists():
                why = "it was not tested (test=false)" if settings.get("test") is False else "it has not ended"
                left_out.append(f"{config.parent}: {why}")
                continue
            found.append(_read(config.parent, settings))
        except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError) as error:
            raise CaptioningError(f"cannot read the run {config.parent}: {type(error).__name__}: {error}") from error
    return found, left_out


def _read(folder: Path, config: dict[str, Any]) -> Run:
    record = json.loads((folder / "scores.json").read_text(encoding="utf-8"))
    name, seed = str(config["name"]), int(config["seed"])
    model = Path(str(config["folder"])).name.removeprefix(f"{name}-").rpartition("-seed")[0]
    decisive = decisive_settings(config).items()
    settings = {key: value for key, value in decisive if is_in(key, NOT_FREE) or not is_in(key, FREE)}
    metrics = folder / "metrics.csv"
    history = list(_history(metrics)) if metrics.exists() else []
    return Run(folder, model, name, seed, settings, record["scores"], record["provenance"], history)


def _history(path: Path) -> Iterator[dict[str, float]]:
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            yield {name: float(value) for name, value in row.items() if value}
