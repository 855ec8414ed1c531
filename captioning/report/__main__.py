"""Gathers runs into tables and pictures: `python -m captioning.report runs=FOLDER`."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Interval
from omegaconf import DictConfig

from captioning.config.command import command, start, while_read
from captioning.config.registry import CONF
from captioning.config.settings import check_table
from captioning.config.types import PathText, Samples, Seed
from captioning.errors import CaptioningError
from captioning.files import write_text
from captioning.metrics.scorer import Metric
from captioning.report.published import PUBLISHED, published_rows
from captioning.report.systems import group
from captioning.report.table import markdown, write_csv
from captioning.report.tested_runs import Run, find_runs

SETTINGS: Mapping[str, Any] = {
    "runs": PathText,
    "output": PathText,
    "published": Literal["auto", "coco", "flickr8k", "flickr30k"] | None,
    "cider": Annotated[float, Interval(ge=0, le=1000)] | None,
    "attention": Sequence[Literal["weights", "rollout", "gradient"]],
    "cache": PathText,
    "modules": Sequence[str],
    "photographs": PathText | None,
    "page.side": Annotated[int, Interval(ge=32, le=2048)],
    "page.inside": Annotated[float, Interval(ge=0, le=1000)],
    "page.heads": Annotated[int, Interval(ge=0, le=100_000)],
    "bootstrap.metrics": Sequence[Metric],
    "bootstrap.samples": Samples,
    "bootstrap.seed": Seed,
}


@command(CONF / "report.yaml")
def main(config: DictConfig) -> None:
    """Writes `index.html`, `table.md`, `table.csv`, results and pictures, and prints the table."""
    # File names need not be text; what is not is escaped.
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    check_table(SETTINGS, config)
    with _reachable("runs", config.runs) as folder:
        runs, left_out = find_runs(folder)
    if not runs:
        others = "".join(f"; {line}" for line in left_out)
        raise CaptioningError(
            f"there is no tested run below runs={config.runs:.200}: captioning.run leaves them{others}"
        )
    # here, because Matplotlib and templates take more than a second
    from captioning.report.curves import save_curves
    from captioning.report.differences import Compared, compare, differences
    from captioning.report.figures import save_figures
    from captioning.report.intervals import save_intervals
    from captioning.report.page.write import Table, write_page

    tables = [(title, group(members)) for title, members in _by_data(runs)]
    with _reachable("output", config.output) as output:
        output.mkdir(parents=True, exist_ok=True)
    pages, shown = [], []
    for title, systems in tables:
        tabled = [run for system in systems for run in system.runs]
        rows = PUBLISHED.get(config.published, ())
        if config.published == "auto":
            rows = published_rows({run.data for run in tabled}, {run.model for run in tabled})
        pages.append(markdown(title, systems, rows, config.cider))
        compared: Compared = []
        if config.bootstrap.metrics:
            compared, unlike = compare(systems, **config.bootstrap)
            pages[-1] += differences(systems, compared, config.bootstrap.samples)
            left_out += unlike
        if config.attention:
            from captioning.report.believed import believed  # here, because PyTorch takes seconds

            cache = Path(config.cache).expanduser()
            pointing, without = believed(systems, list(config.attention), cache, list(config.modules))
            pages[-1] += pointing
            left_out += without
        shown.append(Table(title, systems, rows, compared))
    with _reachable("output", output):
        write_text(output / "table.md", "\n".join(pages))
        write_csv(output / "table.csv", tables, config.cider)
        pictures = []
        for number, each in enumerate(shown):
            suffix = f"-{number + 1}" if number else ""
            pictures += save_curves(output / f"curves{suffix}", each.systems)
            pictures += save_intervals(output / f"intervals{suffix}", each.systems, each.compared)
            joined, damaged = save_figures(output / f"attention{suffix}", each.systems)
            pictures += joined
            left_out += damaged
        samples, seed = config.bootstrap.samples, config.bootstrap.seed
        settings = {"cider": config.cider, "photographs": config.photographs, **config.page}
        written, damaged = write_page(output, shown, samples=samples, seed=seed, **settings)
        left_out += damaged
    with while_read():
        for line in (*pages, *(f"left out: {line}" for line in left_out)):
            print(line)
        for path in (output / "table.md", output / "table.csv", *pictures, *written):
            print(path)


@contextmanager
def _reachable(key: str, folder: str | Path) -> Iterator[Path]:
    """The folder that a setting names; what the system says of it names the setting."""
    try:
        yield Path(folder).expanduser()
    except (OSError, RuntimeError) as error:  # the latter of a ~user who is not there
        reason = error.strerror if isinstance(error, OSError) else error
        raise CaptioningError(f"{key}={folder!s:.200} cannot be used: {reason}; name another folder") from error


def _by_data(runs: Sequence[Run]) -> list[tuple[str, list[Run]]]:
    """Runs whose captions answer the same task, below a title; different data have different tables."""
    tasks: dict[str, list[Run]] = {}
    for run in runs:
        tasks.setdefault(run.data_digest, []).append(run)
    tables: list[tuple[str, list[Run]]] = []
    for digest, members in tasks.items():
        title = ", ".join(dict.fromkeys(run.name for run in members))
        taken = any(title == other for other, _ in tables)
        tables.append((f"{title} ({digest[:8]})" if taken else title, members))
    return tables


if __name__ == "__main__":
    start(main)
