"""Whole runs of a model that learns little, in an empty directory, and the beam's width that is
chosen after them.
"""

import re
import shutil
from pathlib import Path

import pytest
import yaml
from json_files import read_json
from processes import forked, run
from support import WORLD, captions_of, contents, folder_of, rows_of

from captioning.runs.checkpoints.checkpoint import load_checkpoint
from experiments import pointing

NAME = "shapes-spatial_transformer-seed1"
WIDTHS = (1, 6)


def test_what_a_run_leaves(shapes_run):
    folder = shapes_run.folder
    assert folder == shapes_run.home / "runs" / NAME
    checkpoints = {f"checkpoints/{name}.ckpt" for name in ("best", "last", "previous")}
    pictures = {"attention/2000000.png", "attention/2000000.pdf", "attention.npz"}
    records = {"config.yaml", "metrics.csv", "run.json", "captions.jsonl", "scores.json"}
    assert set(contents(folder)) == checkpoints | pictures | records
    assert {path.name for path in shapes_run.home.iterdir()} == {"runs", "cache"}
    text = (folder / "config.yaml").read_text()
    assert "${" not in text
    written = yaml.safe_load(text)
    assert (written["model"]["d_model"], written["folder"]) == (8, f"runs/{NAME}")
    for name in ("best", "last"):
        saved = load_checkpoint(folder / "checkpoints" / f"{name}.ckpt")
        assert saved.config["model"]["_target_"] == "captioning.models.Transformer"
        assert {"red", "square"} <= set(saved.words)
    record = read_json(folder / "scores.json")
    looks = {"pointing", "pointing (images shuffled)", "attention entropy", "attention coverage"}
    worded = {"length", "distinct-1", "vocabulary used", "novel", "ended", "repeated"}
    assert looks | worded | {"false captions", "objects left out"} <= set(record["scores"])
    provenance = record["provenance"]
    # strictly, or the stopwatch was set back to the best checkpoint when that was loaded
    assert 0 < provenance["seconds_to_best"] < provenance["seconds_trained"]
    lines = captions_of(folder)
    assert [line["image_id"] for line in lines] == list(range(2000000, 2000005))
    known = {"image_id", "caption", "references", "scores", "photograph", "hallucinated"}
    root = shapes_run.home / written["data"]["reader"]["root"]
    for line in lines:
        assert set(line) == known
        assert (root / line["photograph"]).is_file()
        assert len(line["references"]) == 5
    assert "val/CIDEr" in rows_of(folder)[-2]


def test_what_a_new_user_reads(shapes_run):
    """Sizes, progress, and at the end in at most 14 lines scores, a caption, the folder, what is
    next; on standard error the drawing alone.
    """
    out = shapes_run.stdout
    assert re.search(
        r"images: train 64, val 20, test 5; vocabulary: \d+ \(\d\.\d % of words unknown\)\n", out
    )
    assert "parameters: model " in out
    table = out[out.index("\ntest score (0-100; ") :]
    assert table.count("\n") <= 14
    assert "SmallCNN" not in out  # nor other names of classes
    for name in ("BLEU-4", "CIDEr"):
        assert f"\n{name:<32}" in table
    assert table.count("\nimage 200000") == 1
    predict = f"captioning predict PHOTOGRAPH checkpoint=runs/{NAME}/checkpoints/best.ckpt"
    assert table.endswith(f"\nnext: captioning report runs=runs\n      {predict}\n")
    bars = [line for line in shapes_run.stderr.replace("\r", "\n").splitlines() if line.strip()]
    assert all(line.startswith("Drawing shapes") for line in bars), bars
    assert "Warning" not in out


def test_a_script_measures_again_where_the_run_looked(shapes_run, capsys):
    """From the checkpoint alone what the test had logged, and what other kinds of maps would have
    said.
    """
    pointing.main(str(shapes_run.folder), f"{shapes_run.home}/cache")
    scores = read_json(shapes_run.folder / "scores.json")["scores"]
    header, _, row = capsys.readouterr().out.splitlines()
    kinds = ["weights", "rollout", "gradient"]
    assert [cell.strip() for cell in header.split("|")[2:-1]] == kinds
    measured, *others = [cell.strip() for cell in row.split("|")[2:-1]]
    assert measured == f"{scores['pointing']:.1f} ({scores['pointing (images shuffled)']:.1f})"
    assert all(re.fullmatch(r"\d+\.\d \(\d+\.\d\)", other) for other in others)


