"""Gather runs into tables, figures and a page: `captioning report runs=FOLDER`."""

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Interval
from omegaconf import DictConfig
from pydantic import Field

from captioning.config.command import command, start, while_read
from captioning.config.registry import CONF
from captioning.config.settings import PageSettings, Settings
from captioning.config.types import PathText, given_path
from captioning.data.words import ENGLISH
from captioning.errors import CaptioningError, quoted
from captioning.files import write_text
from captioning.metrics.metric import MAIN
from captioning.metrics.table import HEADLINES, MetricName, scores_of, unsupported_metrics
from captioning.report.pairs import difference_tables, not_told_apart, write_pairs
from captioning.report.power import power_sentence
from captioning.report.published import published_rows, untrained_rows
from captioning.report.runs import Run, find_runs
from captioning.report.systems import compare_runs, compared_scores, group, newest
from captioning.report.tables import (
    TEST_IMAGES,
    collapsed,
    markdown,
    narrow_table,
    of_all,
    score_names,
    write_csv,
)


class GallerySettings(PageSettings):
    """Settings below `page`."""

    heads: Annotated[int, Interval(ge=0, le=100_000)]
    """images per system with the maps of every layer and head"""


class ReportSettings(Settings):
    """Settings of `captioning report`."""

    runs: PathText
    """all tested runs below this folder"""
    output: PathText
    """the folder of index.html, table.md, table.csv and figures"""
    metrics: Sequence[MetricName]
    """[BLEU, METEOR, ROUGE-L, CIDEr]: compare every pair of systems by these scores"""
    published: Literal["auto", "coco", "flickr8k", "flickr30k"] | None
    """published rows of coco, flickr8k or flickr30k; auto: those of the tested systems"""
    cider: Annotated[float, Interval(ge=0, le=1000)] | None
    """adds the training time, in seconds, to this validation CIDEr"""
    paired: str | None
    """a setting: runs with equal values belong together, such as data.train_images_seed"""
    power: Annotated[float, Interval(gt=0, le=1000)] | None
    """adds how many seeds and images a difference of this many CIDEr points needs"""
    cache: PathText
    """drawn scenes, cached features, cached scores of single captions"""
    modules: Sequence[str]
    """your own modules with parts of the checkpoints, such as [show_tell]"""
    photographs: PathText | None
    """folder of the images for the page; auto: that of each run's data; null: no images"""
    page: GallerySettings
    wandb: Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+$")] | None
    """ENTITY/PROJECT: also makes a workspace and a report there"""


@command(CONF / "report.yaml", ReportSettings)
def main(config: DictConfig) -> None:
    """Write `index.html`, `table.md`, `table.csv` and figures, and print the main scores."""
    runs, left_out = find_runs(given_path(config.runs))
    if not runs:
        others = "".join(f"; {line}" for line in left_out)
        raise CaptioningError(
            f"there is no tested run below runs={config.runs:.200}: captioning run writes "
            f"them{others}"
        )
    if config.paired and not any(config.paired in run.recorded for run in runs):
        raise CaptioningError(f"paired={quoted(config.paired)} is no setting of these runs")
    runs, older = newest(runs)
    left_out += older
    cache, modules = given_path(config.cache), list(config.modules)
    for run in runs:
        try:
            run.add_scores(cache, modules)
        except CaptioningError as error:
            left_out.append(f"scores of single captions of {run.folder}: {error}")
    # here, because Matplotlib and templates take more than a second
    from captioning.report.figures import as_svg, curves, intervals, matrix, save
    from captioning.report.page import Table, write_report

    groups = [(title, group(members)) for title, members in _by_data(runs).items()]
    untrained = untrained_rows(given_path(config.runs))
    compared_by, output = scores_of(config.metrics), given_path(config.output)
    output.mkdir(parents=True, exist_ok=True)
    left_out += unsupported_metrics(config.metrics, ENGLISH)
    tables, pages, pictures = list[Table](), list[str](), list[Path]()
    for title, systems in groups:
        members = [run for system in systems for run in system.runs]
        rows = published_rows({config.published})
        hints = []
        if config.published == "auto":
            images = members[0].provenance.images_of_split
            sizes = {run.data: TEST_IMAGES.get(run.data, images) for run in members}
            fitting = {data for data, size in sizes.items() if size == images}
            rows = published_rows(fitting, {run.model for run in members})
            hints = [
                f"\nNo published rows: they are of {size:,} test images, and this split has "
                f"{images:,}; published={data} shows them.\n"
                for data, size in sizes.items()
                if size != images
            ]
        digest = members[0].provenance.data_digest
        rows += tuple(row for data, row in untrained if data == digest)
        compared, unlike = compare_runs(systems, config.metrics, modules, config.paired)
        scores = compared_scores(systems, compared)
        alike = not_told_apart(compared, scores[0], len(systems)) if scores else []
        page = "".join([markdown(title, systems, rows, config.cider, alike), *hints])
        tabled = [name for name in compared_by if name in scores]
        if scores:
            page += difference_tables(systems, compared, scores[0], tabled)
        if config.power:
            page += power_sentence(systems, config.power)
        left_out += unlike
        left_out += [
            f"{name} of {run.folder}: it has none; means are of the other runs"
            for name in score_names(systems, MAIN)
            for system in systems
            for run in system.runs
            if name not in run.scores and system.score(name)
        ]
        learning = curves(systems)
        suffix = "-" + re.sub(r"\W+", "_", title)[:60] if pages else ""
        figures = {"curves": learning}
        if tabled:
            figures["intervals"] = intervals(systems, compared, tabled)
        if scores:
            write_pairs(output / f"pairs{suffix}.csv", systems, compared)
            figures["pairs"] = matrix(systems, compared, scores[0])
        for name, figure in figures.items():
            pictures.append(output / f"{name}{suffix}.png")
            save(figure, pictures[-1])
        pages.append(page)
        tables.append(Table(title, systems, rows, compared, scores, alike, as_svg(learning)))
    write_text(output / "table.md", "\n".join(pages))
    write_csv(output / "table.csv", groups, config.cider)
    left_out += write_report(output, tables, config.cider, config.photographs, config.page)
    with while_read():
        columns = shutil.get_terminal_size().columns
        for title, systems in groups:
            print(f"{title}: test split, mean ± deviation over seeds", *of_all(systems), sep=". ")
            print(narrow_table(systems, columns), *collapsed(systems), sep="\n", end="\n\n")
        for line in left_out:
            print(f"left out: {line}")
        print(f"report folder: {output}", output / "index.html", sep="\n")
        if config.wandb is not None:
            from captioning.report.dashboard import Part, publish

            parts = []
            for (title, systems), page in zip(groups, pages, strict=True):
                members = [run for system in systems for run in system.runs]
                names = {run.name for run in members}
                parts.append(Part(title, sorted(names), members[0].provenance.data_digest, page))
            known = [name for name in HEADLINES if any(name in run.scores for run in runs)]
            print(*publish(config.wandb, parts, known, pictures, output), sep="\n")


def _by_data(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs whose captions answer the same task, below a title.

    Different data have different tables.
    """
    tasks: dict[str, list[Run]] = {}
    for run in runs:
        tasks.setdefault(run.provenance.data_digest, []).append(run)
    tables: dict[str, list[Run]] = {}
    for digest, members in tasks.items():
        title = ", ".join(dict.fromkeys(run.name for run in members))
        tables[f"{title} ({digest[:8]})" if title in tables else title] = members
    return tables


if __name__ == "__main__":
    start(main)
