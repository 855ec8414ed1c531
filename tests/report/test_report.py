"""The command on folders written by hand, with answers by hand."""

import csv
import io
import math
import os
import re
from contextlib import redirect_stdout
from itertools import count
from pathlib import Path

import pytest
from json_files import changed_json, read_json
from support import Terminal, called
from written import HARD, SOFT, section_of, systems_of, tables_of, write_run

from captioning.metrics.contrasts import BORROWED, IMAGES_ONLY, Difference
from captioning.metrics.table import SCORES as SCORES_OF_ALL
from captioning.report.__main__ import main
from captioning.report.comparison import (
    correct,
    difference_tables,
    interval_content,
    not_told_apart,
    write_pairs,
)
from captioning.report.runs import find_runs
from captioning.report.summary import print_summary
from captioning.report.systems import newest
from captioning.runs.evaluation.captions import write_scores

SCORES = "CIDEr", "METEOR"
pytestmark = pytest.mark.usefixtures("elsewhere")


@pytest.fixture
def report(printed):
    """Runs the command; gives what it prints and its tables, with one space beside each cell,
    however wide the columns are.
    """

    def run(*arguments):
        return re.sub(" +", " ", printed(main, *arguments) + Path("report/table.md").read_text())

    return run


@pytest.fixture
def compared():
    """Of four systems the last one was not compared. By CIDEr, Holm's factors are 2, 3 and 1, the
    last of what does not vary; METEOR is another family.
    """
    cider = {(0, 1): (4, 6, 0.03), (0, 2): (4, 6, 0.016), (1, 2): (None, None, None)}
    found = {
        pair: {"CIDEr": Difference(50, 45, 5, *ends), "METEOR": Difference(20, 21, -1, -2, 0, 0.02)}
        for pair, ends in cider.items()
    }
    correct(found)
    return found


def test_holm_is_over_the_pairs_of_a_table_by_one_score(compared):
    cider, meteor = ([rows[name].adjusted for rows in compared.values()] for name in SCORES)
    assert cider == pytest.approx([0.06, 0.048, 1])
    assert meteor == pytest.approx([0.06] * 3)  # the second, 2 x 0.02, is not below the first
    assert not_told_apart(compared, "CIDEr", 4) == ["2", "1, 3", "2", ""]
    assert not_told_apart(compared, "METEOR", 4) == ["2-3", "1, 3", "1-2", ""]
    assert not_told_apart({(0, 1): compared[0, 2]}, "CIDEr", 2) == ["none", "none"]


def test_pairs_that_differ_after_correction(elsewhere, compared):
    for model in ("spatial_transformer", "sat_soft", "sat_hard", "show_tell"):
        write_run(elsewhere / "runs", model, 1, ciders=[40.0] * 3)
    systems = systems_of(elsewhere)
    table = difference_tables(systems, compared, "CIDEr", SCORES)
    assert table.startswith("\nNot told apart: the difference in CIDEr has a p of 0.05 or more")
    assert "by each score alone: 1 by CIDEr, 0 by METEOR, of 3. Without it, chance alone" in table
    cells = re.findall(r"\| (\S*\+5\.0.*?) +\|", table)
    assert cells == ["+5.0 [+4.0, +6.0] 0.030", "**+5.0 [+4.0, +6.0] 0.016**", "+5.0"]
    write_pairs(elsewhere / "pairs.csv", systems, compared)
    with (elsewhere / "pairs.csv").open() as file:
        adjusted = [row["adjusted"] for row in csv.DictReader(file)]
    assert list(map(float, adjusted[::2])) == pytest.approx([0.06, 0.048, 1])


def test_one_sentence_says_what_intervals_contain():
    own, borrowed, bare = (
        Difference(5, 4, 1, 0, 2, 0.05, training) for training in ("", BORROWED, IMAGES_ONLY)
    )
    for pair, end in {
        (own, own): "of images and of training runs",
        (own, borrowed): f"; a system of one run has the {BORROWED}",
        (bare, bare): f"95 % intervals, {IMAGES_ONLY}",
        (own, bare): f"; some, {IMAGES_ONLY}",
    }.items():
        said = interval_content({(0, place): {"CIDEr": d} for place, d in enumerate(pair)})
        assert said.endswith(end)


