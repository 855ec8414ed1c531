"""Print the ranges of the CSV files as Markdown: `python experiments/error_rates/table.py`."""

import csv
from collections.abc import Sequence
from pathlib import Path

from captioning.files import markdown_table

HERE = Path(__file__).parent
PAIRS = {
    "0 outside, before": "before outside",
    "now": "outside",
    "if runs agree, before": "before agree outside",
    "if runs agree, now": "agree outside",
    "p, before": "before strict",
    "p, now": "strict",
}
SINGLE = {"0 outside, before": "before outside", "now": "outside", "p, before": "before strict"}
SINGLE |= {"p, now": "strict"}
FAMILIES = {"a pair told apart, before": "before", "now": "now", "0 outside": "now of a pair"}
Rows = Sequence[dict[str, str]]


def read(name: str) -> list[dict[str, str]]:
    with (HERE / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def ranges(rows: Rows, keys: Sequence[str], columns: dict[str, str]) -> str:
    """A row for equal values of the keys, with the range of each column in percent."""
    groups: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    cells = []
    for group, cases in groups.items():
        spans = []
        for column in columns.values():
            values = [float(case[column]) for case in cases if case[column]]
            spans.append(f"{min(values):.1f} to {max(values):.1f}" if values else "")
        cells.append([*group, *spans])
    return markdown_table([*keys, *columns], cells)


def main() -> None:
    rates = read("rates.csv")
    several = [row for row in rates if "1" not in row["runs"].split("+")]
    single = [row for row in rates if "1" in row["runs"].split("+")]
    print(ranges(several, ("runs", "ratio", "residuals"), PAIRS), end="\n\n")
    for ratio, keys in (("1", ("runs", "lenders")), ("10", ("runs",))):
        print(ranges([row for row in single if row["ratio"] == ratio], keys, SINGLE), end="\n\n")
    print(ranges(read("families.csv"), ("runs", "systems"), FAMILIES))


if __name__ == "__main__":
    main()
