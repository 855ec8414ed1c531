"""What machines read beside the page: `results/*.csv`, one a data set, and `metafile.yml`."""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from captioning.files import write_text
from captioning.report.systems import System
from captioning.report.table import TABLED, columns

ALL_SCORES = TABLED
COLUMNS = [
    *("data", "data digest", "system", "model", "experiment", "seed", *ALL_SCORES),
    *("parameters", "seconds trained", "seconds to best", "captions per second", "device", "commit"),
]
"""Of every file of results, whatever was scored, so that those of several reports can be joined."""


def write_results(folder: Path, tables: Sequence[tuple[str, Sequence[System]]]) -> list[Path]:
    """A file for each table: a row for each run, empty where it has no number."""
    folder.mkdir(exist_ok=True)
    paths: list[Path] = []
    for title, systems in tables:
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, COLUMNS)
        writer.writeheader()
        writer.writerows(row for system in systems for row in _rows(title, system))
        stem = re.sub(r"[^\w.-]+", "_", title)[:100].strip("._") or "results"
        taken = sum(path.stem.partition("-")[0] == stem for path in paths)
        paths.append(folder / (f"{stem}-{taken + 1}.csv" if taken else f"{stem}.csv"))
        write_text(paths[-1], text.getvalue())
    return paths


def write_metafile(path: Path, tables: Sequence[tuple[str, Sequence[System]]]) -> None:
    """Every system with its results, in the form of OpenMMLab's `metafile.yml`."""
    models = [_model(title, system) for title, systems in tables for system in systems]
    write_text(path, yaml.safe_dump({"Models": models}, sort_keys=False, allow_unicode=True))


def _rows(title: str, system: System) -> list[dict[str, Any]]:
    return [
        {
            "data": title,
            "data digest": run.data_digest,
            "system": system.label,
            "model": run.model,
            "experiment": run.name,
            "seed": run.seed,
            **{name: run.scores.get(name) for name in ALL_SCORES},
            "parameters": run.provenance.parameters.get("trainable"),
            "seconds trained": run.provenance.seconds_trained,
            "seconds to best": run.provenance.seconds_to_best,
            "captions per second": run.captions_per_second,
            "device": run.provenance.device,
            "commit": run.provenance.commit,
        }
        for run in system.runs
    ]


def _model(title: str, system: System) -> Mapping[str, Any]:
    run = system.runs[0]
    values = {name: value for name, value in columns(system, None).items() if value is not None and name in ALL_SCORES}
    return {
        "Name": system.label,
        "Config": {"model": run.model, "data": run.data, "experiment": run.name},
        "Metadata": {
            "Training Data": title,
            "Data Digest": run.data_digest,
            "Parameters": run.provenance.parameters.get("trainable"),
            "Seeds": [each.seed for each in system.runs],
            "Training Seconds": run.provenance.seconds_trained,
            "Device": run.provenance.device,
            "Commit": run.provenance.commit,
        },
        "Results": [
            {
                "Task": "Image Captioning",
                "Dataset": title,
                "Split": "test",
                "Metrics": {name: round(value.mean, 4) for name, value in values.items()},
                "Deviations": {n: round(v.deviation, 4) for n, v in values.items() if v.deviation is not None},
            }
        ],
    }
