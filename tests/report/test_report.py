"""The command on folders written by hand, with answers by hand."""

import csv
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from captioning.config.command import start
from captioning.report.__main__ import main
from captioning.report.published import published_rows
from captioning.report.runs import find_runs
from captioning.report.systems import group

pytestmark = pytest.mark.usefixtures("elsewhere")
REFERENCES = {
    1: ["a man rides a horse", "a man on a horse"],
    2: ["two dogs play in the snow", "dogs playing"],
    3: ["a red bus on a street", "the bus is red"],
}
GOOD = {1: "a man rides a horse", 2: "two dogs play in the snow", 3: "a red bus on a street"}
BAD = {1: "a man on a bus", 2: "a dog", 3: "a street"}


def write_run(
    folder: Path,
    model: str,
    seed: int,
    bleu: float | None,
    captions: dict[int, str] = GOOD,
    name: str = "flickr8k",
    digest: str = "d1",
    scores: dict[str, float | None] | None = None,
    **settings: Any,
) -> Path:
    """A run as an earlier version has left it, without `choices`; `bleu` None: not tested."""
    place = folder / f"{name}-{model}-seed{seed}"
    place.mkdir(parents=True)
    config = {"model": {"_target_": model}, "name": name, "seed": seed, "folder": str(place), "test": bleu is not None}
    (place / "config.yaml").write_text(yaml.safe_dump(config | settings))
    (place / "metrics.csv").write_text(
        "epoch,seconds,step,train/nll,val/CIDEr,val/nll\n0,,9,3.0,,\n0,60.0,9,,20.0,2.5\n1,120.0,19,,30.0,2.0\n"
    )
    if bleu is None:
        return place
    lines = [
        {"image_id": i, "caption": text, "references": REFERENCES[i], "scores": {}} for i, text in captions.items()
    ]
    (place / "captions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    names = [f"BLEU-{n}" for n in range(1, 5)]
    bleus = dict.fromkeys(names, bleu) | {f"{n} (no brevity penalty)": bleu + 1 for n in names}
    provenance = {
        "data_digest": digest,
        "parameters": {"trainable": 1234567},
        "seconds_to_best": 100.0 + seed,
        "device": "a machine",
    }
    (place / "scores.json").write_text(
        json.dumps(
            {
                "scores": bleus | {"METEOR": 19.0, "ROUGE-L": 40.0, "CIDEr": 45.0} | (scores or {}),
                "provenance": provenance,
            }
        )
    )
    return place


def flat(text: str) -> str:
    """Tables with one space beside each cell, however wide the columns are."""
    return re.sub(" +", " ", text)


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    def run(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["captioning.report", *arguments])
        start(main)
        printed = capsys.readouterr()
        assert printed.err == ""
        return printed.out

    return run


def test_tables_by_hand(elsewhere: Path, report: Callable[..., str]) -> None:
    for seed, bleu in ((1, 18.0), (2, 20.0), (3, 25.0)):
        write_run(elsewhere / "runs" / "st", "spatial_transformer", seed, bleu)
    write_run(elsewhere / "runs" / "sat", "sat_soft", 1, 17.25, scores={"bad_endings": 12.5, "length": 9.25})
    write_run(elsewhere / "runs" / "search", "sat_soft", 7, None)
    printed = flat(report("cider=25"))
    table = flat((elsewhere / "report" / "table.md").read_text())
    # the mean of 18, 20, 25 is 21; the deviations -3, -1, 4 have the squares 26, over two: 13
    cells = "| **21.0 ± 3.6** " * 4 + "| **19.0 ± 0.0** | **40.0 ± 0.0** | **45.0 ± 0.0** |"
    assert f"| spatial transformer | 3 (seeds 1, 2, 3) {cells}" in table
    cells = "| 17.2 " * 4 + "| **19.0** | **40.0** | **45.0** |"
    assert f"| Show, Attend and Tell, soft | 1 (seed 1) {cells}" in table
    assert "| spatial transformer | **22.0 ± 3.6** | **22.0 ± 3.6** | **22.0 ± 3.6** | **22.0 ± 3.6** |" in table
    assert "| Show, Attend and Tell, soft | 12.5 | 9.2 |" in table
    assert "| spatial transformer | 1,234,567 | 102 ± 1 | 120 | a machine |" in table
    assert "| *Show, Attend and Tell, soft, [SAT] Table 1* | | *67* | *44.8* | *29.9* | *19.5* | *18.93* | | |" in table
    assert "Show, Attend and Tell, soft, [SAT] Table 1: VGG-19; BLEU without brevity penalty" in table
    assert "Tell, hard" not in table
    assert "| METEOR | ROUGE-L | CIDEr (x 100) |" in table
    assert "| bad_endings (%) | length (words) |\n" in table
    assert table in printed
    assert "left out: runs/search/flickr8k-sat_soft-seed7: it was not tested (test=false)" in printed
    with (elsewhere / "report" / "table.csv").open() as file:
        rows = {row["system"]: row for row in csv.DictReader(file)}
    assert float(rows["spatial transformer"]["BLEU-4"]) == 21.0
    assert float(rows["spatial transformer"]["BLEU-4 deviation"]) == pytest.approx(13**0.5)
    assert rows["Show, Attend and Tell, soft"]["BLEU-4 deviation"] == ""
    assert rows["Show, Attend and Tell, soft"]["model"] == "sat_soft"
    assert float(rows["Show, Attend and Tell, soft"]["seconds to CIDEr 25"]) == 120.0


def test_the_best_comes_first_and_last_what_was_tested_in_part(elsewhere: Path, report: Callable[..., str]) -> None:
    """Whose scores, of other photographs, are never the best; the first lines say what was compared, and who leads."""
    for model, cider in (("sat_hard", 30.0), ("lstm_every", None), ("sat_soft", 50.0), ("show_tell", 90.0)):
        place = write_run(elsewhere / "runs", model, 1, 20.0, scores={"CIDEr": cider})
        if model == "show_tell":
            record = json.loads((place / "scores.json").read_text())
            record["provenance"] |= {"images_tested": 320, "images_of_split": 1000}
            (place / "scores.json").write_text(json.dumps(record))
    report("published=null")
    first = flat((elsewhere / "report" / "table.md").read_text()).split("BLEU without")[0]
    assert re.findall(r"^\| (.*?) \| 1 \(seed 1\)", first, re.M) == [
        "Show, Attend and Tell, soft",
        "Show, Attend and Tell, hard",
        "LSTM, image beside every word",
        "Show and Tell [test images: 320 of 1,000]",
    ]
    assert "| **50.0** |\n" in first
    assert "| 90.0 |\n" in first
    assert "4 systems, 4 runs; written on " in first
    assert "Best CIDEr (x 100): Show, Attend and Tell, soft, 50.0." in first


def test_moved_folders_make_no_other_system(elsewhere: Path, report: Callable[..., str]) -> None:
    """Nor do those derived from them."""
    for seed, (data, cache) in enumerate([("/a/f8k", "cache"), ("b", "/c/cache"), ("b/", "../cache")], start=1):
        reader = {"root": f"{data}/images", "lists": [f"{data}/train.txt"], "size": f"{cache}/shapes"}
        settings: dict[str, Any] = {"data": {"root": data, "reader": reader}, "cache": cache, "runs": str(seed)}
        write_run(elsewhere / "runs", "sat_soft", seed, 20.0, **settings)
    other = {"data": {"root": "b", "reader": {"root": "b/other"}}, "cache": "cache"}
    write_run(elsewhere / "runs", "sat_soft", 4, 20.0, **other)
    table = report()
    assert "data.reader.root=data.root/images, " in table
    assert ") | 3 (seeds 1, 2, 3) | **20.0" in table


def test_pictures_and_no_published_rows(elsewhere: Path, report: Callable[..., str]) -> None:
    write_run(elsewhere / "runs", "sat_soft", 4, 17.0)
    assert "[SAT]" not in report("published=null")
    assert (elsewhere / "report" / "curves.pdf").read_bytes().startswith(b"%PDF")
    assert (elsewhere / "report" / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in (elsewhere / "report").iterdir()) == sorted(
        ["curves.pdf", "curves.png", "index.html", "table.csv", "table.md"]
    )


def test_a_users_own_score_is_in_all_tables(elsewhere: Path, report: Callable[..., str]) -> None:
    write_run(elsewhere / "runs", "sat_soft", 1, 17.0, scores={"WordF1": 51.25})
    write_run(elsewhere / "runs", "sat_hard", 1, 18.0)
    table = flat(report("published=null"))
    assert "Other scores:\n\n| system | WordF1 |" in table
    assert "| Show, Attend and Tell, soft | 51.25 |" in table
    with (elsewhere / "report" / "table.csv").open() as file:
        assert [row["WordF1"] for row in csv.DictReader(file)] == ["", "51.25"]
    assert ">51.25</td>" in (elsewhere / "report" / "index.html").read_text()


def test_the_bootstrap_between_systems(elsewhere: Path, report: Callable[..., str]) -> None:
    write_run(elsewhere / "runs", "good", 1, 90.0)
    write_run(elsewhere / "runs", "bad", 1, 9.0, BAD)
    table = flat(report("bootstrap.metrics=[CIDEr]", "bootstrap.samples=200"))
    assert "\n| systems | CIDEr (x 100) |\n" in table
    (line,) = [line for line in table.splitlines() if line.startswith("| bad - good | -")]
    low, high = line.split("[")[1].split("]")[0].split(", ")
    assert float(low) < float(high) < 0
    assert (elsewhere / "report" / "intervals.png").read_bytes().startswith(b"\x89PNG")


def test_systems_are_told_apart_by_their_settings(elsewhere: Path) -> None:
    write_run(elsewhere / "a", "sat_soft", 1, 17.0, optimizer={"lr": 0.1})
    write_run(elsewhere / "b", "sat_soft", 1, 18.0, optimizer={"lr": 0.2}, callbacks={"x": 1})
    write_run(elsewhere / "c", "sat_soft", 2, 19.0, optimizer={"lr": 0.2})
    write_run(elsewhere / "d", "sat_hard", 1, 20.0, callbacks={"weight_averaging": None})
    write_run(elsewhere / "e", "sat_hard", 1, 21.0, callbacks={"weight_averaging": {"decay": 0.9}})
    systems = group(find_runs(elsewhere)[0])
    found = {system.label: [run.seed for run in system.runs] for system in systems}
    assert found == {
        "Show, Attend and Tell, soft (optimizer.lr=0.1)": [1],
        "Show, Attend and Tell, soft (optimizer.lr=0.2)": [1, 2],
        "Show, Attend and Tell, hard (callbacks.weight_averaging=None)": [1],
        "Show, Attend and Tell, hard (callbacks.weight_averaging.decay=0.9)": [1],
    }


def test_of_many_settings_a_label_has_those_that_tell_most(elsewhere: Path) -> None:
    for name, lr in (("fine", 0.1), ("fine", 0.2), ("coarse", 0.1)):
        settings = {"backbone": {"node": name, "size": name, "depth": name}, "optimizer": {"lr": lr}}
        write_run(elsewhere / f"{name}{lr}", "sat_soft", 1, 17.0, name=name, **settings)
    assert {system.label for system in group(find_runs(elsewhere)[0])} == {
        f"Show, Attend and Tell, soft (name={name}, optimizer.lr={lr}, ...)"
        for name, lr in (("fine", 0.1), ("fine", 0.2), ("coarse", 0.1))
    }


def test_the_name_that_most_runs_have_is_not_said(elsewhere: Path) -> None:
    for model, name in (("sat_soft", "zoo"), ("sat_hard", "zoo"), ("sat_soft", "self_critical"), ("sat_hard", "other")):
        settings = {"optimizer": {"lr": len(name)}, "objective": {"a": name, "b": name}} if name != "other" else {}
        write_run(elsewhere / name, model, 1, 17.0, name=name, **settings)
    write_run(
        elsewhere / "second", "sat_soft", 2, 17.0, name="zoo", optimizer={"lr": 3}, objective={"a": "zoo", "b": "zoo"}
    )
    assert {system.label for system in group(find_runs(elsewhere)[0])} == {
        "Show, Attend and Tell, soft",
        "Show, Attend and Tell, soft (name=self_critical, ...)",
        "Show, Attend and Tell, hard",
        "Show, Attend and Tell, hard (name=other, ...)",
    }


def test_labels_that_are_cut_stay_apart(elsewhere: Path) -> None:
    for lr in (0.1, 0.2):
        settings = {"aaa": {"x": "y" * 150 + str(lr)}, "mmm": {"lr": lr}, "zzz": {"x": str(lr) + "y" * 150}}
        write_run(elsewhere / str(lr), "sat_soft", 1, 17.0, **settings)
    first, second = (system.label for system in group(find_runs(elsewhere)[0]))
    assert "..." in first
    assert second == f"{first} #2"


def test_other_data_have_another_table(elsewhere: Path, report: Callable[..., str]) -> None:
    write_run(elsewhere / "runs", "sat_soft", 1, 17.0)
    write_run(elsewhere / "runs", "sat_hard", 1, 18.0, name="coco", digest="d2")
    table = flat(report())
    assert table.count("Test split") == 2
    assert (
        table.index("# coco")
        < table.index("| Show, Attend and Tell, hard |")
        < table.index("# flickr8k")
        < table.index("| Show, Attend and Tell, soft |")
    )


def test_published_rows_are_those_of_data_and_system(elsewhere: Path, report: Callable[..., str]) -> None:
    """Whatever the experiment and its folder are called."""
    write_run(elsewhere / "runs", "moved", 1, 17.0, name="sat_coco", choices={"model": "sat_hard", "data": "coco"})
    table = flat(report())
    assert "# sat_coco\n" in table
    assert "| Show, Attend and Tell, hard | 1 (seed 1) | 17.0 |" in table
    assert "| *Show, Attend and Tell, hard, [SAT] Table 1* | | *71.8* | *50.4* | *35.7* | *25* | *23.04* | | |" in table
    assert re.findall(r"^\| \*(.*?),", table, re.M) == ["Show"] * 2
    assert report("published=flickr8k").count("[SAT] Table 1*") == 2
    named = [row.system for row in published_rows({"coco"}, {"spatial_transformer_small", "sat_softer"})]
    assert named == ["spatial transformer"]
    assert not published_rows({"coco"}, {"show_tell"}) + published_rows({"shapes"}, {"sat_soft"})


def test_spice_stands_where_it_was_scored(elsewhere: Path, report: Callable[..., str]) -> None:
    write_run(elsewhere / "runs", "good", 1, 17.0)
    assert "SPICE" not in report()
    write_run(elsewhere / "runs", "better", 1, 17.0, scores={"SPICE": 12.34, "CIDEr": None})
    table = flat(report())
    assert "| METEOR | ROUGE-L | CIDEr (x 100) | SPICE |" in table
    assert "| **19.0** | **40.0** | | 12.3 |" in table
    assert "| **19.0** | **40.0** | 45.0 | |" in table


def test_runs_are_compared_on_the_same_images_in_any_order(elsewhere: Path, report: Callable[..., str]) -> None:
    write_run(elsewhere / "runs", "a", 1, 90.0, BAD)
    write_run(elsewhere / "runs", "b", 1, 9.0, dict(reversed(BAD.items())))
    write_run(elsewhere / "runs", "c", 1, 9.0, {1: GOOD[1], 2: GOOD[2]})
    write_run(elsewhere / "runs", "d", 1, 9.0, {})
    table = flat(report("bootstrap.metrics=[CIDEr]", "bootstrap.samples=20"))
    assert "| a - b | +0.0 [+0.0, +0.0] 1.000 |" in table
    assert table.count("] 1.000 |") == 1
    for pair in ("a - c", "b - c"):
        assert f"left out: {pair}: they were tested on different images or references" in table
    assert "left out: d: " in table


def test_a_run_of_other_content_is_left_out_and_named(elsewhere: Path, report: Callable[..., str]) -> None:
    write_run(elsewhere / "runs", "good", 1, 17.0)
    for number, (name, content) in enumerate(
        [
            ("config.yaml", "model: &a [*a]"),
            ("config.yaml", "model: !!python/object/apply:os.mkdir [harmed]"),
            ("config.yaml", "model: !!bool x"),
            ("config.yaml", "[" * 10_000),
            ("config.yaml", "model: {}\nname: ${oc.env:HOME}\nseed: 1"),
            ("config.yaml", "#" * 2**19),
            ("scores.json", "{"),
            ("scores.json", "null"),
            ("scores.json", '{"scores": {"CIDEr": NaN}, "provenance": {"data_digest": "d1"}}'),
            ("scores.json", '{"scores": {"CIDEr": 45.0}, "provenance": {"data_digest": "d1\\u001b[31m"}}'),
            ("scores.json", '{"scores": {"CIDEr": 45.0}, "provenance": {}}'),
            ("metrics.csv", ""),
            ("metrics.csv", "epoch,val/nll\n0,low\n"),
            ("metrics.csv", f"epoch,val/nll\n0,{'1' * 200_000}\n"),
        ]
    ):
        (write_run(elsewhere / "runs" / str(number), "bad", 1, 17.0) / name).write_text(content)
    for number, name in enumerate(("config.yaml", "scores.json", "metrics.csv")):
        folder = write_run(elsewhere / "runs" / f"pipe{number}", "bad", 1, 17.0)
        (folder / name).unlink()
        os.mkfifo(folder / name)
    printed = report()
    left_out = [line for line in printed.splitlines() if line.startswith("left out: ")]
    assert [line.split("/")[1] for line in left_out] == sorted([*map(str, range(14)), "pipe0", "pipe1", "pipe2"])
    assert all(len(line) < 400 for line in left_out)
    assert "| good " in printed
    assert "| bad " not in printed
    assert "\x1b" not in printed
    assert not (elsewhere / "harmed").exists()


def test_labels_and_curves_are_drawn_whatever_they_are(elsewhere: Path, report: Callable[..., str]) -> None:
    """A setting: mathematics to matplotlib, scripts that its font has not, a thousand characters. A loss: endless."""
    for number, strange in enumerate(["$x^$", "\u6f22\u5b57", "x" * 1000, "a | b\nc", "\ud800", "${oc.env:PATH}"]):
        place = write_run(elsewhere / "runs" / str(number), "good", 1, 17.0, setting=strange)
        (place / "metrics.csv").write_text("epoch,seconds,val/nll\n0,nan,1e308\n1,1e308,-1e308\n2,-1e308,inf\n3,1,2\n")
    rows = [line for line in flat(report()).splitlines() if line.startswith("| good (setting=")]
    assert len(rows) == 3 * 6
    assert "| good (setting=$x^$) | 1 (seed 1) | **17.0** |" in rows[0]
    assert rows[3].startswith(r"| good (setting=a \| b\nc) | 1 (seed 1) |")
    assert rows[5].startswith("| good (setting=${oc.env:PATH}) | 1 (seed 1) |")  # nothing of a run is resolved


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        (["runs=absent"], "runs=absent"),
        (["runs=empty"], "runs=empty"),
        (["runs=twice"], "the same seed 1"),
        (["runs=broken"], "broken/flickr8k-sat_soft-seed1/scores.json"),
        (["runs=single", "output=empty/file/report"], "empty/file/report"),
        ([f"runs={'a' * 1000}"], "File name too long"),
        *(
            ([f"{setting}={value}"], setting)
            for setting, values in {
                "cider": ("abc", "nan", "-1", "true"),
                "bootstrap": ("null",),
                "bootstrap.metrics": ("null", "CIDEr", "[BLUE]"),
                "bootstrap.samples": ("0", "1.5", "null", "10000000000"),
                "bootstrap.seed": ("-1",),
                "output": ("null",),
                "published": ("mscoco",),
            }.items()
            for value in values
        ),
        (["runs=single", "bootstrap.metrics=[nowhere.F1]"], "nowhere.F1"),
    ],
)
def test_refused(elsewhere: Path, refused: Callable[..., str], arguments: list[str], key: str) -> None:
    (elsewhere / "empty").mkdir()
    (elsewhere / "empty" / "file").touch()
    write_run(elsewhere / "single", "sat_soft", 1, 17.0)
    for copy in ("one", "two"):
        write_run(elsewhere / "twice" / copy, "sat_soft", 1, 17.0)
    (write_run(elsewhere / "broken", "sat_soft", 1, 17.0) / "scores.json").write_text("{")
    assert key in refused(main, *arguments)
    assert not (elsewhere / "report").exists()
