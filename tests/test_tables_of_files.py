"""A table of a page that stands under a link to a CSV file has its numbers.

The numbers of a row are those of one row of the file, one column of several rows that belong
together, or these rows' means, deviations, or smallest and largest values. Rows in italics, and
paragraphs that say "not kept", are of other sources.
"""

import csv
import re
import statistics
from collections import defaultdict
from itertools import chain, combinations, pairwise
from pathlib import Path

import pytest

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
LINK = re.compile(r"\]\(([\w/.]+\.csv)\)")
DECIMAL = re.compile(r"\d[\d,]*\.\d+(?![\de])")  # no rate such as 3.5e-4
TOGETHER = 18  # rows of a file, at most


def tables():
    """Each table under a link, as its page, files and rows."""
    for page in sorted(EXPERIMENTS.glob("*/README.md")):
        blocks = page.read_text().split("\n\n")
        for above, table in pairwise(blocks):
            files = [page.parent / link for link in LINK.findall(above)]
            files = [file for file in files if DECIMAL.search(file.read_text())]
            if table.startswith("|") and files and "**not kept**" not in above:
                rows = [line for line in table.splitlines()[2:] if not line.startswith("| *")]
                yield pytest.param(files, rows, id=f"{page.parent.name}-{files[0].stem}")


def number(text):
    try:
        return float(text)
    except ValueError:
        return None


def candidates(rows):
    """Numbers that may stand in one row of a table, of rows of a file that belong together."""
    columns = [[number(row[name]) for row in rows] for name in rows[0]]
    known = [[value for value in column if value is not None] for column in columns]
    if len(rows) <= 3:
        yield [*chain.from_iterable(known)]
    yield from known
    summary = []
    for values in filter(None, known):
        deviations = [statistics.stdev(values)] if len(values) > 1 else []
        summary += [statistics.fmean(values), *deviations, min(values), max(values)]
    yield summary


def read_candidates(file):
    """All of a file, the rows of which belong together if they agree in up to four columns."""
    with file.open(newline="") as text:
        rows = list(csv.DictReader(text))
    found = [*map(candidates, ([row] for row in rows))]
    keys = [
        name
        for name in rows[0]
        if not any(DECIMAL.fullmatch(row[name]) for row in rows)
        and 3 * len({row[name] for row in rows}) <= 2 * len(rows)
    ]
    for size in range(5):
        for chosen in combinations(keys, size):
            groups = defaultdict(list)
            for row in rows:
                groups[tuple(row[name] for name in chosen)].append(row)
            found += [candidates(each) for each in groups.values() if 2 <= len(each) <= TOGETHER]
    return [values for each in found for values in each]


def rounds_to(value, text):
    """Also as a percentage of 1; a number between two neighbours rounds to either."""
    step = 10.0 ** -len(text.partition(".")[2])
    value = abs(value)
    shown = (value, 100 * value) if value <= 1 else (value,)
    return any(abs(each - float(text)) <= step / 2 + 1e-9 for each in shown)


@pytest.mark.parametrize("files, rows", [*tables()])
def test_numbers_are_those_of_the_file(files, rows):
    known = [values for file in files for values in read_candidates(file)]
    unknown = []
    for row in rows:
        numbers = [text.replace(",", "") for text in DECIMAL.findall(row)]
        if not any(
            all(any(rounds_to(value, text) for value in values) for text in numbers)
            for values in known
        ):
            unknown.append(row)
    assert unknown == []


def test_tables_are_found():
    assert len([*tables()]) >= 5
