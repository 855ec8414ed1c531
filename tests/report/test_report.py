"""The command on folders written by hand, with answers by hand."""

import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image

from captioning.config.command import start
from captioning.report.__main__ import main
from captioning.report.systems import group
from captioning.report.tested_runs import find_runs

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
    **settings: Any,
) -> Path:
    """A run as `captioning.run` leaves it; `bleu` None: not tested."""
    place = folder / f"{name}-{model}-seed{seed}"
    (place / "attention").mkdir(parents=True)
    config = {"model": {"_target_": model}, "name": name, "seed": seed, "folder": str(place), "test": bleu is not None}
    (place / "config.yaml").write_text(yaml.safe_dump(config | settings))
    (place / "metrics.csv").write_text(
        "epoch,seconds,step,train/nll,val/CIDEr,val/nll\n0,,9,3.0,,\n0,60.0,9,,20.0,2.5\n1,120.0,19,,30.0,2.0\n"
    )
    Image.new("RGB", (40 + seed, 30), "red").save(place / "attention" / "1.png")
    if bleu is None:
        return place
    lines = [{"image_id": i, "caption": captions[i], "references": REFERENCES[i], "scores": {}} for i in REFERENCES]
    (place / "captions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    names = [f"BLEU-{n}" for n in range(1, 5)]
    scores = dict.fromkeys(names, bleu) | {f"{n} (no brevity penalty)": bleu + 1 for n in names}
    provenance = {
        "data_digest": digest,
        "parameters": {"trainable": 1234567},
        "seconds_to_best": 100.0 + seed,
        "device": "a machine",
    }
    (place / "scores.json").write_text(
        json.dumps({"scores": scores | {"METEOR": 19.0, "ROUGE-L": 40.0, "CIDEr": 45.0}, "provenance": provenance})
    )
    return place


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
    write_run(elsewhere / "runs" / "sat", "sat_soft", 1, 17.25)
    write_run(elsewhere / "runs" / "search", "sat_soft", 7, None)
    printed = report("cider=25")
    table = (elsewhere / "report" / "table.md").read_text()
    # the mean of 18, 20, 25 is 21; the deviations -3, -1, 4 have the squares 26, over two: 13
    cells = "| 21.0 ± 3.6 | 21.0 ± 3.6 | 21.0 ± 3.6 | 21.0 ± 3.6 | 19.0 ± 0.0 | 40.0 ± 0.0 | 45.0 ± 0.0 |"
    assert f"| spatial_transformer | 1 2 3 {cells}" in table
    assert "| sat_soft | 1 | 17.2 | 17.2 | 17.2 | 17.2 | 19.0 | 40.0 | 45.0 |" in table
    assert "| spatial_transformer | 22.0 ± 3.6 | 22.0 ± 3.6 | 22.0 ± 3.6 | 22.0 ± 3.6 |" in table
    assert "| spatial_transformer | 1,234,567 | 102 ± 1 | 120 | a machine |" in table
    assert "| *hard attention, [SAT] Table 1* |  | *67* | *45.7* | *31.4* | *21.3* | *20.3* |" in table
    assert "hard attention, [SAT] Table 1: VGG-19; BLEU without brevity penalty" in table
    assert table in printed
    assert "left out: runs/search/flickr8k-sat_soft-seed7: it was not tested (test=false)" in printed
    with (elsewhere / "report" / "table.csv").open() as file:
        rows = {row["system"]: row for row in csv.DictReader(file)}
    assert float(rows["spatial_transformer"]["BLEU-4"]) == 21.0
    assert float(rows["spatial_transformer"]["BLEU-4 deviation"]) == pytest.approx(13**0.5)
    assert rows["sat_soft"]["BLEU-4 deviation"] == ""
    assert float(rows["sat_soft"]["seconds to CIDEr 25"]) == 120.0


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
    assert ") | 1 2 3 | 20.0" in table


def test_pictures(elsewhere: Path, report: Callable[..., str]) -> None:
    write_run(elsewhere / "runs", "spatial_transformer", 1, 18.0)
    place = write_run(elsewhere / "runs", "sat_soft", 4, 17.0)
    Image.new("RGB", (40, 30)).save(place / "attention" / "2.png")  # which the other has not drawn
    printed = report("published=null")
    assert "*" not in printed
    assert (elsewhere / "report" / "curves.pdf").read_bytes().startswith(b"%PDF")
    with Image.open(elsewhere / "report" / "curves.png") as curves:
        assert len(curves.convert("RGB").getcolors(10**6) or []) > 100  # type: ignore[arg-type]
    assert [path.name for path in (elsewhere / "report" / "attention").iterdir()] == ["1.png"]
    with Image.open(elsewhere / "report" / "attention" / "1.png") as page:
        reds = [count for count, colour in page.getcolors(10**6) if colour == (255, 0, 0)]
    assert reds == [41 * 30 + 44 * 30]


def test_the_bootstrap_between_systems(elsewhere: Path, report: Callable[..., str]) -> None:
    write_run(elsewhere / "runs", "good", 1, 90.0)
    write_run(elsewhere / "runs", "bad", 1, 9.0, BAD)
    table = report("bootstrap.metrics=[CIDEr]", "bootstrap.samples=200")
    (line,) = [line for line in table.splitlines() if line.startswith("| bad - good | CIDEr | -")]
    low, high = line.split("[")[1].split("]")[0].split(", ")
    assert float(low) < float(high) < 0


def test_systems_are_told_apart_by_their_settings(elsewhere: Path) -> None:
    write_run(elsewhere / "a", "sat_soft", 1, 17.0, optimizer={"lr": 0.1})
    write_run(elsewhere / "b", "sat_soft", 1, 18.0, optimizer={"lr": 0.2}, callbacks={"x": 1})
    write_run(elsewhere / "c", "sat_soft", 2, 19.0, optimizer={"lr": 0.2})
    write_run(elsewhere / "d", "sat_hard", 1, 20.0, callbacks={"weight_averaging": None})
    write_run(elsewhere / "e", "sat_hard", 1, 21.0, callbacks={"weight_averaging": {"decay": 0.9}})
    systems = group(find_runs(elsewhere)[0])
    found = {system.label: [run.seed for run in system.runs] for system in systems}
    assert found == {
        "sat_soft (optimizer.lr=0.1)": [1],
        "sat_soft (optimizer.lr=0.2)": [1, 2],
        "sat_hard (callbacks.weight_averaging=None, callbacks.weight_averaging.decay=nothing)": [1],
        "sat_hard (callbacks.weight_averaging=nothing, callbacks.weight_averaging.decay=0.9)": [1],
    }


def test_other_data_have_another_table(elsewhere: Path, report: Callable[..., str]) -> None:
    write_run(elsewhere / "runs", "sat_soft", 1, 17.0)
    write_run(elsewhere / "runs", "sat_hard", 1, 18.0, name="coco", digest="d2")
    table = report()
    assert table.count("Test split") == 2
    assert table.index("# coco") < table.index("| sat_hard |") < table.index("# flickr8k") < table.index("| sat_soft |")
    assert table.count("[ST] Table 1* |") == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["runs=absent"], "runs=absent is no folder"),
        (["runs=empty"], "there is no tested run below runs=empty"),
        (["runs=twice"], "are the same system with the same seed 1, and would count twice"),
        (["runs=broken"], "cannot read the run broken/flickr8k-sat_soft-seed1: "),
        (["published=mscoco"], "published=mscoco is not allowed; it must be auto, null or one of coco, "),
    ],
)
def test_refused(
    elsewhere: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    (elsewhere / "empty").mkdir()
    for copy in ("one", "two"):
        write_run(elsewhere / "twice" / copy, "sat_soft", 1, 17.0)
    (write_run(elsewhere / "broken", "sat_soft", 1, 17.0) / "scores.json").write_text("{")
    monkeypatch.setattr(sys, "argv", ["captioning.report", *arguments])
    with pytest.raises(SystemExit):
        start(main)
    error = capsys.readouterr().err
    assert f"error: {message}" in error or ((error.startswith("error: ") or "error: " in error) and message in error)
    assert "Traceback" not in error
    assert not (elsewhere / "report").exists()


def test_training_loss_is_the_mean_between_two_validations(elsewhere: Path) -> None:
    place = write_run(elsewhere / "runs", "a", 1, 20.0)
    rows = ["0,,4,4.0,,", "0,,9,3.0,,", "0,60.0,9,,20.0,2.5", "1,,14,2.0,,", "1,120.0,19,,30.0,2.0", "2,,24,1.0,,"]
    (place / "metrics.csv").write_text("epoch,seconds,step,train/nll,val/CIDEr,val/nll\n" + "\n".join(rows) + "\n")
    ((run,), _) = find_runs(elsewhere / "runs")
    assert run.training_loss("epoch") == ([0, 1], [3.5, 2.0])
    assert run.training_loss("seconds") == ([60, 120], [3.5, 2.0])
