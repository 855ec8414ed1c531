"""Numbers of a record's page are those of the runs and tables beside it.

A row of a table has the scores of a run, or means and deviations of the seeds of one system; all of
its scores belong to the same.
"""

import csv
import re
import statistics
from collections import defaultdict
from pathlib import Path

import pytest
from json_files import read_json

from experiments.chair.metric import mentions

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
PAGES = sorted(EXPERIMENTS.glob("*/README.md"))
OTHERS = [  # with scores of records
    *EXPERIMENTS.glob("*/table.md"),
    EXPERIMENTS.parent / "README.md",
    *EXPERIMENTS.parent.glob("captioning/**/README.md"),
]
SCORES = {"BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "METEOR", "ROUGE-L", "CIDEr"}
CELL = re.compile(r"(\d+(?:\.(\d+))?)(?:\s±\s(\d+\.\d+))?")  # also with spaces that do not break
DIFFERENCE = re.compile(r"([+-]\d+\.\d) \[([+-]\d+\.\d), ([+-]\d+\.\d)\],? (<?0\.\d+)")
BARE = " (no brevity penalty)"
# rows of which no run is kept: validation, published scores, other images than a run's test
NOT_KEPT = {
    "captioner": 1,
    "clips_flickr8k": 2,
    "fine_tuning_flickr8k": 16,
    "flickr8k": 20,
    "languages_flickr8k": 7,
    "self_critical_flickr8k": 2,
    "self_critical_shapes": 5,
    "table1_coco": 3,
}
COLUMNS = [  # of tables whose rows stand in CSV files of the records
    ("zoo_shapes", ("false captions, %", "absent objects, %", "absent colours, %")),
    ("robustness", ("CIDEr", "repeated, %", "first word, nats")),
    ("architecture_or_features", ("repeated words, %", "unseen pairs, %", "first word, nats")),
    ("architecture_or_features", ("1", "2", "3", "4")),  # epochs
]


def rows(page):
    """Cells by their heading, of every row of every table."""
    table = []
    for line in (*page.read_text().splitlines(), ""):
        if line.startswith("|"):
            table.append([cell.strip() for cell in line.strip("|").split("|")])
            continue
        for row in table[2:]:
            yield dict(zip((head.removesuffix(" (x 100)") for head in table[0]), row, strict=True))
        table = []


def kept_scores():
    runs = defaultdict(list)
    for file in EXPERIMENTS.glob("**/scores.json"):
        scores = read_json(file)["scores"]
        system = re.sub(r"-seed\d+", "", str(file.parent))
        runs[system].append(scores)
        runs[system + BARE].append(
            {name.removesuffix(BARE): scores[name] for name in scores if name.endswith(BARE)}
        )
    for file in EXPERIMENTS.glob("*/german.csv"):  # runs whose folders are not kept
        with file.open(newline="") as text:
            for row in csv.DictReader(text):
                scores = {name: float(row[name]) for name in SCORES}
                runs[row["tokens"], row["system"]].append(scores)
    kept = []
    for seeds in runs.values():
        kept += [{name: (seed[name], None) for name in SCORES & seed.keys()} for seed in seeds]
        names = SCORES.intersection(*seeds)
        if len(seeds) > 1:
            values = {name: [seed[name] for seed in seeds] for name in names}
            kept.append(
                {
                    name: (statistics.fmean(each), statistics.stdev(each))
                    for name, each in values.items()
                }
            )
    return kept


def same(cell, pair):
    value = CELL.fullmatch(cell)
    assert value, cell
    digits = len(value[2] or "")
    mean, deviation = (each if each is None else f"{each:.{digits}f}" for each in pair)
    return value[1] == mean and (value[3] is None or value[3] == deviation)


KEPT = kept_scores()


@pytest.mark.parametrize("page", [*PAGES, *OTHERS], ids=lambda page: page.parent.name)
def test_scores_are_those_of_runs(page):
    unknown = []
    for row in rows(page):
        cells = {name: row[name].strip("*") for name in SCORES & row.keys() if row[name]}
        if len(cells) < 2 or any("[" in cell for cell in cells.values()):
            continue
        if any(re.fullmatch(r"\*[^*]+\*", row[name]) for name in cells):  # published
            continue
        if not any(
            all(name in kept and same(cell, kept[name]) for name, cell in cells.items())
            for kept in KEPT
        ):
            unknown.append(row)
    number = NOT_KEPT.get(page.parent.name, 0) if page in PAGES else 0
    assert len(unknown) == number, unknown


@pytest.mark.parametrize("name, heads", COLUMNS)
def test_rows_are_those_of_files_beside_the_pages(name, heads):
    known = []
    for file in EXPERIMENTS.glob("*/*.csv"):
        with file.open(newline="") as text:
            known += [
                [float(value) for value in row if re.fullmatch(r"\d+(\.\d+)?", value)]
                for row in csv.reader(text)
            ]
    found = [
        [row[head].strip("*") for head in heads]
        for row in rows(EXPERIMENTS / name / "README.md")
        if all(CELL.fullmatch(row.get(head, "").strip("*")) for head in heads)
        and "±" not in "".join(row.values())
    ]
    assert len(found) > 5
    for cells in found:
        assert any(
            all(any(same(cell, (value, None)) for value in values) for cell in cells)
            for values in known
        ), cells


def test_diversity_is_the_mean_over_seeds():
    columns = {
        "CIDEr, mean of 5": "CIDEr (mean of n)",
        "CIDEr, best of 5": "CIDEr (best of n)",
        "self-CIDEr": "self-CIDEr",
        "mBLEU-4": "mBLEU-4",
        "distinct-2, %": "distinct-2 (per image)",
    }
    seeds = defaultdict(list)
    with (EXPERIMENTS / "diversity" / "scores.csv").open(newline="") as text:
        for row in csv.DictReader(text):
            scores = [float(row[name] or 0) for name in columns.values()]
            seeds[row["system"], row["objective"], row["captions"]].append(scores)
    known = [
        [(statistics.fmean(each), statistics.stdev(each)) for each in zip(*runs, strict=True)]
        for runs in seeds.values()
        if len(runs) > 1
    ]
    found = [row for row in rows(EXPERIMENTS / "diversity" / "README.md") if "objective" in row]
    found = [row for row in found if row["objective"]]
    assert len(found) == 9
    for row in found:
        cells = [row[head] for head in columns]
        assert any(all(map(same, cells, pairs)) for pairs in known), row


def test_ratios_are_those_of_measurements():
    folder = EXPERIMENTS / "throughput"
    known = set()
    for file in folder.glob("*.json"):
        for each in read_json(file).get("measurements", ()):
            if each["ratio"]:
                known.add((f"{each['ours']['spread']:.0%}", f"{each['ratio']:.2f}x"))
    found = [(row["spread"], row["ratio"]) for row in rows(folder / "README.md") if "ratio" in row]
    assert len(found) > 20
    assert set(found) <= known


def test_steps_on_a_gpu_are_those_of_measurements():
    folder = EXPERIMENTS / "gpu"
    measured = read_json(folder / "h100.json")["stages"]["fast"]["rows"]
    known = {
        (f"{1000 * each['seconds']:.1f} ({each['spread']:.0%})", f"{each['captions/s']:,.0f}")
        for each in measured
        if "captions/s" in each
    }
    found = {
        (row["ms (spread)"].replace(" %", "%"), row["captions/s"])
        for row in rows(folder / "README.md")
        if "ms (spread)" in row
    }
    assert len(found) > 10
    assert found <= known


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_numbers_of_the_answer_stand_in_the_record(page):
    """Those with decimals in the first paragraph are in what follows."""
    if not list(rows(page)):
        return
    _, answer, record = page.read_text().split("\n\n", 2)
    words = re.sub(r"`[^`]*`|\]\([^)]*\)", "", answer)
    numbers = re.findall(r"(?<![\w.-])\d[\d,]*\.\d+", words)
    assert [number for number in numbers if number not in record] == []


@pytest.mark.parametrize("name", ["ablations_flickr8k", "zoo_flickr8k"])
def test_differences_are_those_of_the_tables(name):
    """Each with its interval and p is in a generated table, or is with the systems exchanged."""

    def differences(page):
        found = DIFFERENCE.findall(page.read_text())
        return {(float(mean), float(low), float(high), p) for mean, low, high, p in found}

    known = set().union(*(differences(table) for table in EXPERIMENTS.glob("*/table.md")))
    known |= {(-mean, -high, -low, p) for mean, low, high, p in known}
    found = differences(EXPERIMENTS / name / "README.md")
    assert len(found) > 5
    assert found <= known


@pytest.mark.parametrize("name", ["attention", "claims", "second_set"])
def test_contrasts_are_those_of_the_table(name):
    """With the settings that differ, where the page names them too."""
    known = {
        (row["CIDEr [95 %]"], f"{float(row['p']):.3f}"): row
        for row in rows(EXPERIMENTS / name / "table.md")
    }
    found = set()
    for row in rows(EXPERIMENTS / name / "README.md"):
        for cell in filter(DIFFERENCE.fullmatch, row.values()):
            difference, p = cell.rsplit(", ", 1)
            same = [key for key in known if key[0] == difference]
            (key,) = [key for key in same if p == key[1] or (p, key[1]) == ("<0.001", "0.000")]
            found.add(key)
            assert row.get("differ in", known[key]["differ in"]) == known[key]["differ in"]
    assert found == known.keys()


def test_claims_on_the_second_set_are_those_of_its_page():
    page = EXPERIMENTS / "second_set" / "README.md"
    known = {row["CIDEr [95 %], p"] for row in rows(page) if "CIDEr [95 %], p" in row}
    cells = [
        row["second set"] for row in rows(EXPERIMENTS / "claims" / "README.md") if "tried as" in row
    ]
    found = [cell.partition(":")[0] for cell in cells if cell]
    assert len(found) == 4
    assert known.issuperset(found)


def test_people_who_are_not_there_are_counted_in_the_file():
    with (EXPERIMENTS / "captioner" / "coco.csv").open(newline="") as text:
        captions = list(csv.DictReader(text))
    absent = [row for row in captions if row["in references"] == "no"]
    invented = [row for row in absent if row["in caption"] == "yes"]
    assert all(("person" in mentions(row["caption"])) == (row in invented) for row in absent)
    count = f"{len(invented)} of {len(absent)}"
    for page in ("README.md", "captioning/pretrained/README.md"):
        assert count in (EXPERIMENTS.parent / page).read_text()
