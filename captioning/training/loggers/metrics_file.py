"""Every logged value in one CSV file that a resumed run continues."""

import csv
import io
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_only

from captioning.config.types import UserPath, validated
from captioning.files import read_state, write_rows, writing

log = logging.getLogger(__name__)


class FileLogger(Logger):
    """Base of loggers to files in the run folder; hyperparameters are in its `config.yaml`."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def version(self) -> str:
        return ""

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        pass


class MetricsFile(FileLogger):
    """`metrics.csv`: one row per call, written immediately; missing values are empty fields.

    Lightning's CSV logger overwrites an existing file and buffers rows, which a killed run loses.
    """

    @validated
    def __init__(self, path: UserPath):
        super().__init__()
        self.path = path
        self._columns: list[str] = []

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Append a row.

        Columns are sorted, so that their order does not depend on the first calls.
        """
        row = {**metrics, "step": step}
        if unknown := row.keys() - set(self._columns):
            self._write(sorted({*self._columns, *unknown}), [*self._rows(), row])
            return
        with writing(self.path), self.path.open("a", encoding="utf-8", newline="") as file:
            csv.DictWriter(file, self._columns).writerow(row)

    @rank_zero_only
    def keep(self, before: int) -> None:
        """Drop the rows from step `before` on, which a resumed run logs again."""
        rows = [row for row in self._rows() if int(row["step"]) < before] if before else []
        if rows:
            # Columns that only dropped rows have are dropped too.
            columns = {name for row in rows for name, value in row.items() if value}
            self._write(sorted(columns), rows)
            return
        if before:
            lost = "%s has no values of the steps before %d: its history begins here"
            log.info(lost, self.path, before)
        self.path.unlink(missing_ok=True)

    def _rows(self) -> list[dict[str, str]]:
        if not self.path.exists():
            return []
        advice = "restore it from a copy, or delete it and continue without its history"
        return read_state(self.path, _parse, advice)

    def _write(self, columns: list[str], rows: Sequence[Mapping[str, Any]]) -> None:
        self._columns = columns
        write_rows(self.path, columns, rows)


def _parse(text: str) -> list[dict[str, str]]:
    complete = text[: text.rfind("\n") + 1]  # a killed run may have left a partial row
    rows = list(csv.DictReader(io.StringIO(complete, newline=""), strict=True))
    if not rows or any(
        None in row or None in row.values() or not row["step"].isdecimal() for row in rows
    ):
        raise ValueError("it is not a table of values with their steps")
    return rows
