"""Hallucination on drawn scenes: against the geometry of the scenes, by hand, and as recorded."""

from itertools import permutations
from pathlib import Path
from random import Random

import pytest
from evaluation.evaluating import read
from json_files import read_json
from metrics.scored import compared
from refusals import refuses
from support import QUIET, SHAPES, rows_of

from captioning import evaluate as evaluation
from captioning import run
from captioning.data.shapes.phrasing import REFERENCES, TEMPLATES, phrases
from captioning.data.shapes.scene import random_scene, relation
from captioning.metrics import Scorer
from captioning.runs.evaluation.captions import read_records
from experiments.scenes import metric
from experiments.scenes.metric import NAMES, OF_IMAGES, DrawnScenes, evaluate, scene_of
from experiments.scenes.parsing import parse

pytestmark = QUIET
METRIC = "experiments.scenes.metric.DrawnScenes"

WORDS = {"left": "left of", "right": "right of", "above": "above", "below": "below"}
COLUMNS, ROWS = {"left": 1, "right": -1}, {"above": 1, "below": -1}
PLACES = {"corner": ((0, 0), (1, 0), (0, 1)), "grid": ((0, 0), (1, 0), (0, 1), (1, 1))}


@pytest.fixture(scope="module")
def scenes():
    """400 scenes of all layouts, each with its references."""
    found = []
    for number in range(400):
        rng = Random(number)
        scene = random_scene(rng, ("train", "val", "test")[number % 3], 4)
        found.append((scene, [phrase.text for phrase in phrases(scene, rng)]))
    assert {scene.layout for scene, _ in found} == set(TEMPLATES)
    return found


def test_references_say_all_of_their_scene_and_nothing_else(scenes):
    everything = [references for _, references in scenes]
    for n in range(REFERENCES):
        captions = [[references[n]] for references in everything]
        result = DrawnScenes().compute(captions, everything)
        assert result.corpus == dict.fromkeys(NAMES, 0.0)  # of every name something was judged
        assert not any(result.hallucinated)
    for scene, references in scenes:
        graph = scene_of(tuple(references))
        assert graph is not None
        sized = len(scene.things) <= 2
        sizes = {
            f"{t.colour} {t.shape}": t.size if sized and t.size != "medium" else ""
            for t in scene.things
        }
        assert graph.things == sizes


def true(scene, a, direction, b):
    """By the picture; by rows and columns for two things that are diagonal to each other."""
    i, j = scene.things.index(a), scene.things.index(b)
    if {i, j} in {"corner": [{1, 2}], "grid": [{0, 3}, {1, 2}]}.get(scene.layout, []):
        across, down = b.x - a.x, b.y - a.y
        if scene.layout == "grid":
            across, down = j % 2 - i % 2, j // 2 - i // 2
        return (COLUMNS.get(direction, 0) * across > 0) or (ROWS.get(direction, 0) * down > 0)
    return relation(a, b) == direction


def test_every_relation_of_two_and_of_three_against_the_picture(scenes):
    def wrong(references, caption):
        scene = scene_of(tuple(references))
        assert scene is not None
        count, judgements = evaluate(scene, parse(caption))[0][NAMES.index("wrong relations")]
        assert judgements == 1
        return count

    counts = {True: 0, False: 0}
    for scene, references in scenes:
        for a, b in permutations(scene.things, 2):
            for direction, words in WORDS.items():
                holds = true(scene, a, direction, b)
                assert wrong(
                    references, f"a {a.colour} {a.shape} {words} a {b.colour} {b.shape}"
                ) == (not holds)
                counts[holds] += 1
        for a, b, c in permutations(scene.things, 3):
            caption = (
                f"a {b.colour} {b.shape} is between a {a.colour} {a.shape} and a {c.colour} "
                f"{c.shape}"
            )
            assert wrong(references, caption) == (scene.layout != "row" or b is not scene.things[1])
    assert min(counts.values()) > 500


