"""A section of a report: the systems that were tested on the same data, compared."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from matplotlib.figure import Figure

from captioning.metrics.metric import MAIN
from captioning.metrics.table import scores_of
from captioning.report.comparison import (
    compare_runs,
    compared_scores,
    difference_tables,
    not_told_apart,
    write_pairs,
)
from captioning.report.figures import as_svg, curves, intervals, matrix, save
from captioning.report.page import Table
from captioning.report.published import Published, published_rows
from captioning.report.runs import Run
from captioning.report.systems import System, runs_of
from captioning.report.tables import TEST_IMAGES, markdown, score_names


@dataclass
class Section(Table):
    """What a report has on one data set; curves once they are saved."""

    text: str  # of `table.md`
    figures: dict[str, Figure]  # by the names of their files
    left_out: list[str]  # lines on what could not be compared

    @property
    def runs(self) -> list[Run]:
        return runs_of(self.systems)

    @classmethod
    def build(
        cls,
        title: str,
        systems: Sequence[System],
        untrained: Sequence[tuple[str | None, Published]],
        config: Any,
    ) -> Self:
        """Compare systems, as the settings of the command ask for.

        Args:
            title: of the data.
            systems: tested on the same data, at least one.
            untrained: rows of `untrained_rows`, of any data.
            config: the settings.
        """
        runs = runs_of(systems)
        published, hints = _published(runs, config.published)
        digest = runs[0].provenance.data_digest
        published += [row for data, row in untrained if data == digest]
        modules, paired = config.modules, config.paired
        compared, left_out = compare_runs(systems, config.metrics, modules, paired)
        scores = compared_scores(systems, compared)
        tabled = [name for name in scores_of(config.metrics) if name in scores]
        alike = not_told_apart(compared, scores[0], len(systems)) if scores else []
        parts = [markdown(title, systems, published, config.cider, alike), *hints]
        figures = {"curves": curves(systems)}
        if tabled:
            figures["intervals"] = intervals(systems, compared, tabled)
        if scores:
            parts.append(difference_tables(systems, compared, scores[0], tabled))
            figures["pairs"] = matrix(systems, compared, scores[0])
        for name in score_names(systems, MAIN):
            left_out += [
                f"{name} of {run.folder}: it has none; means are of the other runs"
                for system in systems
                for run in system.runs
                if name not in run.scores and system.score(name)
            ]
        return cls(
            title=title,
            systems=systems,
            published=published,
            compared=compared,
            scores=scores,
            alike=alike,
            curves=b"",
            text="".join(parts),
            figures=figures,
            left_out=left_out,
        )

    def write(self, output: Path, suffix: str) -> list[Path]:
        """Write the figures and the pairs into a folder; return the pictures."""
        if self.scores:
            write_pairs(output / f"pairs{suffix}.csv", self.systems, self.compared)
        pictures = [output / f"{name}{suffix}.png" for name in self.figures]
        for path, figure in zip(pictures, self.figures.values(), strict=True):
            save(figure, path)
        self.curves = as_svg(self.figures["curves"])
        return pictures


def _published(runs: Sequence[Run], chosen: str | None) -> tuple[list[Published], list[str]]:
    """The published rows that are `chosen`, and why there are none; `auto`: of the runs' systems.

    Rows are of all test images, so that they stand beside no test of a part of them.
    """
    if chosen is None:
        return [], []
    if chosen != "auto":
        return published_rows({chosen}), []
    images = runs[0].provenance.images_of_split
    sizes = {run.data: TEST_IMAGES.get(run.data, images) for run in runs}
    fitting = {data for data, size in sizes.items() if size == images}
    hints = [
        f"\nNo published rows: they are of {size:,} test images, and this split has "
        f"{images:,}; published={data} shows them.\n"
        for data, size in sizes.items()
        if size != images
    ]
    return published_rows(fitting, {run.model for run in runs}), hints