class Tabled:
    """What the command prints and writes of two systems, one of three seeds, a run that was not
    tested, and one that was tested again.
    """

    def __init__(self, home):
        absent = {"absent objects": 20.0}
        for seed, bleu in ((1, 18.0), (2, 20.0), (3, 25.0)):
            write_run(home / "runs/st", "spatial_transformer", seed, bleu, scores=absent)
        own = {"absent objects": 12.5, "bad_endings": 12.5, "length": 9.25, "WordF1": 51.25}
        own |= {"SPICE": 12.34, "CIDEr": None}
        write_run(home / "runs/sat", "sat_soft", 1, 17.25, scores=own)
        write_run(home / "runs/search", "sat_soft", 7, None)
        older = write_run(home / "runs/older", "sat_soft", 1, 11)
        os.utime(older / "scores.json", (1e9, 1e9))
        given = ["cider=25", f"cache={home / 'cache'}"]
        with redirect_stdout(io.StringIO()) as said:
            called(main, f"runs={home / 'runs'}", f"output={home / 'report'}", *given)
        self.folder, self.printed = home / "report", said.getvalue()
        self.text = (self.folder / "table.md").read_text()
        self.tables = tables_of(self.text)

    def cells(self, column, system):
        """The cells of all tables in a column; empty ones too."""
        return [
            rows[system][column]
            for rows in self.tables.values()
            if system in rows and column in rows[system]
        ]


@pytest.fixture(scope="module")
def tabled(once):
    return once("tables", Tabled)


TRANSFORMER = "spatial transformer"
QUOTED = f"*{SOFT}, [SAT] Table 1*"


@pytest.mark.parametrize(
    "column, transformer, soft",
    [
        ("runs", ["3 (seeds 1, 2, 3)"], ["1 (seed 1)"]),
        # the mean of 18, 20, 25 is 21; the deviations -3, -1, 4 have the squares 26, over two: 13
        *(
            (f"BLEU-{n}", ["**21.0 ± 3.6**", "**22.0 ± 3.6**"], ["17.2", "18.2"])
            for n in range(1, 5)
        ),
        ("METEOR", ["**19.0 ± 0.0**"], ["**19.0**"]),
        ("ROUGE-L", ["**40.0 ± 0.0**"], ["**40.0**"]),
        ("CIDEr (x 100)", ["45.0 ± 0.0"], [""]),  # of one system alone, none is the best
        ("SPICE", [""], ["12.3"]),
        ("bad_endings (%)", [""], ["12.5"]),
        ("length (words)", [""], ["9.2"]),
        ("different captions", ["3 ± 0"], ["3"]),
        ("absent objects (%)", ["20.0 ± 0.0"], ["**12.5**"]),  # fewer are better
        ("WordF1", [], ["51.25"]),
        ("parameters", ["1,234,567"], ["1,234,567"]),
        ("seconds to best", ["102 ± 1"], ["101"]),
        ("seconds to CIDEr 25", ["120"], ["120"]),
        ("device", ["a machine"], ["a machine"]),
    ],
)
def test_a_column_by_hand(tabled, column, transformer, soft):
    assert tabled.cells(column, TRANSFORMER) == transformer
    assert tabled.cells(column, SOFT) == soft


def test_a_published_row_by_hand(tabled):
    quoted = [*(f"BLEU-{n}" for n in range(1, 5)), "METEOR"]
    expected = ["*67*", "*44.8*", "*29.9*", "*19.5*", "*18.93*"]
    assert [tabled.cells(column, QUOTED) for column in quoted] == [[cell] for cell in expected]
    ours = ("runs", "ROUGE-L", "CIDEr (x 100)", "SPICE")
    assert [tabled.cells(column, QUOTED) for column in ours] == [[""]] * 4
    assert f"{SOFT}, [SAT] Table 1: VGG-19; one model, chosen by BLEU on validation" in tabled.text
    assert "Tell, hard" not in tabled.text


