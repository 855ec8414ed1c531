"""Whole runs of a model that learns little, in an empty directory, and the beam's width that is
chosen after them.
"""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from processes import forked, run
from support import (
    FROZEN,
    LONGER,
    TINY,
    WORLD,
    CachedRun,
    Run,
    captions_of,
    checked,
    composed,
    contents,
    folder_of,
)

import captioning
from captioning.errors import CaptioningError
from captioning.metrics.scenes import NAMES as OF_SCENES
from captioning.report.__main__ import main as report
from captioning.runs.checkpoint import load

BLEU = [f"BLEU-{n}" for n in range(1, 5)]
NAME = "shapes-spatial_transformer-seed1"
WIDTHS = (1, 6)
SELECT = f"decoding.beam_widths=[{','.join(map(str, WIDTHS))}]"


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return torch.load(folder / "checkpoints" / "best.ckpt", weights_only=True)["state_dict"]


def same_weights(one: Path, other: Path) -> bool:
    return all(torch.equal(tensor, weights(other)[name]) for name, tensor in weights(one).items())


def test_what_a_run_leaves(shapes_run: Run) -> None:
    folder = shapes_run.folder
    assert folder == shapes_run.home / "runs" / NAME
    checkpoints = {f"checkpoints/{name}.ckpt" for name in ("best", "last", "previous")}
    pictures = {f"attention/2000000.{kind}" for kind in ("png", "pdf")} | {"attention.npz"}
    records = {"config.yaml", "metrics.csv", "run.json", "captions.jsonl", "scores.json"}
    assert set(contents(folder)) == checkpoints | pictures | records
    assert {path.name for path in shapes_run.home.iterdir()} == {"runs", "cache"}
    text = (folder / "config.yaml").read_text()
    assert "${" not in text
    written = yaml.safe_load(text)
    assert (written["model"]["d_model"], written["name"], written["folder"]) == (
        8,
        "shapes",
        f"runs/{NAME}",
    )
    for name in ("best", "last"):
        saved = load(folder / "checkpoints" / f"{name}.ckpt")
        assert saved.config["model"]["_target_"] == "captioning.models.Transformer"
        assert {"red", "square"} <= set(saved.words)
        assert saved.state["backbone.scale"] == 1
    record = json.loads((folder / "scores.json").read_text())
    plain = {*BLEU, *(f"{name} (no brevity penalty)" for name in BLEU), "CIDEr"}
    attention = {
        f"attention {name}" for name in ("entropy", "entropy variance", "movement", "coverage")
    }
    worded = {
        "bad_endings",
        "length",
        "distinct-1",
        "distinct-2",
        "vocabulary used",
        "novel",
        "ended",
    }
    worded |= {"repeated", "unseen pairs", "first word entropy", "word entropy"}
    # of scenes, what every caption is judged by
    assert {"false captions", "too many objects", "too few objects", "objects left out"} <= set(
        record["scores"]
    )
    assert (
        set(record["scores"]) - {*OF_SCENES}
        == plain | {"pointing", "pointing (images shuffled)"} | attention | worded
    )
    provenance = record["provenance"]
    # strictly, or the stopwatch was set back to the best checkpoint when that was loaded
    assert 0 < provenance["seconds_to_best"] < provenance["seconds_trained"]
    assert {"commit", "versions", "data_digest", "tokenizer", "device"} <= set(provenance)
    lines = captions_of(folder)
    assert [line["image_id"] for line in lines] == list(range(2000000, 2000005))
    known = {"image_id", "caption", "references", "scores", "photograph", "hallucinated"}
    assert all(set(line) == known for line in lines)
    root = yaml.safe_load((folder / "config.yaml").read_text())["data"]["reader"]["root"]
    assert all((shapes_run.home / root / line["photograph"]).is_file() for line in lines)
    assert all(len(line["references"]) == 5 for line in lines)
    assert "val/CIDEr" in (folder / "metrics.csv").read_text().splitlines()[0]


