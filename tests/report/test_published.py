"""Published rows, our files' words for them, and what we have recorded beside them."""

from pathlib import Path

import yaml
from written import HARD, SOFT, systems_of

from captioning.config.registry import CONF
from captioning.report.published import published_rows
from captioning.report.runs import find_runs

RECORDED = Path(__file__).parents[2] / "experiments" / "table1_flickr8k"


def test_table_1_of_show_attend_and_tell():
    """COCO's rows as the paper prints them."""
    for model, numbers in (
        ("sat_soft", [70.7, 49.2, 34.4, 24.3, 23.90]),
        ("sat_hard", [71.8, 50.4, 35.7, 25.0, 23.04]),
    ):
        (row,) = [row for row in published_rows({"coco"}, {model}) if row.source == "[SAT] Table 1"]
        assert [*row.scores.values()] == numbers
    quoted = {row.system: row.scores for row in published_rows({"coco"})}
    assert [*quoted["BRNN"].values()] == [64.2, 45.1, 30.4, 20.3]  # its METEOR is not known
    assert quoted["CMU/MS Research"] == {"METEOR": 20.41}
    counts = {data: len(published_rows({data})) for data in ("flickr8k", "flickr30k", "coco")}
    assert counts == {"flickr8k": 4, "flickr30k": 4, "coco": 2 + 7 + 5}
    named = [
        row.system for row in published_rows({"coco"}, {"spatial_transformer_small", "sat_softer"})
    ]
    assert named == ["spatial transformer"]
    (beside,) = published_rows({"coco"}, {"show_tell_small"})
    assert (beside.system, beside.scores["BLEU-4"]) == ("Google NIC", 24.6)
    assert not published_rows({"coco"}, {"transformer"}) + published_rows({"shapes"}, {"sat_soft"})


def test_the_page_on_published_checkpoints_has_the_same_scores():
    page = (CONF / "convert.md").read_text()
    names = ("BLEU-4", "METEOR", "ROUGE-L", "CIDEr")
    for row in published_rows({"coco"}, {"aoa", "meshed_memory", "language_model"}):
        cells = " | ".join(str(row.scores.get(name, "")) for name in names).replace("|  |", "| |")
        assert f"| {cells} |" in page, row


def test_systems_have_titles():
    models = {path.stem: path.read_text() for path in (CONF / "model").glob("*.yaml")}
    titles = {name: yaml.safe_load(text).get("title", name) for name, text in models.items()}
    assert len(set(titles.values())) == len(titles)
    assert not [title for title in titles.values() if "_" in title]


def test_recorded_runs_are_still_read():
    """With the numbers of the record's own page."""
    runs, left_out = find_runs(RECORDED)
    found = {
        s.full_label: ([run.seed for run in s.runs], round(s.score("CIDEr").mean, 1))
        for s in systems_of(RECORDED)
    }
    seeds = [1, 2, 3]
    assert found == {HARD: (seeds, 42.8), SOFT: (seeds, 45.4), "spatial transformer": (seeds, 45.3)}
    assert all(len(run.curve("val/CIDEr", "seconds")[0]) == 4 for run in runs)
    assert all(line.endswith(": it was not tested (test=false)") for line in left_out)
