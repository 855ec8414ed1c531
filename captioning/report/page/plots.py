"""Learning curves as lines of an SVG: places on the paper, ticks and what they say."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.ticker import MaxNLocator

from captioning.report.curves import ROWS, time_unit
from captioning.report.systems import System
from captioning.report.tested_runs import Run

WIDTH, HEIGHT = 520.0, 300.0
LEFT, RIGHT, TOP, BOTTOM = 52.0, 12.0, 12.0, 40.0
Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Line:
    """One run's: points on the paper, and the numbers that they stand for."""

    system: int
    points: list[tuple[float, float, str]]

    @property
    def path(self) -> str:
        """As `polyline` takes it."""
        return " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in self.points)


@dataclass(frozen=True, slots=True)
class Plot:
    """One value against one measure of training, with ticks as places on the paper and their texts."""

    name: str
    against: str
    label: str
    lines: list[Line]
    across: list[tuple[float, str]]
    up: list[tuple[float, str]]


def plots(systems: Sequence[System]) -> list[Plot]:
    """As `captioning.report.curves` draws them, without those of which nothing was logged."""
    found = []
    second, time = time_unit(systems)
    for value, name in ROWS:
        for against, label, unit in (("epoch", "epochs", 1.0), ("seconds", time, second)):
            curves = [(n, _curve(run, value, against, unit)) for n, system in enumerate(systems) for run in system.runs]
            drawn = [(place, points) for place, points in curves if points]
            if drawn:
                found.append(_plot(name.replace("\n", " "), against, label, drawn))
    return found


def _curve(run: Run, value: str, against: str, unit: float) -> list[Point]:
    x, y = run.training_loss(against) if value == "train/nll" else run.curve(value, against)
    first = 1 if against == "epoch" else 0  # epoch 0 is over when it is validated
    return [(a / unit + first, b) for a, b in zip(x, y, strict=True)]


def _plot(name: str, against: str, label: str, drawn: Sequence[tuple[int, list[Point]]]) -> Plot:
    xs, ys = zip(*(point for _, points in drawn for point in points), strict=True)
    across, up = _ticks(xs, whole=against == "epoch"), _ticks(ys)

    def place(point: Point) -> tuple[float, float, str]:
        return _on(point[0], across, LEFT, WIDTH - RIGHT), _on(point[1], up, HEIGHT - BOTTOM, TOP), _said(*point)

    return Plot(
        name,
        against,
        label,
        [Line(system, [place(point) for point in points]) for system, points in drawn],
        [(_on(tick, across, LEFT, WIDTH - RIGHT), f"{tick:g}") for tick in across],
        [(_on(tick, up, HEIGHT - BOTTOM, TOP), f"{tick:g}") for tick in up],
    )


def _said(x: float, y: float) -> str:
    return f"{y:.4g} at {x:.3g}"


def _ticks(values: Sequence[float], whole: bool = False) -> list[float]:
    """Round numbers around the values."""
    low, high = min(values), max(values)
    return [float(tick) for tick in MaxNLocator(6, integer=whole).tick_values(low, high)] if low < high else [low]


def _on(value: float, ticks: Sequence[float], start: float, end: float) -> float:
    span = ticks[-1] - ticks[0]
    return start + (end - start) * ((value - ticks[0]) / span if span else 0.5)
