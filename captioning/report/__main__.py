"""Gather runs into tables, figures and a page: `captioning report runs=FOLDER`."""

import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from captioning.config.command import command, start, while_read
from captioning.config.settings import PageSettings, Settings
from captioning.config.types import GivenPath, PathText, between
from captioning.data.words import ENGLISH
from captioning.errors import CaptioningError, quoted
from captioning.files import write_text
from captioning.metrics.table import MetricName, unsupported_metrics
from captioning.report.published import untrained_rows
from captioning.report.runs import Run, find_runs
from captioning.report.systems import group, newest
from captioning.report.tables import collapsed, narrow_table, of_all, write_csv


class GallerySettings(PageSettings):
    """Settings below `page`."""

    heads: Annotated[int, between(0, 100_000)]
    """images per system with the maps of every layer and head"""


class ReportSettings(Settings):
    """Settings of `captioning report`."""

    runs: GivenPath
    """all tested runs below this folder"""
    output: GivenPath
    """the folder of index.html, table.md, table.csv and figures"""
    metrics: Sequence[MetricName]
    """[BLEU, METEOR, ROUGE-L, CIDEr]: compare every pair of systems by these scores"""
    published: Literal["auto", "coco", "flickr8k", "flickr30k"] | None
    """published rows of coco, flickr8k or flickr30k; auto: those of the tested systems"""
    cider: Annotated[float, between(0, 1000)] | None
    """adds the training time, in seconds, to this validation CIDEr"""
    paired: str | None
    """a setting: runs with equal values belong together, such as data.train_images_seed"""
    cache: GivenPath
    """drawn scenes, cached features, cached scores of single captions"""
    modules: Sequence[str]
    """your own modules with parts of the checkpoints, such as [show_tell]"""
    images: PathText | None
    """folder of the images for the page; auto: that of each run's data; null: no images"""
    page: GallerySettings
    wandb: Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+$")] | None
    """ENTITY/PROJECT: also makes a workspace and a report there"""


@command("report.yaml", ReportSettings)
def main(config: ReportSettings) -> None:
    """Write `index.html`, `table.md`, `table.csv` and figures, and print the main scores."""
    runs, left_out = _tested_runs(config)
    # here, because Matplotlib and templates take more than a second
    from captioning.report.page import write_report
    from captioning.report.section import Section

    groups = {title: group(members) for title, members in by_data(runs).items()}
    untrained = untrained_rows(config.runs)
    sections = [Section.build(title, groups[title], untrained, config) for title in groups]
    left_out += unsupported_metrics(config.metrics, ENGLISH)
    pictures, output = list[Path](), config.output
    output.mkdir(parents=True, exist_ok=True)
    for section in sections:
        suffix = "-" + re.sub(r"\W+", "_", section.title)[:60] if pictures else ""
        pictures += section.write(output, suffix)
        left_out += section.left_out
    write_text(output / "table.md", "\n".join(section.text for section in sections))
    write_csv(output / "table.csv", groups, config.cider)
    left_out += write_report(output, sections, config.cider, config.images, config.page)
    with while_read():
        columns = sys.maxsize  # a file or another program takes any width
        if sys.stdout.isatty():
            columns = shutil.get_terminal_size().columns
        for title, systems in groups.items():
            print(f"{title}: test split, mean ± deviation over seeds", *of_all(systems), sep=". ")
            table = narrow_table(systems, columns, config.metrics)
            print("\n".join([table, *collapsed(systems)]), end="\n\n")
        for line in left_out:
            print(f"left out: {line}")
        print(f"report folder: {output}", output / "index.html", sep="\n")
        if config.wandb:
            from captioning.report.dashboard import publish

            print("\n".join(publish(config.wandb, sections, pictures, output)))


def _tested_runs(config: ReportSettings) -> tuple[list[Run], list[str]]:
    """The newest tested run of each system and seed, with all its scores, and what is left out."""
    runs, left_out = find_runs(config.runs)
    if not runs:
        others = "".join(f"; {line}" for line in left_out)
        raise CaptioningError(
            f"there is no tested run below runs={config.runs!s:.200}: captioning run writes "
            f"them{others}"
        )
    if config.paired and not any(config.paired in run.recorded for run in runs):
        raise CaptioningError(f"paired={quoted(config.paired)} is no setting of these runs")
    runs, older = newest(runs)
    left_out += older
    for run in runs:
        try:
            run.add_scores(config.cache, config.modules)
        except CaptioningError as error:
            left_out.append(f"scores of single captions of {run.folder}: {error}")
    return runs, left_out


def by_data(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs whose captions answer the same task, below a title.

    Different data have different tables.
    """
    tasks: dict[str, list[Run]] = {}
    for run in runs:
        tasks.setdefault(run.provenance.data_digest, []).append(run)
    tables = {}
    for digest, members in tasks.items():
        title = ", ".join(dict.fromkeys(run.name for run in members))
        tables[f"{title} ({digest[:8]})" if title in tables else title] = members
    return tables


if __name__ == "__main__":
    start(main)