def test_what_a_new_user_reads(shapes_run: Run) -> None:
    """Sizes, progress, the table, three captions, the folders, what is next; on standard error the
    drawing alone.
    """
    out = shapes_run.stdout
    assert re.search(
        r"images: train 64, val 20, test 5; vocabulary: \d+ \(\d\.\d % of words unknown\)\n", out
    )
    assert "parameters: model " in out
    table = out[out.index("\ntest score (0-100; ") :]
    for name in (
        *BLEU,
        "BLEU-1 (no brevity penalty)",
        "CIDEr",
        "pointing",
        "pointing (images shuffled)",
    ):
        assert f"\n{name:<32}" in table
    assert table.count("\nimage 200000") == 3
    assert table.index("\nCIDEr ") < table.index("\npointing ") < table.index("\nimage 200000")
    assert f"pictures of attention: runs/{NAME}/attention" in table
    predict = f"captioning predict PHOTOGRAPH checkpoint=runs/{NAME}/checkpoints/best.ckpt"
    assert table.endswith(f"\nnext\ncaptioning report runs=runs\n{predict}\n")
    bars = [line for line in shapes_run.stderr.replace("\r", "\n").splitlines() if line.strip()]
    assert all(line.startswith("Drawing shapes") for line in bars), bars
    assert "Warning" not in out


def test_the_report_measures_again_where_the_run_looked(shapes_run: Run, tmp_path: Path) -> None:
    """From the checkpoint alone what the test had logged, and what other kinds of maps would have
    said.
    """
    kinds = ["weights", "rollout", "gradient"]
    settings = [f"runs={shapes_run.folder}", f"output={tmp_path}", f"cache={shapes_run.home}/cache"]
    report.__wrapped__(composed(*settings, f"attention=[{','.join(kinds)}]", name="report"))
    scores = json.loads((shapes_run.folder / "scores.json").read_text())["scores"]
    header, _, row = (tmp_path / "table.md").read_text().splitlines()[-3:]
    assert [cell.strip() for cell in header.split("|")[2:-1]] == kinds
    measured, *others = [cell.strip() for cell in row.split("|")[2:-1]]
    assert measured == f"{scores['pointing']:.1f} ({scores['pointing (images shuffled)']:.1f})"
    assert all(re.fullmatch(r"\d+\.\d \(\d+\.\d\)", other) for other in others)


@pytest.fixture(scope="module")
def home(shapes_run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(shapes_run.home, tmp_path_factory.mktemp("copied") / "home"))


def evaluated(home: Path, checkpoint: Path, *arguments: str) -> tuple[dict[str, float], list[str]]:
    """Scores and captions by the other command."""
    ended = forked("evaluate", home, f"checkpoint={checkpoint}", "metrics=[CIDEr]", *arguments)
    assert ended.returncode == 0, ended.stderr
    folder = folder_of(home, ended)
    scores = json.loads((folder / "scores.json").read_text())["scores"]
    return scores, [line["caption"] for line in captions_of(folder)]


def chosen(home: Path, folder: Path) -> int:
    """The best width, as the other command finds it; the run must have found the same."""
    checkpoint = folder / "checkpoints" / "best.ckpt"
    found = {
        w: evaluated(home, checkpoint, "split=val", f"decoding.width={w}")[0]["CIDEr"]
        for w in WIDTHS
    }
    assert len(set(found.values())) > 1, "the widths must differ, or nothing is chosen"
    best = max(WIDTHS, key=found.__getitem__)
    result = json.loads((folder / "run.json").read_text())["result"]
    assert result["widths"] == {
        str(width): pytest.approx(score, abs=1e-3) for width, score in found.items()
    }
    assert result["best"] == result["widths"][str(best)]
    assert (
        json.loads((folder / "scores.json").read_text())["provenance"]["decoding"]["width"] == best
    )
    return best


