"""`metrics.csv`: the values that a run has logged."""

import csv
import io
from pathlib import Path

from captioning.data.readers.captions import HINT
from captioning.files import read_state

LARGEST = 1e100
"""Of logged values: beyond it axes cannot be scaled."""


def read_history(folder: Path) -> list[dict[str, float]]:
    """Rows without empty fields, and without values that no axis can show; none without a file."""
    path = folder / "metrics.csv"
    return read_state(path, _parse, HINT) if path.exists() else []


def _parse(content: str) -> list[dict[str, float]]:
    rows = csv.DictReader(io.StringIO(content, newline=""))
    if not rows.fieldnames:
        raise ValueError("it is empty")
    return [
        {
            name: number
            for name, value in row.items()
            if value and abs(number := float(value)) <= LARGEST
        }
        for row in rows
        if None not in row.values()  # a part of a row, which a killed run has left
    ]
