"""Every logged value in one CSV file that a resumed run goes on with."""

import csv
import io
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_only

from captioning.config.types import validated
from captioning.errors import CaptioningError
from captioning.files import read_state, write_text

log = logging.getLogger(__name__)


class MetricsFile(Logger):
    """`metrics.csv`: a row per call, written at once; an unknown value is an empty field.

    Lightning's own CSV logger begins anew where its file exists, and keeps rows back that a killed run then lacks.

    Args:
        path: the file; made with the first row.
    """

    @validated
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
            CaptioningError: the file cannot be written, or its earlier rows cannot be read.
        """
        row = {**metrics, "step": step}
        if unknown := row.keys() - set(self._columns):
            self._write(sorted({*self._columns, *unknown}), [*self._rows(), row])
            return
        with self._refused(), self.path.open("a", encoding="utf-8", newline="") as file:
            csv.DictWriter(file, self._columns).writerow(row)

    @rank_zero_only
    def keep(self, before: int) -> None:
        """Goes on with the file of a run that is resumed at step `before`: rows from that step on come again.

        Raises:
            CaptioningError: the file is empty or damaged, or cannot be written.
        """
        rows = [row for row in self._rows() if int(row["step"]) < before] if before else []
        if rows:
            # A column that only later rows had comes again with them.
            self._write(sorted({name for row in rows for name, value in row.items() if value}), rows)
            return
        if before:
            log.info("no values of the steps before %d are in %s: its history begins here", before, self.path)
        with self._refused():
            self.path.unlink(missing_ok=True)

    def _rows(self) -> list[dict[str, str]]:
        if not self.path.exists():
            return []
        return read_state(self.path, _parse, "bring it back from a copy, or delete it and go on without its history")

    def _write(self, columns: list[str], rows: Sequence[Mapping[str, Any]]) -> None:
        self._columns = columns
        table = io.StringIO(newline="")
        writer = csv.DictWriter(table, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
        write_text(self.path, table.getvalue())

    @contextmanager
    def _refused(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise CaptioningError(
                f"cannot write {self.path}: {error.strerror}. Make room, or let it be written to, and go on with "
                "resume=true"
            ) from error


def _parse(text: str) -> list[dict[str, str]]:
    whole = text[: text.rfind("\n") + 1]  # a run that was killed in the middle of a row has left a part of it
    rows = list(csv.DictReader(io.StringIO(whole, newline=""), strict=True))
    if not rows:
        raise ValueError("it has no rows")
    if "step" not in rows[0]:
        raise ValueError("it has no column step")
    for number, row in enumerate(rows, start=2):
        if None in row or None in row.values():
            raise ValueError(f"line {number} has not as many fields as the first")
        int(row["step"])
    return rows
