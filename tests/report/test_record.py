"""A record holds less than its run and shows the same."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from json_files import changed_json, read_json, read_lines, write_lines
from record import as_csv
from record import main as write_records
from refusals import refuses
from support import little_disk
from written import REFERENCES, keep_maps, page_of, write_run

from captioning.evaluate import main as evaluate
from captioning.metrics import Scorer
from captioning.report.__main__ import main as report
from captioning.report.compare.__main__ import main as compare
from captioning.report.runs import find_runs
from captioning.runs.evaluation.attention_file import AttentionRecord, read, write
from captioning.runs.evaluation.captions import captions_file
from experiments import contrasts

SAID = {
    "sat_soft": ["a man rides", "two dogs play", "a red bus"],
    "show_tell": ["a man", "a dog", "the red bus"],
}
GROUPS = ["people", "things", "things"]
LOGGED = """epoch,seconds,step,train/nll,train/captions per second,val/CIDEr,val/nll,lr-Adam
0,,4,4.0,100.0,,,
0,,9,3.0,120.0,,,0.001
0,60.0,9,,,20.0,2.5,
1,,14,2.5,110.0,,,
1,,19,2.0,130.0,,,
1,120.0,19,,,30.0,2.0,
2,,24,1.5,140.0,,,
"""


@pytest.fixture
def home(elsewhere):
    """Two runs with photographs' names, all scores of single captions, and one that cannot be
    computed again.
    """
    for seed, (model, said) in enumerate(SAID.items(), start=1):
        run = write_run(elsewhere / "runs", model, seed, said=said, images=elsewhere / "images")
        scorer = Scorer(REFERENCES, ["BLEU", "ROUGE-L", "CIDEr"])
        scores = scorer.score(dict(enumerate(said)))
        lines = read_lines(run / "captions.jsonl")
        for place, line in enumerate(lines):
            line["scores"] = scores.per_image[place] | {"CLIPScore": 60.0 + place}
            line["group"] = GROUPS[place]
        write_lines(run / "captions.jsonl", lines)
        with changed_json(run / "scores.json") as record:
            record["scores"] = scores.corpus | {"CLIPScore": 61.0}
            record["groups"] = scores.by_group(GROUPS)
        (run / "metrics.csv").write_text(LOGGED)
        keep_maps(run, said)
    write_records(elsewhere / "runs", elsewhere / "experiments" / "ours", 2)
    return elsewhere


def test_a_report_of_records_is_that_of_the_runs(home, printed):
    for run in find_runs(home / "runs")[0]:  # the same maps, and the same names on the page
        target = home / "experiments" / "ours" / run.folder.name / "attention.npz"
        (run.folder / "attention.npz").write_bytes(target.read_bytes())
    more = ["metrics=[BLEU]", "cider=25", "images=null"]
    printed(report, "runs=runs", "output=a", *more)
    for output in ("computed", "cached"):
        printed(report, "runs=experiments/ours", f"output={output}", *more)
        for name in ("table.md", "table.csv", "curves.png", "index.html"):
            assert (home / "a" / name).read_bytes() == (home / output / name).read_bytes(), name
    assert len(list((home / "cache" / "scores").iterdir())) == len(SAID)
    assert "| ROUGE-L: things (2 images) |" in (home / "a" / "table.md").read_text()
    assert ",BLEU-4: things (2 images)," in (home / "computed" / "pairs.csv").read_text()


def test_compare_and_evaluate_take_records_as_they_take_runs(home, printed):
    names = [f"flickr8k-{model}-seed{seed}" for seed, model in enumerate(SAID, start=1)]
    more = ["metrics=[CIDEr]", "images=null"]
    compared, scored = [], []
    for number, folder in enumerate(("runs", "experiments/ours")):
        printed(compare, *(f"{folder}/{name}" for name in names), *more)
        record = read_json("compare/compare.json")
        compared.append({name: value for name, value in record.items() if name != "files"})
        captions = captions_file(Path(folder, names[0]))
        printed(evaluate, f"captions={captions}", "metrics=[CIDEr]", f"name=scored{number}")
        scored.append(read_json(f"runs/scored{number}/scores.json")["scores"])
    assert compared[0] == compared[1]
    assert {"ROUGE-L", "CIDEr", "CLIPScore"} <= set(compared[1]["scores"])
    assert scored[0] == scored[1]
    assert scored[0]["CIDEr"] == pytest.approx(compared[0]["scores"]["CIDEr"]["ours"])


def test_a_record_holds_what_cannot_be_computed_again(home):
    record = home / "experiments" / "ours"
    (references,) = (home / "experiments" / "references").iterdir()
    images = list(map(json.loads, gzip.decompress(references.read_bytes()).splitlines()))
    assert [image["references"] for image in images] == REFERENCES
    assert [image["photograph"] for image in images] == ["1.png", "2.png", "3.png"]
    with gzip.open(record / "flickr8k-sat_soft-seed1" / "captions.jsonl.gz") as file:
        lines = [json.loads(line) for line in file]
    assert lines[1] == {"image_id": 2, "caption": "two dogs play", "scores": {"CLIPScore": 61.0}}
    kept = read(record / "flickr8k-sat_soft-seed1" / "attention.npz")
    assert [list(caption.maps) for caption in kept] == [["mean"]] * 2
    rows = (record / "flickr8k-sat_soft-seed1" / "metrics.csv").read_text().splitlines()
    assert rows == [
        "epoch,step,seconds,train/captions per second,train/nll,val/CIDEr,val/nll",
        "0,9,,,3.5,,",
        "0,9,60.0,,,20.0,2.5",
        "1,19,,,2.25,,",
        "1,19,120.0,120.0,,30.0,2.0",
    ]
    before = {path: path.read_bytes() for path in record.rglob("*") if path.is_file()}
    write_records(record, record, 2)  # again, in place
    assert before == {path: path.read_bytes() for path in record.rglob("*") if path.is_file()}


def test_a_bare_record_has_the_intervals_of_the_whole_without_references(home):
    bare = home / "private" / "ours"
    write_records(home / "runs", bare, bare=True)
    for file in bare.rglob("*.gz"):
        assert b"references" not in gzip.decompress(file.read_bytes())
    assert not (bare.parent / "references").exists()
    whole, without = (find_runs(each)[0] for each in (home / "experiments" / "ours", bare))
    for one, other in zip(whole, without, strict=True):
        ours, same = (contrasts.score_of([run], "CIDEr", {}) for run in (one, other))
        assert same.score == pytest.approx(one.scores["CIDEr"])
        np.testing.assert_allclose(same.values, ours.values)
        assert same.test == one.provenance.data_digest


def test_a_record_over_itself_loses_nothing_on_a_full_disk(home):
    """Its maps are the largest file, and the last that is written."""
    record = home / "experiments" / "ours"
    maps = record / "flickr8k-sat_soft-seed1" / "attention.npz"
    noise = np.random.default_rng(0).random((4, 64, 64), dtype=np.float32)
    words = [tuple(text.split()) for text in SAID["sat_soft"]]
    shown = [{"mean": noise[: len(each)]} for each in words]
    write(maps, [*map(AttentionRecord, (1, 2, 3), words, shown)])
    before = maps.read_bytes()
    others = [path.stat().st_size for path in record.rglob("*") if path.is_file() and path != maps]
    with little_disk(max(others) + 1), refuses(r"attention\.npz: File too large"):
        write_records(record, record, 2)
    assert maps.read_bytes() == before
    write_records(record, record, 2)
    assert len(read(maps)) == 2


def test_logged_values_have_the_digits_of_a_float32():
    rows = [{"epoch": 0.0, "step": 1e6, "seconds": 61.25, "val/nll": 2.512345678}]
    assert as_csv(rows) == "epoch,step,seconds,val/nll\n0,1000000,61.25,2.512346\n"


@pytest.mark.parametrize("damage", ["absent", "changed", "an image short", "captions cut off"])
def test_references_that_are_not_those_of_the_record(home, damage):
    (references,) = (home / "experiments" / "references").iterdir()
    content = gzip.decompress(references.read_bytes())
    captions = home / "experiments" / "ours" / "flickr8k-sat_soft-seed1" / "captions.jsonl.gz"
    if damage == "absent":
        references.unlink()
    elif damage == "changed":
        references.write_bytes(gzip.compress(content.replace(b"horse", b"mule")))
    elif damage == "an image short":
        text = gzip.decompress(captions.read_bytes()).replace(b'"image_id":3', b'"image_id":4')
        captions.write_bytes(gzip.compress(text))
    else:
        captions.write_bytes(captions.read_bytes()[:-9])
    _, left_out = page_of(home / "experiments" / "ours", home / "report", photographs=None)
    (line,) = {line for line in left_out if line.startswith("captions of Show, Attend")}
    named = {"an image short": "4", "captions cut off": "captions.jsonl.gz"}
    assert named.get(damage, references.name) in line
