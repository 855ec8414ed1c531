"""Print the ranges of `rates.csv` as Markdown: `python experiments/error_rates/table.py`."""

import csv
from pathlib import Path

from captioning.files import markdown_table

COLUMNS = ("before outside", "outside", "before strict", "strict")
HEADER = ("runs", "ratio", "deviations", "0 outside, before", "0 outside", "p, before", "p")


def main() -> None:
    groups: dict[tuple[str, str, str], list[dict[str, str]]] = {}
    with Path(__file__).with_name("rates.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            groups.setdefault((row["runs"], row["ratio"], row["residuals"]), []).append(row)
    rows = []
    for key, cases in groups.items():
        ranges = []
        for column in COLUMNS:
            values = sorted(float(case[column]) for case in cases)
            ranges.append(f"{values[0]:.1f} to {values[-1]:.1f}")
        rows.append([*key, *ranges])
    print(markdown_table(HEADER, rows))


if __name__ == "__main__":
    main()
