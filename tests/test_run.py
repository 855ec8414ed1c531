"""Whole runs of a model that learns little, in an empty directory, and the beam's width that is
chosen after them.
"""

import re
import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import yaml
from json_files import read_json
from processes import forked, run
from support import WORLD, captions_of, contents, folder_of, rows_of

from captioning.runs.checkpoints.checkpoint import load_checkpoint
from experiments import pointing

NAME = "shapes-spatial_transformer-seed1"
WIDTHS = (1, 6)


def test_the_files_that_a_run_leaves(shapes_run):
    folder = shapes_run.folder
    assert folder == shapes_run.home / "runs" / NAME
    checkpoints = {f"checkpoints/{name}.ckpt" for name in ("best", "last", "previous")}
    pictures = {"attention/2000000.png", "attention/2000000.pdf", "attention.npz"}
    records = {"config.yaml", "metrics.csv", "run.json", "captions.jsonl", "scores.json"}
    assert set(contents(folder)) == checkpoints | pictures | records
    assert {path.name for path in shapes_run.home.iterdir()} == {"runs", "cache"}


def test_its_settings_are_resolved(shapes_run):
    text = (shapes_run.folder / "config.yaml").read_text()
    assert "${" not in text
    written = yaml.safe_load(text)
    assert (written["model"]["d_model"], written["folder"]) == (8, f"runs/{NAME}")


@pytest.mark.parametrize("name", ["best", "last"])
def test_its_checkpoints_have_settings_and_words(shapes_run, name):
    saved = load_checkpoint(shapes_run.folder / "checkpoints" / f"{name}.ckpt")
    assert saved.config["model"]["_target_"] == "captioning.models.Transformer"
    assert {"red", "square"} <= set(saved.words)


def test_its_scores_are_of_captions_words_and_maps(shapes_run):
    scores = read_json(shapes_run.folder / "scores.json")["scores"]
    looks = {"pointing", "pointing (images shuffled)", "attention entropy", "attention coverage"}
    worded = {"length", "distinct-1", "vocabulary used", "novel", "ended", "repeated"}
    assert looks | worded <= set(scores)
    assert "val/CIDEr" in rows_of(shapes_run.folder)[-2]


def test_its_stopwatch_goes_on_after_the_best_checkpoint(shapes_run):
    """Or it was set back when that was loaded."""
    provenance = read_json(shapes_run.folder / "scores.json")["provenance"]
    assert 0 < provenance["seconds_to_best"] < provenance["seconds_trained"]


def test_its_captions_have_references_and_photographs(shapes_run):
    lines = captions_of(shapes_run.folder)
    assert [line["image_id"] for line in lines] == list(range(2000000, 2000005))
    known = {"image_id", "caption", "references", "scores", "photograph"}
    written = yaml.safe_load((shapes_run.folder / "config.yaml").read_text())
    root = shapes_run.home / written["data"]["reader"]["root"]
    for line in lines:
        assert set(line) == known
        assert (root / line["photograph"]).is_file()
        assert len(line["references"]) == 5


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


@dataclass(frozen=True)
class Tried:
    """A trial of averaged weights beside an older run, and its test, which came later.

    Attributes:
        home: where it ran; `older` are the contents of the older run before it, `left` after it.
        trained, after: contents of its folder before and after its test.
        trial, tested: what the two commands have printed.
        found: CIDEr of the validation captions by the other command, by width.
    """

    home: Path
    folder: Path
    older: dict
    left: dict
    trained: dict
    after: dict
    trial: CompletedProcess
    tested: CompletedProcess
    rows: int
    found: dict

    @property
    def checkpoint(self):
        return self.folder / "checkpoints" / "best.ckpt"


def try_widths(begun, base):
    home = Path(shutil.copytree(begun, base / "home"))
    older = contents(home / "runs" / NAME)
    widths = f"decoding.beam_widths=[{','.join(map(str, WIDTHS))}]"
    command = [*WORLD, widths, "callbacks=averaged", "data.num_workers=2"]
    trial = run(home, *command, "test=false")
    folder = folder_of(home, trial)
    left, trained, rows = contents(home / "runs" / NAME), contents(folder), len(rows_of(folder))
    tested = run(home, *command, "resume=true")
    assert folder_of(home, tested) == folder
    after = contents(folder)
    found = {}
    for width in WIDTHS:
        settings = "split=val", f"decoding.width={width}"
        scores, _ = evaluated(home, folder / "checkpoints" / "best.ckpt", *settings)
        found[width] = scores["CIDEr"]
    return Tried(home, folder, older, left, trained, after, trial, tested, rows, found)


@pytest.fixture(scope="module")
def tried(shapes_run, once):
    return once("tried", partial(try_widths, shapes_run.home))


def test_a_trial_touches_nothing_that_was_there(tried):
    assert tried.trial.stderr == ""  # the scenes are drawn already
    assert tried.folder.name.startswith(NAME)
    # pytest would take minutes to show the difference
    assert (tried.left == tried.older) is True


def test_a_trial_leaves_no_captions_and_no_scores(tried, shapes_run):
    checkpoints = {f"checkpoints/{name}.ckpt" for name in ("best", "last", "previous")}
    assert set(tried.trained) == {"config.yaml", "metrics.csv", "run.json"} | checkpoints
    # but for the test's, as many rows; none of the choice
    assert tried.rows == len(rows_of(shapes_run.folder)) - 1


def test_the_test_of_a_trial_trains_nothing(tried):
    assert "finished" not in tried.tested.stdout
    for name in ("run.json", "checkpoints/last.ckpt"):
        assert (tried.after[name][1] == tried.trained[name][1]) is True, "it was trained again"


def test_the_best_width_is_that_of_the_other_command(tried):
    """Of the averaged weights, not of those from which training would go on, which are there
    too.
    """
    assert len(set(tried.found.values())) > 1, "the widths must differ, or nothing is chosen"
    best = max(WIDTHS, key=tried.found.__getitem__)
    assert f"beam width {best}" in tried.trial.stdout
    result = read_json(tried.folder / "run.json")["result"]
    assert result["widths"] == {
        str(width): pytest.approx(score, abs=1e-3) for width, score in tried.found.items()
    }
    assert result["best"] == result["widths"][str(best)]
    record = read_json(tried.folder / "scores.json")
    assert record["provenance"]["decoding"]["width"] == best


def test_the_best_width_is_the_checkpoint_s_from_then_on(tried):
    scores, captions = evaluated(tried.home, tried.checkpoint)
    assert captions == [line["caption"] for line in captions_of(tried.folder)]
    record = read_json(tried.folder / "scores.json")
    assert scores["CIDEr"] == pytest.approx(record["scores"]["CIDEr"], abs=1e-3)


def test_captions_that_hardly_differ_give_no_quantiles(tried):
    """A rank among the scores of validation captions would mean nothing yet."""
    assert load_checkpoint(tried.checkpoint).quantiles == []


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
