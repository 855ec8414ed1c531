"""A row of the table: what was measured, beside what, and how near to the ceiling."""

from dataclasses import asdict, dataclass, field
from typing import Any

from captioning.benchmark.timing import Run


@dataclass(frozen=True, slots=True)
class Ceiling:
    """What the machine can do at most, measured in turn with the runs.

    Attributes:
        name: of what.
        unit: FLOP or B (bytes).
        per_second: units a second of the middle run.
        work: units of one run of ours.
    """

    name: str
    unit: str
    per_second: float
    work: float


@dataclass(frozen=True, slots=True)
class Measurement:
    """One row.

    Attributes:
        part: of the benchmark.
        name: of what was measured, within its part.
        unit: what amounts count: images or captions.
        ours: the project's runs; None where only memory was measured, or nothing.
        naive: the same work done naively.
        ceiling: what bounds it.
        peak: bytes, of a process that has run only ours.
        naive_peak: bytes, of a process that has run only the naive variant.
        note: what no column says.
        raw: further numbers that the note is made of, by name.
    """

    part: str
    name: str
    unit: str = ""
    ours: Run | None = None
    naive: Run | None = None
    ceiling: Ceiling | None = None
    peak: int | None = None
    naive_peak: int | None = None
    note: str = ""
    raw: dict[str, float | list[float] | None] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        """Our rate in multiples of the naive one."""
        return self.ours.rate / self.naive.rate if self.ours and self.naive else None

    @property
    def share(self) -> float | None:
        """The share of the ceiling, 0-1."""
        return self.ceiling.work / self.ours.median / self.ceiling.per_second if self.ours and self.ceiling else None

    def as_dict(self) -> dict[str, Any]:
        """What is written as JSON: every second, and all that the table derives from them."""
        content = asdict(self) | {"ratio": self.ratio, "share": self.share}
        for name, run in (("ours", self.ours), ("naive", self.naive)):
            if run:
                content[name] |= {"median": run.median, "spread": run.spread, "rate": run.rate}
        return content
