"""How a captioner holds where photographs are not as those that it was trained on, read from an evaluation's folder."""

from collections.abc import Mapping
from pathlib import Path

from captioning.files import write_text
from captioning.report.markdown import markdown_table
from captioning.report.reading import read_record
from captioning.report.units import headed, printed

FILE = "views.md"
COLUMNS = ("CIDEr", "repeated", "unseen pairs", "first word entropy", "word entropy")


def views_table(views: Mapping[str, Mapping[str, float | None]]) -> str:
    """A row for each view and a column for each of `COLUMNS` that any of them has, as Markdown."""
    found = [name for name in COLUMNS if any(scores.get(name) is not None for scores in views.values())]

    def cell(value: float | None, name: str) -> str:
        return "" if value is None else printed(name, value)

    rows = [[view, *(cell(scores.get(name), name) for name in found)] for view, scores in views.items()]
    return markdown_table(["view", *map(headed, found)], rows)


def write_views(folder: Path) -> None:
    """Writes the table as `views.md`.

    Raises:
        CaptioningError: `scores.json` is damaged.
    """
    table = views_table(read_record(folder / "scores.json").views)
    write_text(folder / FILE, f"# How the system holds off its training photographs\n\n{table}\n")


def print_views(folder: Path) -> None:
    """Prints `views.md`."""
    print(f"\n{(folder / FILE).read_text(encoding='utf-8').removeprefix('# ').rstrip()}")
