"""Measurements as lines, while they are made, and as one table in Markdown."""

from collections.abc import Sequence

from captioning.benchmark.measure import Measurement
from captioning.report.tables import markdown_table

COLUMNS = ("part", "what", "one run", "rate", "spread", "naive", "ratio", "of the ceiling", "peak memory", "note")


def line(measurement: Measurement) -> str:
    """One measurement on a line."""
    part, name, *cells = _cells(measurement)
    labels = ("", "", "spread ", "naive ", "", "", "peak ", "")
    shown = [label + cell for label, cell in zip(labels, cells, strict=True) if cell]
    return f"{part}, {name}: " + "; ".join(shown)


def table(measurements: Sequence[Measurement]) -> str:
    """All measurements, a line each."""
    return markdown_table(COLUMNS, [_cells(measurement) for measurement in measurements])


def _cells(m: Measurement) -> tuple[str, ...]:
    ours, naive = m.ours, m.naive
    return (
        m.part,
        m.name,
        _seconds(ours.median) if ours else "",
        f"{_number(ours.rate)} {m.unit}/s" if ours and m.unit else "",
        f"{ours.spread:.0%}" if ours else "",
        f"{_number(naive.rate)} {m.unit}/s ({naive.spread:.0%})" if naive else "",
        f"{m.ratio:.2f}x" if m.ratio else "",
        f"{m.share:.0%} of {_prefixed(m.ceiling.per_second)}{m.ceiling.unit}/s" if m.ceiling and m.share else "",
        _memory(m.peak) + (f" (naive {_memory(m.naive_peak)})" if m.naive_peak else "") if m.peak else "",
        m.note,
    )


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _prefixed(value: float) -> str:
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if value >= factor:
            return f"{_number(value / factor)} {prefix}"
    return f"{_number(value)} "


def _memory(size: int | None) -> str:
    return "" if size is None else f"{size / 1e9:.2f} GB"