def test_the_same_again_is_tested_later_with_the_best_width(home: Path, shapes_run: Run) -> None:
    """A trial touches nothing that was there and trains as the first run has; its test trains
    nothing.
    """
    before = contents(home / "runs" / NAME)
    command = [*WORLD, SELECT, "data.num_workers=2"]
    trial = run(home, *command, "test=false")
    assert trial.stderr == ""  # the scenes are drawn already
    folder = folder_of(home, trial)
    assert folder == home / "runs" / f"{NAME}-2"
    assert (
        contents(home / "runs" / NAME) == before
    ) is True  # pytest would take minutes to show the difference
    assert same_weights(folder, home / "runs" / NAME)
    rows = [(each / "metrics.csv").read_text().splitlines() for each in (folder, shapes_run.folder)]
    assert (
        len(rows[0]) == len([row for row in rows[1] if row]) - 1
    )  # that of the test; none of the choice
    checkpoints = {f"checkpoints/{name}.ckpt" for name in ("best", "last", "previous")}
    assert set(contents(folder)) == {"config.yaml", "metrics.csv", "run.json"} | checkpoints

    record, last = (
        (folder / "run.json").read_bytes(),
        (folder / "checkpoints" / "last.ckpt").read_bytes(),
    )
    tested = run(home, *command, "resume=true")
    assert folder_of(home, tested) == folder
    assert "finished" not in tested.stdout
    best = chosen(home, folder)
    assert f"beam width {best}" in trial.stdout
    assert (folder / "run.json").read_bytes() == record
    assert ((folder / "checkpoints" / "last.ckpt").read_bytes() == last) is True, (
        "it was trained again"
    )
    assert "this run is finished" in run(home, *command, "resume=true").stdout

    # that width is tested, and is the checkpoint's from then on
    checkpoint = folder / "checkpoints" / "best.ckpt"
    scores, captions = evaluated(home, checkpoint)
    assert captions == [line["caption"] for line in captions_of(folder)]
    recorded = json.loads((folder / "scores.json").read_text())["scores"]
    assert scores["CIDEr"] == pytest.approx(recorded["CIDEr"], abs=1e-3)
    assert (
        captioning.load(checkpoint, decoding={"n_best": 2, "width": 2}).config["decoding"]["n_best"]
        == 2
    )

    # neither keeps the scores of validation captions, which hardly differ yet: a rank among them
    # would mean nothing
    anew = Path(shutil.copy(checkpoint, home / "anew.ckpt"))
    ended = forked("evaluate", home, f"checkpoint={anew}", "split=val", "calibrate=true")
    assert ended.returncode == 0, ended.stderr
    assert load(checkpoint).quantiles == load(anew).quantiles == []


def test_of_averaged_weights_the_best_is_asked(home: Path) -> None:
    """And not those from which training would go on, which are there too."""
    chosen(home, folder_of(home, run(home, *WORLD, SELECT, "callbacks=averaged")))


def test_choices_that_cannot_be() -> None:
    for given, key in (
        *[
            (f"decoding.beam_widths={value}", "decoding.beam_widths")
            for value in ("3", "[]", "[1,1]", "[0,1]")
        ],
        ("decoding=greedy +decoding.beam_widths=[1,3]", "decoding.width"),
        (
            "decoding.beam_widths=[1,3] test=false trainer.limit_val_batches=0",
            "decoding.beam_widths=null",
        ),
    ):
        with pytest.raises(CaptioningError, match=key):
            checked(composed(*given.split()))


def test_photographs_with_cached_features(cached_run: CachedRun, tmp_path: Path) -> None:
    assert "images: train 4, val 1, test 1" in cached_run.stdout
    assert "(frozen)" in cached_run.stdout
    assert (
        cached_run.folder.name
        == "flickr8k-spatial_transformer-seed1-backbone=squeezenet1_1-data.view=mirrored"
    )
    (line,) = captions_of(cached_run.folder)
    assert line["image_id"] == 5
    assert (
        line["references"][2] == "A" + " a" * 19 + " ."
    )  # too long to train on, not to score with
    scores: dict[str, Any] = json.loads((cached_run.folder / "scores.json").read_text())["scores"]
    assert not any("pointing" in name for name in scores)  # these photographs have no boxes
    assert weights(cached_run.folder)["backbone.scale"] != 1
    for view in ("train", "val", "test", "train, view 2 of 2"):
        assert f"features of {view}:" in cached_run.stderr
    cached = contents(cached_run.home / "cache")
    assert sum(name.endswith("features.npy") for name in cached) == 4

    home = Path(shutil.copytree(cached_run.home, tmp_path / "home"))
    settings = [
        "backbone.weights=weights.pt",
        "data.views=2",
        "data/view=mirrored",
        "optimizer.lr=0.01",
    ]
    shutil.copy(cached_run.checkpoint.with_name("weights.pt"), home)
    again = run(home, *TINY, *LONGER, *FROZEN, *settings, "name=again")
    assert "features of" not in again.stderr
    assert (contents(home / "cache") == cached) is True
    assert captions_of(folder_of(home, again)) == captions_of(cached_run.folder)