def test_tables_stand_below_what_they_tell(tabled):
    first, plain, *others = tabled.tables
    assert [column for column in first if "BLEU" in column] == [f"BLEU-{n}" for n in range(1, 5)]
    assert tuple(plain) == ("system", *(f"BLEU-{n}" for n in range(1, 5)))
    headings = re.findall(r"^(.*):\n\n\|", tabled.text, re.M)
    assert headings == [
        *("BLEU without brevity penalty", "The captions", "Hallucination", "Other scores"),
        "Cost of training",
    ]
    columns = [names[1] for names in others]
    assert columns == ["bad_endings (%)", "absent objects (%)", "WordF1", "parameters"]


def test_a_file_or_a_pipe_has_room_for_all_scores(tabled):
    table, _, others = tabled.printed.partition("\n\n")
    (row,) = [rows[TRANSFORMER] for rows in tables_of(table + "\n").values()]
    assert row["runs"] == "3"
    assert [*row][-6:] == ["BLEU-4", "METEOR", "ROUGE-L", "CIDEr", "SPICE", "WordF1"]
    assert "table.md also has" not in tabled.printed
    left_out = re.findall("^left out: .*?(\\w+)/flickr8k-sat_soft-seed(.*)$", others, re.M)
    untested, (older, reason) = left_out
    assert untested == ("search", "7: it was not tested (test=false)")
    assert older == "older"
    assert reason.endswith("is of the same system and seed, and newer")


def test_the_file_of_the_table_has_all_digits(tabled):
    with (tabled.folder / "table.csv").open() as file:
        rows = {row["system"]: row for row in csv.DictReader(file)}
    transformer, soft = rows[TRANSFORMER], rows[SOFT]
    assert float(transformer["BLEU-4"]) == 21
    assert float(transformer["BLEU-4 deviation"]) == pytest.approx(13**0.5)
    assert (soft["BLEU-4 deviation"], soft["model"], soft["WordF1"]) == ("", "sat_soft", "51.25")
    assert float(soft["seconds to CIDEr 25"]) == 120


def test_the_files_of_a_report(tabled):
    files = {path.name for path in tabled.folder.iterdir()}
    assert files == {"curves.pdf", "curves.png", "index.html", "table.csv", "table.md"}


def test_published_rows_of_other_images_are_named(elsewhere):
    place = write_run(elsewhere / "runs", "sat_soft")
    assert "No published rows" not in section_of(elsewhere / "runs").text
    with changed_json(place / "scores.json") as record:
        record["provenance"] |= {"images_tested": 2, "images_of_split": 2}
    hint = "they are of 1,000 test images, and this split has 2; published=flickr8k shows them."
    assert f"No published rows: {hint}\n" in section_of(elsewhere / "runs").text
    chosen = section_of(elsewhere / "runs", published="flickr8k").text
    assert "No published rows" not in chosen
    assert QUOTED in chosen


def test_what_a_run_lacks_is_no_part_of_a_mean(elsewhere):
    for seed, meteor in ((1, 20.0), (2, None), (3, 24.0)):
        scores = {"METEOR": meteor, "nll": 2.0, "perplexity": 7.389}
        write_run(elsewhere / "runs", "sat_soft", seed, scores=scores)
    section = section_of(elsewhere / "runs")
    tables = tables_of(section.text)
    assert next(iter(tables.values()))[SOFT]["METEOR"] in ("22.0 ± 2.8", "**22.0 ± 2.8**")
    (lacks,) = section.left_out
    assert lacks.startswith(f"METEOR of {elsewhere / 'runs/flickr8k-sat_soft-seed2'}: it has none;")
    likelihood = tables["system", "nll (nats per word)", "perplexity (per word)"]
    assert [*likelihood[SOFT].values()] == ["2.00 ± 0.00", "7.39 ± 0.00"]
    assert "one vocabulary" in section.text