def evaluated(home, checkpoint, *arguments):
    """Scores and captions by the other command."""
    ended = forked("evaluate", home, f"checkpoint={checkpoint}", "metrics=[CIDEr]", *arguments)
    assert ended.returncode == 0, ended.stderr
    folder = folder_of(home, ended)
    scores = read_json(folder / "scores.json")["scores"]
    return scores, [line["caption"] for line in captions_of(folder)]


def test_the_best_width_of_averaged_weights_is_chosen_and_tested_later(shapes_run, tmp_path):
    """A trial touches nothing that was there; its test trains nothing. The averaged weights are
    asked, not those from which training would go on, which are there too.
    """
    home = Path(shutil.copytree(shapes_run.home, tmp_path / "home"))
    before = contents(home / "runs" / NAME)
    widths = f"decoding.beam_widths=[{','.join(map(str, WIDTHS))}]"
    command = [*WORLD, widths, "callbacks=averaged", "data.num_workers=2"]
    trial = run(home, *command, "test=false")
    assert trial.stderr == ""  # the scenes are drawn already
    folder = folder_of(home, trial)
    assert folder.name.startswith(NAME)
    # pytest would take minutes to show the difference
    assert (contents(home / "runs" / NAME) == before) is True
    trained = contents(folder)
    checkpoints = {f"checkpoints/{name}.ckpt" for name in ("best", "last", "previous")}
    assert set(trained) == {"config.yaml", "metrics.csv", "run.json"} | checkpoints
    # but for the test's, as many rows; none of the choice
    assert len(rows_of(folder)) == len(rows_of(shapes_run.folder)) - 1

    tested = run(home, *command, "resume=true")
    assert folder_of(home, tested) == folder
    assert "finished" not in tested.stdout
    after = contents(folder)
    for name in ("run.json", "checkpoints/last.ckpt"):
        assert (after[name][1] == trained[name][1]) is True, "it was trained again"

    # the other command finds the same width
    checkpoint = folder / "checkpoints" / "best.ckpt"
    found = {
        width: evaluated(home, checkpoint, "split=val", f"decoding.width={width}")[0]["CIDEr"]
        for width in WIDTHS
    }
    assert len(set(found.values())) > 1, "the widths must differ, or nothing is chosen"
    best = max(WIDTHS, key=found.__getitem__)
    assert f"beam width {best}" in trial.stdout
    result = read_json(folder / "run.json")["result"]
    assert result["widths"] == {str(w): pytest.approx(x, abs=1e-3) for w, x in found.items()}
    assert result["best"] == result["widths"][str(best)]
    record = read_json(folder / "scores.json")
    assert record["provenance"]["decoding"]["width"] == best

    # which is the checkpoint's from then on
    scores, captions = evaluated(home, checkpoint)
    assert captions == [line["caption"] for line in captions_of(folder)]
    assert scores["CIDEr"] == pytest.approx(record["scores"]["CIDEr"], abs=1e-3)
    # no scores of validation captions, which hardly differ yet: a rank would mean nothing
    assert load_checkpoint(checkpoint).quantiles == []


def test_photographs_with_cached_features(cached_run):
    assert "images: train 4, val 1, test 1" in cached_run.stdout
    assert (
        cached_run.folder.name
        == "flickr8k-spatial_transformer-seed1-backbone=squeezenet1_1-data.view=mirrored"
    )
    (line,) = captions_of(cached_run.folder)
    assert line["image_id"] == 5
    too_long = "A" + " a" * 19 + " ."  # to train on, not to score with
    assert line["references"][2] == too_long
    for view in ("train", "val", "test", "train, view 2 of 2"):
        assert f"features of {view}:" in cached_run.stderr
    cached = contents(cached_run.home / "cache")
    assert sum(name.endswith("features.npy") for name in cached) == 4