FEW, MANY, LEFT = "too few objects", "too many objects", "objects left out"
PAIR = [
    "a small red circle left of a blue star",
    "a small red circle is left of a blue star",
    "a blue star with a small red circle on its left",
]
ROW = [
    "a green cross above a pink square and a red star",
    "a red star below a green cross and a pink square",
]
ONE = ["a large red circle at the top", "at the top is a large red circle"]
BY_HAND = [
    (PAIR, PAIR[0], {"absent objects": "0/2", "wrong sizes": "0/1"}),
    (PAIR, "a large red circle left of a small blue star", {"wrong sizes": "2/2"}),
    (PAIR, "a red circle left of a blue star", {"wrong sizes": "0/0"}),
    (PAIR, "a red circle right of a blue star", {"wrong relations": "1/1"}),
    # a colour of the other thing is no absent colour; what is said of an absent thing is not judged
    (PAIR, "a blue circle above a blue star", {"absent objects": "1/2", LEFT: "1/2"}),
    (
        PAIR,
        "a pink circle above a blue star",
        {"absent objects": "1/2", "absent colours": "1/2", LEFT: "1/2"},
    ),
    (
        PAIR,
        "a red cross right of a blue star",
        {"absent objects": "1/2", "absent shapes": "1/2", LEFT: "1/2"},
    ),
    (PAIR, "a red circle at the top", {FEW: "1/1", LEFT: "1/2", "wrong places": "0/0"}),
    # a thing that is named again is another one
    (
        PAIR,
        "a red circle above a red circle",
        {"absent objects": "1/2", "wrong relations": "0/0", LEFT: "1/2"},
    ),
    (
        PAIR,
        "a red circle above a blue star and a blue star",
        {"absent objects": "1/3", MANY: "1/1"},
    ),
    (PAIR, "a red left of a", {"absent colours": "0/1", FEW: "1/1", LEFT: "2/2"}),
    (PAIR, "", {FEW: "1/1", LEFT: "2/2"}),
    (ROW, "a red star is between a green cross and a pink square", {"wrong relations": "1/1"}),
    (ROW, "a red star below a green cross and left of a pink square", {"wrong relations": "1/2"}),
    (ONE, "a large red circle at the bottom", {"wrong places": "1/1"}),
    (ONE, "a large red circle", {"wrong places": "0/0"}),
]


@pytest.mark.parametrize("references, caption, expected", BY_HAND)
def test_counts_by_hand(references, caption, expected):
    scene, said = scene_of(tuple(references)), parse(caption)
    assert scene is not None
    counts = zip(NAMES, evaluate(scene, said)[0], strict=True)
    found = {name: f"{n}/{of}" for name, (n, of) in counts}
    usual = {FEW: "0/1", MANY: "0/1", LEFT: f"0/{len(scene.things)}"} | expected
    assert {name: found[name] for name in usual} == usual
    lies = [name for name in NAMES[1:-2] if found[name][0] != "0"]
    assert set(lies) <= set(expected)  # nothing else is counted
    assert found["false captions"] == ("1/1" if lies else "0/1")


@pytest.mark.parametrize(
    "references",
    [
        ["A dog runs.", "a red circle left of a blue star"],
        ["a red circle left of a blue star", "a red circle left of a blue cross"],  # of two scenes
        [
            "a green cross is between a pink square and a red star"
        ],  # which does not say in what direction
        ["a red circle"],
        ["a red circle at the top", "a red circle at the bottom"],
        [""],
    ],
)
def test_other_references_are_refused(references):
    assert scene_of(tuple(references)) is None
    with refuses("drawn scenes"):
        DrawnScenes().compute([["a red circle"]] * 2, [PAIR, references])