def test_a_captioner_that_has_collapsed_is_told_and_a_dry_run_left_out(elsewhere, report):
    write_run(elsewhere / "runs", "one", said=["a man"] * 3)
    write_run(elsewhere / "runs", "two")
    write_run(elsewhere / "runs", "three", debug=True)
    chance = {"CIDEr (images shuffled)": 3.25}
    write_run(elsewhere / "runs", "four", scores=chance)
    printed = report()
    warning = "Warning, runs/flickr8k-one-seed1: 3 of 3 captions are the same: a man"
    assert printed.count(warning) == 2  # in the terminal and in the table
    assert warning in Path("report/index.html").read_text()
    assert "left out: runs/flickr8k-three-seed1: it was a dry run (debug=true)" in printed
    chance_level = printed.partition("Chance level")[2]
    assert "| system | CIDEr (x 100) |" in chance_level
    assert "| four | 3.2 |" in printed


def test_runs_that_share_something_are_pairs(elsewhere, refused):
    """What the runs of a seed share moves both systems: their difference hardly varies."""
    for seed, luck in ((1, 0.0), (2, 30.0), (3, -20.0)):
        for model, more in (("one", 0.0), ("two", 3.0)):
            ciders = [40 + luck + more, 50 + luck + more + seed / 10, 60 + luck]
            write_run(elsewhere / "runs", model, seed, ciders=ciders)

    widths = []
    for paired in (None, "seed"):
        section = section_of(elsewhere / "runs", metrics=["BLEU"], paired=paired)
        assert ("runs in pairs" in section.text) == bool(paired)
        (by_score,) = section.compared.values()
        widths.append(by_score["CIDEr"].high - by_score["CIDEr"].low)
    assert widths[1] < widths[0] / 5
    assert "paired=sead" in refused(main, "paired=sead")


VALUES = [math.inf, math.nan, 1.7e308, -1.7e308, 3.4e38, 0.0, 5e-324]


def test_whatever_a_run_computes_is_read_again(elsewhere, report):
    """Also by what prints it at the end of the run."""
    for number, value in enumerate(VALUES):
        folder = write_run(elsewhere / "runs", f"one{number}")
        scores = dict.fromkeys([*SCORES_OF_ALL, "of my own"], value)
        write_scores(
            folder, scores, read_json(folder / "scores.json")["provenance"], groups={"a": scores}
        )
        print_summary(folder)
    write_run(elsewhere / "runs", "two")
    printed = report()
    for number in range(len(VALUES)):
        assert f"\n| one{number} | 1 | " in printed
    assert "left out: runs" not in printed


def test_the_best_comes_first_and_last_what_was_tested_in_part(elsewhere):
    """Whose scores, of other photographs, are never the best; the first lines say what was
    compared, and who leads.
    """
    for model, cider in (
        ("sat_hard", 30.0),
        ("lstm_every", None),
        ("sat_soft", 50.0),
        ("show_tell", 90.0),
    ):
        part = {"images_tested": 320, "images_of_split": 1000} if model == "show_tell" else {}
        write_run(elsewhere / "runs", model, scores={"CIDEr": cider}, provenance=part)
    first = section_of(elsewhere / "runs", published=None).text.split("BLEU without")[0]
    names = [
        SOFT,
        HARD,
        "LSTM, image beside every word",
        "Show and Tell [test images: 320 of 1,000]",
    ]
    ((columns, rows),) = tables_of(first).items()
    assert [*rows] == names
    assert columns[-1] == "CIDEr (x 100)"
    assert [row["CIDEr (x 100)"] for row in rows.values()] == ["**50.0**", "30.0", "", "90.0"]
    assert "4 systems, 4 runs; written on " in first
    assert f"Best CIDEr (x 100): {SOFT}, 50.0." in first
    assert "[SAT]" not in first


