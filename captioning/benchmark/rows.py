"""Rows of the benchmark: runs, ceilings, and how they are printed."""

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from captioning.report.tables import markdown_table

COLUMNS = ("part", "what", "one run", "rate", "spread", "naive", "ratio", "of the ceiling", "peak memory", "note")
LABELS = ("", "", "spread ", "naive ", "", "", "peak ", "")  # on a line, of the columns after the second


@dataclass(frozen=True, slots=True)
class Run:
    """Seconds of repeated runs of one action, and the images or captions that one of them handles."""

    amount: float
    seconds: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        return (max(self.seconds) - min(self.seconds)) / self.median

    @property
    def rate(self) -> float:
        return self.amount / self.median


@dataclass(frozen=True, slots=True)
class Ceiling:
    """Peak of the machine, timed in turn with the runs: FLOP or B a second, and how many one run of ours takes."""

    name: str
    unit: str
    per_second: float
    work: float


@dataclass(frozen=True, slots=True)
class Measurement:
    """One row of the table."""

    part: str  # of the benchmark
    name: str  # within its part
    unit: str = ""  # of amounts: images or captions
    ours: Run | None = None  # None where only memory was measured, or nothing
    naive: Run | None = None  # the same work done naively
    ceiling: Ceiling | None = None
    peak: int | None = None  # bytes of a process that has run only ours
    naive_peak: int | None = None  # bytes of a process that has run only the naive variant
    note: str = ""
    raw: dict[str, Any] = field(default_factory=dict)  # numbers, by name, from which the note is made

    @property
    def ratio(self) -> float | None:
        """Our rate in multiples of the naive one."""
        return self.ours.rate / self.naive.rate if self.ours and self.naive else None

    @property
    def share(self) -> float | None:
        """Share of the ceiling, 0-1."""
        return self.ceiling.work / self.ours.median / self.ceiling.per_second if self.ours and self.ceiling else None

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON, with every second."""
        content = asdict(self) | {"ratio": self.ratio, "share": self.share}
        for name, run in (("ours", self.ours), ("naive", self.naive)):
            if run:
                content[name] |= {"median": run.median, "spread": run.spread, "rate": run.rate}
        return content


def line(measurement: Measurement) -> str:
    """One measurement on a line."""
    part, name, *cells = _cells(measurement)
    return f"{part}, {name}: " + "; ".join(label + cell for label, cell in zip(LABELS, cells, strict=True) if cell)


def table(measurements: Sequence[Measurement]) -> str:
    """All measurements in Markdown."""
    return markdown_table(COLUMNS, [_cells(measurement) for measurement in measurements])


def _cells(m: Measurement) -> tuple[str, ...]:
    ours, naive = m.ours, m.naive
    return (
        m.part,
        m.name,
        (f"{ours.median:.2f} s" if ours.median >= 1 else f"{1000 * ours.median:.3g} ms") if ours else "",
        f"{_number(ours.rate)} {m.unit}/s" if ours and m.unit else "",
        f"{ours.spread:.0%}" if ours else "",
        f"{_number(naive.rate)} {m.unit}/s ({naive.spread:.0%})" if naive else "",
        f"{m.ratio:.2f}x" if m.ratio else "",
        f"{m.share:.0%} of {_prefixed(m.ceiling.per_second)}{m.ceiling.unit}/s" if m.ceiling and m.share else "",
        gigabytes(m.peak) + (f" (naive {gigabytes(m.naive_peak)})" if m.naive_peak else "") if m.peak else "",
        m.note,
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _prefixed(value: float) -> str:
    factor, prefix = next((each for each in ((1e12, "T"), (1e9, "G"), (1e6, "M")) if value >= each[0]), (1, ""))
    return f"{_number(value / factor)} {prefix}"


def gigabytes(size: float) -> str:
    """Bytes in GB."""
    return f"{size / 1e9:.2f} GB"
