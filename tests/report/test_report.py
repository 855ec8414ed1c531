"""The command on folders written by hand, with answers by hand."""

import csv
import math
import os
import re
from itertools import count
from pathlib import Path

import pytest
from json_files import changed_json, read_json
from written import HARD, SOFT, systems_of, write_run

from captioning.metrics.contrasts import BORROWED, IMAGES_ONLY, Difference
from captioning.metrics.table import SCORES as SCORES_OF_ALL
from captioning.report.__main__ import main
from captioning.report.comparison import correct
from captioning.report.pairs import difference_tables, interval_content, not_told_apart, write_pairs
from captioning.report.summary import print_summary
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


def test_tables_by_hand(elsewhere, report):
    absent = {"absent objects": 20.0}
    for seed, bleu in ((1, 18.0), (2, 20.0), (3, 25.0)):
        write_run(elsewhere / "runs/st", "spatial_transformer", seed, bleu, scores=absent)
    own = {"absent objects": 12.5, "bad_endings": 12.5, "length": 9.25, "WordF1": 51.25}
    own |= {"SPICE": 12.34, "CIDEr": None}
    write_run(elsewhere / "runs/sat", "sat_soft", 1, 17.25, scores=own)
    write_run(elsewhere / "runs/search", "sat_soft", 7, None)
    printed = report("cider=25")
    # nothing is wider than a terminal of 80 columns
    assert all(len(line) <= 80 for line in printed.partition("\n\n")[0].splitlines())
    assert "\n| spatial transformer | 3 | " in printed
    table = re.sub(" +", " ", Path("report/table.md").read_text())
    # the mean of 18, 20, 25 is 21; the deviations -3, -1, 4 have the squares 26, over two: 13
    cells = "| **21.0 ± 3.6** " * 4 + "| **19.0 ± 0.0** | **40.0 ± 0.0** | 45.0 ± 0.0 | |"
    for line in (
        "| METEOR | ROUGE-L | CIDEr (x 100) | SPICE |",
        f"| spatial transformer | 3 (seeds 1, 2, 3) {cells}",
        f"| {SOFT} | 1 (seed 1) " + "| 17.2 " * 4 + "| **19.0** | **40.0** | | 12.3 |",
        f"| *{SOFT}, [SAT] Table 1* | | *67* | *44.8* | *29.9* | *19.5* | *18.93* | | | |",
        f"{SOFT}, [SAT] Table 1: VGG-19; one model, chosen by BLEU on validation",
        "| spatial transformer " + "| **22.0 ± 3.6** " * 4,
        "| bad_endings (%) | length (words) | different captions |\n|--|--|--|--|\n",
        f"| {SOFT} | **12.5** |\n\nOther scores:\n\n| system | WordF1 |",
        "| spatial transformer | 1,234,567 | 102 ± 1 | 120 | a machine |",
    ):
        assert line in re.sub("-+(?=[|])", "--", table)
    assert "Tell, hard" not in table
    left_out = "left out: runs/search/flickr8k-sat_soft-seed7: it was not tested (test=false)"
    assert left_out in printed
    with Path("report/table.csv").open() as file:
        rows = {row["system"]: row for row in csv.DictReader(file)}
    transformer, soft = rows["spatial transformer"], rows[SOFT]
    assert float(transformer["BLEU-4"]) == 21
    assert float(transformer["BLEU-4 deviation"]) == pytest.approx(13**0.5)
    assert (soft["BLEU-4 deviation"], soft["model"], soft["WordF1"]) == ("", "sat_soft", "51.25")
    assert float(soft["seconds to CIDEr 25"]) == 120
    files = {path.name for path in Path("report").iterdir()}
    assert files == {"curves.pdf", "curves.png", "index.html", "table.csv", "table.md"}


def test_published_rows_of_other_images_are_named(elsewhere, report):
    place = write_run(elsewhere / "runs", "sat_soft")
    assert "No published rows" not in report()
    with changed_json(place / "scores.json") as record:
        record["provenance"] |= {"images_tested": 2, "images_of_split": 2}
    hint = "they are of 1,000 test images, and this split has 2; published=flickr8k shows them."
    assert f"No published rows: {hint}\n" in report()
    assert "No published rows" not in report("published=flickr8k")


def test_what_a_run_lacks_is_no_part_of_a_mean(elsewhere, report):
    for seed, meteor in ((1, 20.0), (2, None), (3, 24.0)):
        scores = {"METEOR": meteor, "nll": 2.0, "perplexity": 7.389}
        write_run(elsewhere / "runs", "sat_soft", seed, scores=scores)
    said = report()
    assert "| 22.0 ± 2.8 |" in said
    assert "left out: METEOR of runs/flickr8k-sat_soft-seed2: it has none;" in said
    assert "| system | nll (nats per word) | perplexity (per word) |\n" in said
    assert f"| {SOFT} | 2.00 ± 0.00 | 7.39 ± 0.00 |" in said
    assert "one vocabulary" in said


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