def test_runs_are_compared_on_the_same_images_in_any_order(elsewhere, report):
    by_image = {1: "a man on a bus", 2: "a dog", 3: "a street"}
    write_run(elsewhere / "runs", "good", 1, 90.0)
    write_run(elsewhere / "runs", "a", 1, 90.0, by_image)
    write_run(elsewhere / "runs", "b", 1, 9.0, dict(reversed(by_image.items())))
    write_run(elsewhere / "runs", "c", 1, 9.0, [by_image[1], by_image[2]])
    write_run(elsewhere / "runs", "d", 1, 9.0, [])
    table = report("metrics=[CIDEr]")
    assert "\n| systems | CIDEr (x 100) |\n" in table
    assert f"| a - b ({IMAGES_ONLY}) | +0.0 |" in table
    (line,) = [line for line in table.splitlines() if line.startswith("| a - good (")]
    low, high = line.split("[")[1].split("]")[0].split(", ")
    assert float(low) < 0 < float(high)
    assert all(f"left out: {one} - c: " in table for one in ("a", "b"))
    assert "left out: d: " in table
    assert Path("report/intervals.png").read_bytes().startswith(b"\x89PNG")


RATES = [0.1, 0.2]
FINE, COARSE = (
    {"name": name, "backbone": {"node": name, "size": name, "depth": name}}
    for name in ("fine", "coarse")
)
MOVED = [
    {"root": root, "reader": {"root": f"{root}/images", "lists": [f"{root}/train.txt"]}}
    for root in ("/a/f8k", "b")
]


@pytest.mark.parametrize(
    "runs, expected",
    [
        pytest.param(
            [
                (1, {"optimizer": {"lr": 0.1}, "callbacks": {}}),
                (1, {"optimizer": {"lr": 0.2}, "callbacks": {"x": 1}}),
                (2, {"optimizer": {"lr": 0.2}, "callbacks": {}}),
            ],
            {" (optimizer.lr=0.1)": [1], " (optimizer.lr=0.2)": [1, 2]},
            id="by a rate, but by no other callback",
        ),
        pytest.param(
            [
                (1, {"callbacks": {"weight_averaging": None}}),
                (1, {"callbacks": {"weight_averaging": {"decay": 0.9}}}),
            ],
            {"": [1], " (callbacks.weight_averaging.decay=0.9)": [1]},
            id="null is the same as absent",
        ),
        pytest.param(
            [
                *((1, FINE | {"optimizer": {"lr": lr}}) for lr in RATES),
                (1, COARSE | {"optimizer": {"lr": 0.1}}),
            ],
            {
                **{f" (name=fine, optimizer.lr={lr}, ...)": [1] for lr in RATES},
                " (name=coarse, optimizer.lr=0.1, ...)": [1],
            },
            id="of many those that tell most",
        ),
        pytest.param(
            [(seed, {"data": data, "runs": str(seed)}) for seed, data in enumerate(MOVED, 1)],
            {"": [1, 2]},
            id="not by folders, nor by those derived from them",
        ),
        pytest.param(
            [
                (1, {"trainer": {"accelerator": "gpu"}, "data": {"eval_batch_size": 32}}),
                (2, {"trainer": {"accelerator": "auto"}, "data": {"eval_batch_size": 64}}),
            ],
            {"": [1, 2]},
            id="not by the machine",
        ),
        pytest.param(
            [
                (seed, {"trainer": {"precision": "auto"}, "provenance": {"precision": kind}})
                for seed, kind in enumerate(("32-true", "bf16-mixed", "32-true"), 1)
            ],
            {" (trainer.precision=32-true)": [1, 3], " (trainer.precision=bf16-mixed)": [2]},
            id="by the precision that auto was",
        ),
    ],
)
def test_systems_are_told_apart_by_as_few_settings_as_it_takes(elsewhere, runs, expected):
    write_run(elsewhere / "runs", "another")
    for number, (seed, settings) in enumerate(runs):
        write_run(elsewhere / "runs" / str(number), "it", seed, **settings)
    found = {
        system.full_label: [run.seed for run in system.runs]
        for system in systems_of(elsewhere / "runs")
    }
    assert found.pop("another") == [1]
    assert found == {f"it{label}": seeds for label, seeds in expected.items()}


