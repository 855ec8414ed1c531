"""Every logged value in one CSV file that a resumed run goes on with."""

import csv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO, cast

from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_only

from captioning.errors import CaptioningError


class MetricsFile(Logger):
    """`metrics.csv`: a row per call, written at once; an unknown value is an empty field.

    Lightning's own CSV logger begins anew where its file exists, and keeps rows back that a killed run then lacks.

    Args:
        path: the file; made with the first row.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__()
        self.path = Path(path)
        self._columns: list[str] = []

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def version(self) -> str:
        return ""

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """`config.yaml` has them."""

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Adds a row; the columns are sorted, so that their order does not depend on what came first.

        Raises:
            CaptioningError: the file cannot be written.
        """
        row = {**metrics, "step": step}
        if unknown := row.keys() - set(self._columns):
            self._write(sorted({*self._columns, *unknown}), self._rows())
        with self._open(self.path, "a") as file:
            csv.DictWriter(file, self._columns).writerow(row)

    @rank_zero_only
    def keep(self, before: int) -> None:
        """Goes on with the file of a run that is resumed at step `before`: rows from that step on come again."""
        rows = [row for row in self._rows() if int(row["step"]) < before]
        # A column that only later rows had comes again with them.
        self._write(sorted({name for row in rows for name, value in row.items() if value}), rows)

    def _rows(self) -> list[dict[str, str]]:
        if not self.path.exists():
            return []
        with self.path.open(encoding="utf-8", newline="") as file:
            # A run that was killed in the middle of a row has left a part of it.
            return [row for row in csv.DictReader(file) if None not in row.values() and row["step"]]

    def _write(self, columns: list[str], rows: list[dict[str, str]]) -> None:
        self._columns = columns
        part = self.path.with_name(f"{self.path.name}.part")
        with self._open(part, "w") as file:
            writer = csv.DictWriter(file, columns, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(rows)
        part.replace(self.path)

    @contextmanager
    def _open(self, path: Path, mode: str) -> Iterator[TextIO]:
        try:
            with path.open(mode, encoding="utf-8", newline="") as file:
                yield cast(TextIO, file)
        except OSError as error:
            raise CaptioningError(
                f"cannot write {self.path}: {error.strerror}. Make room, and go on with resume=true"
            ) from error