def test_runs_that_share_something_are_pairs(elsewhere, report, refused):
    """What the runs of a seed share moves both systems: their difference hardly varies."""
    for seed, luck in ((1, 0.0), (2, 30.0), (3, -20.0)):
        for model, more in (("one", 0.0), ("two", 3.0)):
            ciders = [40 + luck + more, 50 + luck + more + seed / 10, 60 + luck]
            write_run(elsewhere / "runs", model, seed, ciders=ciders)

    rows = []
    for arguments in ((), ("paired=seed",)):
        printed = report("metrics=[BLEU]", *arguments)
        assert ("runs in pairs" in printed) == bool(arguments)
        with Path("report/pairs.csv").open() as file:
            (row,) = [row for row in csv.DictReader(file) if row["score"] == "CIDEr"]
        rows.append(float(row["high"]) - float(row["low"]))
    assert rows[1] < rows[0] / 5
    assert "paired=sead" in refused(main, "paired=sead")


@pytest.mark.parametrize("value", [math.inf, math.nan, 1.7e308, -1.7e308, 3.4e38, 0.0, 5e-324])
def test_whatever_a_run_computes_is_read_again(value, elsewhere, report):
    """Also by what prints it at the end of the run."""
    folder = write_run(elsewhere / "runs", "one")
    write_run(elsewhere / "runs", "two")
    scores = dict.fromkeys([*SCORES_OF_ALL, "of my own"], value)
    write_scores(
        folder, scores, read_json(folder / "scores.json")["provenance"], groups={"a": scores}
    )
    print_summary(folder)
    printed = report()
    assert "\n| one | 1 | " in printed
    assert "left out: runs" not in printed


def test_the_best_comes_first_and_last_what_was_tested_in_part(elsewhere, report):
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
    first = report("published=null").split("BLEU without")[0]
    names = [
        SOFT,
        HARD,
        "LSTM, image beside every word",
        "Show and Tell [test images: 320 of 1,000]",
    ]
    assert re.findall(r"^\| (.*?) \| 1 \(seed 1\)", first, re.M) == names
    assert "| **50.0** |\n" in first
    assert "| 90.0 |\n" in first
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


def test_systems_are_told_apart_by_as_few_settings_as_it_takes(elsewhere):
    numbers = count()

    def add(model, seed=1, **settings):
        return write_run(elsewhere / str(next(numbers)), model, seed, **settings)

    for lr, seed, callbacks in ((0.1, 1, {}), (0.2, 1, {"x": 1}), (0.2, 2, {})):
        add("rate", seed, optimizer={"lr": lr}, callbacks=callbacks)
    for averaging in (None, {"decay": 0.9}):
        add("averaged", callbacks={"weight_averaging": averaging})
    for name, lr in (("fine", 0.1), ("fine", 0.2), ("coarse", 0.1)):  # of many those that tell most
        backbone = {"node": name, "size": name, "depth": name}
        add("many", name=name, backbone=backbone, optimizer={"lr": lr})
    for end in "12":  # labels that are cut stay apart
        add("long", aaa={"x": "y" * 150 + end}, mmm={"lr": end}, zzz={"x": end + "y" * 150})
    # moved folders make no other system, nor do those derived from them
    for seed, data in enumerate(("/a/f8k", "b"), start=1):
        reader = {"root": f"{data}/images", "lists": [f"{data}/train.txt"]}
        add("moved", seed, data={"root": data, "reader": reader}, runs=str(seed))
    for seed, kind in enumerate(("gpu", "auto"), start=1):  # nor does the machine
        sizes = {"eval_batch_size": 32 * seed}
        add("machines", seed, trainer={"accelerator": kind}, data=sizes)
    for seed, kind in enumerate(("32-true", "bf16-mixed", "32-true"), start=1):
        add("rounding", seed, trainer={"precision": "auto"}, provenance={"precision": kind})
    found = {
        system.full_label: [run.seed for run in system.runs] for system in systems_of(elsewhere)
    }
    long = next(label for label in found if label.startswith("long"))
    assert "..." in long
    assert found == {
        "rate (optimizer.lr=0.1)": [1],
        "rate (optimizer.lr=0.2)": [1, 2],
        "averaged": [1],  # null is the same as absent
        "averaged (callbacks.weight_averaging.decay=0.9)": [1],
        "many (name=fine, optimizer.lr=0.1, ...)": [1],
        "many (name=fine, optimizer.lr=0.2, ...)": [1],
        "many (name=coarse, optimizer.lr=0.1, ...)": [1],
        long: [1],
        f"{long} #2": [1],
        "moved": [1, 2],
        "machines": [1, 2],
        "rounding (trainer.precision=32-true)": [1, 3],
        "rounding (trainer.precision=bf16-mixed)": [2],
    }


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
    monkeypatch.setenv("COLUMNS", "40")
    printed, _, table = report("runs=.").partition("# flickr8k")
    for text in (printed, table):
        assert text.count("All systems here have backbone=resnet50") == 1
        assert text.count("backbone") == 1
    assert "al=zero)" in printed


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


def test_of_two_runs_of_one_system_and_seed_the_newest_counts(elsewhere, report):
    older, newer = (
        write_run(elsewhere / "runs" / name, "sat_soft", bleu=bleu)
        for name, bleu in (("z", 11), ("a", 22))
    )
    for place, seconds in ((older, 1e9), (newer, 2e9)):
        os.utime(place / "scores.json", (seconds, seconds))
    write_run(elsewhere / "runs" / "z", "sat_soft", seed=2, bleu=24)
    table = report()
    assert f"| {SOFT} | 2 (seeds 1, 2) | 23.0 ± 1.4" in table
    folders = "runs/z/flickr8k-sat_soft-seed1: runs/a/flickr8k-sat_soft-seed1"
    assert f"left out: {folders} is of the same system and seed, and newer" in table


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