def test_labels_that_are_cut_stay_apart(elsewhere):
    for end in "12":
        settings = {
            "aaa": {"x": "y" * 150 + end},
            "mmm": {"lr": end},
            "zzz": {"x": end + "y" * 150},
        }
        write_run(elsewhere / end, "long", **settings)
    first, second = (system.full_label for system in systems_of(elsewhere))
    assert first.startswith("long (")
    assert "..." in first
    assert second == f"{first} #2"


def test_seeds_that_go_on_from_seeds_of_another_system_are_one(elsewhere):
    begun = (
        "smooth-sat-seed1",
        "smooth-sat-seed2",
        "sharp-sat-seed3",
        "sat-seed4-score=dot",
        "sat-seed5-score=dot",
    )
    for seed, began in enumerate(begun, start=1):
        write_run(elsewhere, "sat", seed, init_from=f"runs/{began}/checkpoints/best.ckpt")
    assert sorted([run.seed for run in system.runs] for system in systems_of(elsewhere)) == [
        [1, 2],
        [3],
        [4, 5],
    ]


def test_runs_that_lack_a_later_filter_are_of_the_same_system(elsewhere):
    search = {"_target_": "captioning.decoding.beam_search", "_partial_": True}
    given = {"_target_": "captioning.decoding.Filters", "min_length": 0}
    kinds = [given, given | {"required": []}, given | {"required": ["dog"]}]
    for seed, filters in enumerate(kinds, start=1):
        write_run(elsewhere, "sat", seed, decoding=search | {"filters": filters})
    hostile = given | {"_target_": "captioning.decoding.nothing"}
    write_run(elsewhere, "sat", 4, decoding=search | {"filters": hostile})
    found = [[run.seed for run in system.runs] for system in systems_of(elsewhere)]
    assert sorted(found) == [[1, 2], [3], [4]]


def test_choices_name_a_system_and_hide_the_settings_that_follow(elsewhere):
    """Settings that two runs of the same choices differ in are told too, and those of no part."""
    numbers = count()

    def add(lr, seed=1, weight=1, **choices):
        objective = {"_target_": choices.get("objective", "CrossEntropy"), "weight": weight}
        named = {"model": "sat_soft", "data": "shapes", "experiment": None} | choices
        settings = {"objective": objective, "optimizer": {"lr": lr}, "choices": named}
        write_run(elsewhere / str(next(numbers)), "sat_soft", seed, **settings)

    def labels():
        return {system.full_label.removeprefix(SOFT) for system in systems_of(elsewhere)}

    other, faster = {"objective": "reinforce"}, {"optimizer.lr": 0.2}
    for seed in (1, 2):
        add(0.1, seed)
        add(0.2, seed, **faster)
        add(0.1, seed, 2, **other)
    assert labels() == {"", " (optimizer.lr=0.2)", " (objective=reinforce)"}
    add(0.1, 1, 4, **other)
    add(0.3)  # without a sweep, it has no name
    assert labels() == {
        *(f" (optimizer.lr={rate}, objective.weight=1)" for rate in (0.1, 0.2, 0.3)),
        *(f" (objective=reinforce, optimizer.lr=0.1, objective.weight={w})" for w in (2, 4)),
    }