def test_scores_of_a_corpus_and_of_its_samples():
    row = "pink square then red star from top to bottom"
    captions = ["a red circle above a blue cross", row, "a red circle"]
    scorer = Scorer([PAIR, ROW, ONE], [METRIC])
    scores = scorer.score(dict(enumerate(captions)))
    shares = {
        "false captions": 1 / 3,
        "absent objects": 1 / 5,
        "absent colours": 0,
        "absent shapes": 1 / 5,
        "wrong relations": 0,
        MANY: 0,
        FEW: 1 / 3,
        LEFT: 2 / 6,
    }  # nothing was said of sizes and places
    assert scores.corpus == pytest.approx({name: 100 * share for name, share in shares.items()})
    assert scores.hallucinated == [["blue cross"], [], []]
    assert [image["absent objects"] for image in scores.per_image] == [50, 0, 0]

    others = scorer.score({0: PAIR[0], 1: ROW[0], 2: "a large red circle at the top"})
    found = compared(scores, others)
    assert {*NAMES} - {*found} == {"wrong sizes", "wrong places"}  # of which one side said nothing
    absent = found["absent objects"]
    assert (absent.ours, absent.theirs, absent.difference) == pytest.approx((20, 0, 20))
    assert absent.low < 20 < absent.high
    assert found["wrong relations"].low is None  # one image alone has any


EXPERIMENTS = Path(metric.__file__).parents[1]
RECORDED = [
    file.parent
    for file in sorted(EXPERIMENTS.glob("*/*/scores.json"))
    if "false captions" in read_json(file)["scores"]
]


@pytest.mark.parametrize("room", sorted({folder.parent.name for folder in RECORDED}))
def test_records_have_the_scores_of_their_captions(room):
    """Of the whole split as the run logged them, in float32, and those of each caption."""
    for folder in RECORDED:
        if folder.parent.name != room:
            continue
        records = read_records(folder)
        scorer = Scorer([record.references for record in records], [METRIC])
        found = scorer.score({n: record.caption for n, record in enumerate(records)})
        stored = read_json(folder / "scores.json")
        known = {name: stored["scores"][name] for name in found.corpus}
        assert found.corpus == pytest.approx(known, rel=1e-5), folder
        assert scorer.signatures.items() <= stored["provenance"]["signatures"].items()
        for record, scores, absent in zip(
            records, found.per_image, found.hallucinated, strict=True
        ):
            assert record.scores.keys() == {*OF_IMAGES}
            told = {name: float("nan") if x is None else x for name, x in record.scores.items()}
            assert told == pytest.approx(scores, nan_ok=True), (folder, record.image_id)
            assert record.hallucinated == absent


@pytest.fixture
def asked(elsewhere):
    return [*SHAPES, f"data.metrics=[{METRIC}]", "trainer.max_epochs=1"]


def test_of_a_run_and_of_an_evaluation_of_its_checkpoint(asked, elsewhere, printed):
    """Also where the score chooses the checkpoint."""
    by = ["callbacks.checkpoint.monitor=val/false captions", "callbacks.checkpoint.mode=min"]
    printed(run.main, *asked, *by)
    (folder,) = (elsewhere / "runs").iterdir()
    assert any("val/false captions" in row for row in rows_of(folder))
    scores, provenance, lines = read(folder)
    printed(evaluation.main, f"checkpoint={folder}/checkpoints/best.ckpt", "metrics=[BLEU]")
    again, _, lines_again = read("evaluate")
    assert {"false captions", "objects left out"} <= scores.keys()
    assert {name: again[name] for name in NAMES if name in again} == pytest.approx(
        {name: scores[name] for name in NAMES if name in scores}
    )
    assert provenance["monitor"] == "val/false captions"
    assert provenance["signatures"]["hallucination"] == "hallucination|truth:drawn scenes"
    absent = [line["hallucinated"] for line in lines]
    assert [line["hallucinated"] for line in lines_again] == absent
    assert None not in absent


def test_the_most_false_captions_are_not_the_best(asked, refused):
    by = ["callbacks.checkpoint.monitor=val/false captions", "callbacks.checkpoint.mode=max"]
    assert "callbacks.checkpoint.mode=max" in refused(run.main, *asked, *by, out=None)