def test_what_all_systems_chose_is_said_once(elsewhere, report, monkeypatch):
    """Above the table, in the terminal and in the file; labels have the rest, their ends too."""
    backbone = {"backbone": "resnet50"}
    for model, further in {"sat_soft": {}, "show_tell": {"initial": "zero"}}.items():
        choices = {"model": model, **backbone, **further}
        write_run(elsewhere, model, choices=choices)
    printed, _, table = report("runs=.").partition("# flickr8k")
    for text in (printed, table):
        assert text.count("All systems here have backbone=resnet50") == 1
        assert text.count("backbone") == 1
    assert "Show and Tell (initial=zero)" in printed  # a file is not narrow
    monkeypatch.setenv("COLUMNS", "40")
    with Terminal(40, monkeypatch, "stdout") as terminal:
        called(main, "runs=.")
    assert "al=zero)" in terminal.text
    assert "Show and Tell (initial=zero)" not in terminal.text


def test_a_terminal_has_no_room_for_all_scores_and_says_so(elsewhere, monkeypatch):
    """What was asked for stays."""
    write_run(elsewhere, "sat_soft")
    monkeypatch.setenv("COLUMNS", "60")
    shown, left_out = {}, {}
    for asked in ("[]", "[BLEU]"):
        with Terminal(60, monkeypatch, "stdout") as terminal:
            called(main, "runs=.", f"metrics={asked}")
        lines = terminal.text.splitlines()
        (shown[asked],) = (line for line in lines if line.startswith("| system"))
        (left_out[asked],) = (line for line in lines if line.startswith("table.md also has"))
    assert ("BLEU-4" in shown["[]"], "BLEU-4" in left_out["[]"]) == (False, True)
    assert ("BLEU-4" in shown["[BLEU]"], "BLEU-4" in left_out["[BLEU]"]) == (True, False)


def test_other_data_have_another_table_and_their_published_rows(elsewhere, report):
    """Whatever the experiment and its folder are called."""
    write_run(elsewhere / "runs", "sat_soft")
    choices = {"model": "sat_hard", "data": "coco"}
    write_run(elsewhere / "runs", "moved", name="sat_coco", digest="d2", choices=choices)
    # one's own data, which may be called so too
    own = {"name": "flickr30k", "digest": "d3", "provenance": {"images_of_split": 4}}
    write_run(elsewhere / "runs", "sat_soft", **own)
    table = report()
    assert table.count("Test split") == 3
    places = [
        table.index(text) for text in ("# flickr8k\n", "# sat_coco\n", f"| {HARD} | 1 (seed 1) |")
    ]
    assert places == sorted(places)
    assert f"| *{HARD}, [SAT] Table 1* | | *71.8* | *50.4* | *35.7* | *25* | *23.04* | | |" in table
    assert table.count("[SAT] Table 1* |") == 2


DAMAGED = [
    ("config.yaml", "model: !!python/object/apply:os.mkdir [harmed]"),
    ("config.yaml", "model: {}\nformat: 2\nname: ${oc.env:HOME}\nseed: 1"),
    ("config.yaml", "model: {}\nformat: 2\nname: a\nseed: 1\nchoices: 3"),
    ("config.yaml", "model: {}\nformat: 2\nname: a\nseed: true\nchoices: {model: a, data: b}"),
    ("config.yaml", "#" * 2**19),
    ("scores.json", "{"),
    ("scores.json", '{"a":' * 5000),
    ("scores.json", "null"),
    ("scores.json", '{"scores": {"CIDEr": NaN}, "provenance": {"data_digest": "d1"}}'),
    (
        "scores.json",
        f'{{"scores": {{"CIDEr": 1{400 * "0"}}}, "provenance": {{"data_digest": "d1"}}}}',
    ),
    ("scores.json", '{"scores": {"CIDEr": 45.0}, "provenance": {"data_digest": "d1\\u001b[31m"}}'),
    ("scores.json", '{"scores": {"\\ud800": 45.0}, "provenance": {"data_digest": "d1"}}'),
    ("scores.json", '{"scores": {"CIDEr": 45.0}, "provenance": {}}'),
    ("metrics.csv", ""),
    ("metrics.csv", "epoch,val/nll\n0,low\n"),
    ("metrics.csv", f"epoch,val/nll\n0,{'1' * 200_000}\n"),
]


def test_a_run_of_other_content_is_left_out_and_named(elsewhere, report):
    write_run(elsewhere / "runs", "good")
    for number, (name, content) in enumerate(DAMAGED, start=10):
        (write_run(elsewhere / "runs" / str(number), "bad") / name).write_text(content)
    for number, name in enumerate(("config.yaml", "scores.json", "metrics.csv")):
        folder = write_run(elsewhere / "runs" / f"pipe{number}", "bad")
        (folder / name).unlink()
        os.mkfifo(folder / name)
    printed = report()
    left_out = [line for line in printed.splitlines() if line.startswith("left out: ")]
    numbers = [str(number) for number in range(10, 10 + len(DAMAGED))]
    assert [line.split("/")[1] for line in left_out] == [*numbers, "pipe0", "pipe1", "pipe2"]
    assert all(line.isprintable() and len(line) < 400 for line in left_out)
    assert "| good " in printed
    assert "| bad " not in printed
    assert not (elsewhere / "harmed").exists()


def test_labels_and_curves_are_drawn_whatever_they_are(elsewhere, report):
    """A setting: mathematics to matplotlib, scripts that its font has not, a thousand characters. A
    loss: endless.
    """
    for number, strange in enumerate(
        ["$x^$", "\u6f22\u5b57", "x" * 1000, "a | b\nc", "\ud800", "${oc.env:PATH}"]
    ):
        place = write_run(elsewhere / "runs" / str(number), "good", setting=strange)
        (place / "metrics.csv").write_text(
            "epoch,seconds,val/nll\n0,nan,1e308\n1,1e308,-1e308\n2,-1e308,inf\n3,1,2\n"
        )
    report("published=flickr30k")
    table = re.sub(" +", " ", Path("report/table.md").read_text())
    assert table.count("[SAT] Table 1*") == 4
    rows = [line for line in table.splitlines() if line.startswith("| good (setting=")]
    assert len(rows) == 4 * 6
    assert "| good (setting=$x^$) | 1 (seed 1) | **17.0** |" in rows[0]
    assert rows[3].startswith(r"| good (setting=a \| b\nc) | 1 (seed 1) |")
    assert rows[5].startswith(
        "| good (setting=${oc.env:PATH}) | 1 (seed 1) |"
    )  # nothing of a run is resolved


def test_of_two_runs_of_one_system_and_seed_the_newest_counts(elsewhere):
    older, newer = (
        write_run(elsewhere / "runs" / name, "sat_soft", bleu=bleu)
        for name, bleu in (("z", 11), ("a", 22))
    )
    for place, seconds in ((older, 1e9), (newer, 2e9)):
        os.utime(place / "scores.json", (seconds, seconds))
    later = write_run(elsewhere / "runs" / "z", "sat_soft", seed=2, bleu=24)
    kept, left_out = newest(find_runs(elsewhere / "runs")[0])
    assert {run.folder for run in kept} == {newer, later}
    assert left_out == [f"{older}: {newer} is of the same system and seed, and newer"]
    (system,) = section_of(elsewhere / "runs").systems
    assert system.score("BLEU-1").mean == 23


REFUSED = {
    "runs=empty": "runs=empty",
    "runs=broken": "broken/flickr8k-sat_soft-seed1/scores.json",
    "runs=single output=empty/file/report": "empty/file/report",
    "metrics=[BLUE]": "metrics",
    "photographs=null": "Did you mean images?",
    "runs=single metrics=[nowhere.F1]": "nowhere.F1",
}


def test_refused(elsewhere, refused):
    (elsewhere / "empty").mkdir()
    (elsewhere / "empty" / "file").touch()
    for folder in ("single", "broken"):
        place = write_run(elsewhere / folder, "sat_soft")
    (place / "scores.json").write_text("{}")
    assert "pydantic" not in refused(main, "runs=broken")  # the address of a library's page
    (place / "scores.json").write_text("{")
    for arguments, key in REFUSED.items():
        assert key in refused(main, *arguments.split())
    assert not (elsewhere / "report").exists()
