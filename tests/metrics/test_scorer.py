"""The scores against pycocoevalcap run directly and against numbers worked out by hand; a user's
metric beside them.
"""

import json
import math
import os
import sys
from pathlib import Path

import pytest
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.meteor.meteor import Meteor
from pycocoevalcap.rouge.rouge import Rouge
from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

from captioning import evaluate
from captioning.data.words import Language
from captioning.decoding import GeneratedCaption
from captioning.errors import CaptioningError
from captioning.metrics import DEFAULT_METRICS, SCORES, Scorer, score_called
from captioning.metrics.attention import STATISTICS
from captioning.metrics.hallucination import NAMES as CHAIR
from captioning.metrics.java import find_java
from captioning.metrics.scenes import NAMES as OF_SCENES
from captioning.metrics.scenes import OF_IMAGES
from captioning.metrics.scorer import left_out, scores_of
from captioning.metrics.wording import TrainingCaptions, caption_statistics, wording
from captioning.report.compare.__main__ import main as compare

BLEU = ["BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4"]
UNPENALISED = [f"{name} (no brevity penalty)" for name in BLEU]


@pytest.fixture
def their_meteor(monkeypatch):
    monkeypatch.setenv("PATH", str(find_java().parent), prepend=os.pathsep)
    meteor = Meteor()
    yield meteor
    meteor.meteor_p.stdout.close()
    meteor.meteor_p.stderr.close()


def test_equal_to_pycocoevalcap(
    their_meteor, corpus
):  # their METEOR comes first, to load its tables while ours does
    images = range(len(corpus.candidates))
    references = PTBTokenizer().tokenize(
        {i: [{"caption": text} for text in corpus.references[i]] for i in images}
    )
    candidates = PTBTokenizer().tokenize({i: [{"caption": corpus.candidates[i]}] for i in images})
    bleu, bleu_per_image = Bleu().compute_score(references, candidates, verbose=0)
    expected = dict(zip(BLEU, zip(bleu, bleu_per_image, strict=True), strict=True))
    others = {"ROUGE-L": Rouge(), "CIDEr": Cider(), "METEOR": their_meteor}
    expected |= {
        name: other.compute_score(references, candidates) for name, other in others.items()
    }

    scores = corpus.scores
    assert scores.corpus.keys() == expected.keys() | set(UNPENALISED)
    for name, (of_corpus, per_image) in expected.items():
        assert scores.corpus[name] == pytest.approx(100 * of_corpus, abs=1e-9), name
        ours = [image[name] for image in scores.per_image]
        assert ours == pytest.approx([100 * score for score in per_image], abs=1e-9), name
    assert all(image.keys() == expected.keys() for image in scores.per_image)
    assert (
        min(scores.corpus.values()) > 1
    )  # equal because they are right, not because they are zero
    of_images = [image["BLEU-4"] for image in scores.per_image]
    assert abs(scores.corpus["BLEU-4"] - sum(of_images) / len(of_images)) > 1  # no mean


def test_what_is_started_and_left_behind(corpus, started, capfd):
    assert not [path for path in corpus.written if path != os.devnull]
    tokenizer = "edu.stanford.nlp.process.PTBTokenizer"
    assert sum(tokenizer in command for command in corpus.commands) == 2
    assert sum(any("meteor" in word for word in command) for command in corpus.commands) == 1
    assert len(corpus.commands) == 3

    scorer = Scorer([["a dog runs"], ["Mr. Cat sits"]], metrics=["CIDEr", "BLEU"])
    assert started == []
    first, second = (scorer.score({0: "a dog", 1: "a cat"}) for _ in range(2))
    assert first == second
    assert first.corpus.keys() == {*BLEU, *UNPENALISED, "CIDEr"}
    assert [tokenizer in command for command in started] == [
        True
    ]  # for the references, which have an abbreviation
    assert capfd.readouterr() == ("", "")


CHINESE = [["一只狗在跑。", "狗在草地上跑"], ["两个人，在海边", "海边的人"], ["小女孩走上台阶。"]]
SAID = ["一只狗在草地上", "两个人在跑。", "女孩在走"]


def test_other_languages_are_scored_by_their_own_tokens():
    scorer = Scorer(CHINESE, metrics=DEFAULT_METRICS, language=Language("zh", "characters"))
    scores = scorer.score(dict(enumerate(SAID)))
    spaced = [
        [" ".join(text.strip("。").replace("，", "")) for text in each] for each in (*CHINESE, SAID)
    ]
    references, candidates = (
        dict(enumerate(spaced[:-1])),
        {i: [text] for i, text in enumerate(spaced[-1])},
    )
    bleu, _ = Bleu().compute_score(references, candidates, verbose=0)
    others = {"ROUGE-L": Rouge(), "CIDEr": Cider()}
    expected = dict(zip(BLEU, bleu, strict=True))
    expected |= {
        name: other.compute_score(references, candidates)[0] for name, other in others.items()
    }
    assert scores.corpus.keys() == {*expected, *UNPENALISED}  # METEOR does not know Chinese
    assert {name: scores.corpus[name] / 100 for name in expected} == pytest.approx(expected)
    assert scorer.signatures.keys() == {"BLEU", "ROUGE-L", "CIDEr"}
    assert "|lang:zh|tok:characters|" in scorer.signatures["CIDEr"]


def test_what_a_language_leaves_out_is_said():
    metrics = ["METEOR", "SPICE", "CIDEr"]
    assert left_out(metrics, "en") == []
    (line,) = left_out(metrics, "zh")
    assert line.endswith("language=zh: METEOR, SPICE, bad_endings")
    assert left_out(metrics, "de")[0].endswith(": SPICE, bad_endings")
    assert scores_of(metrics, "zh") == ["CIDEr"]
    assert scores_of(metrics, "de") == ["METEOR", "CIDEr"]
    assert Scorer([["ein Hund"]], metrics=metrics, language=Language("de")).metrics == (
        "METEOR",
        "CIDEr",
    )
    assert set(wording([["ein", "Hund"]], "de")) == {*wording([["a"]])} - {"bad_endings"}


def test_bleu_by_hand():
    references = [["a b c d e f", "a b x y"], ["g h i j"]]
    scores = Scorer(references, metrics=["BLEU"]).score({0: "A b c d", 1: "g h, z"})
    # Lengths: 4 + 3; the closest references have 4 (not 6) + 4.
    # Matches of 1- to 4-grams: 4 + 2 of 7, 3 + 1 of 5, 2 + 0 of 3, 1 of 1.
    precisions = [6 / 7, 4 / 5, 2 / 3, 1 / 1]
    penalty = math.exp(1 - 8 / 7)
    for n, (name, unpenalised) in enumerate(zip(BLEU, UNPENALISED, strict=True), 1):
        expected = 100 * math.prod(precisions[:n]) ** (1 / n)
        assert scores.corpus[unpenalised] == pytest.approx(expected, abs=1e-5)
        assert scores.corpus[name] == pytest.approx(penalty * expected, abs=1e-5)
    of_images = [100, 100 * 2 / 3 * math.exp(-1 / 3)]
    assert [image["BLEU-1"] for image in scores.per_image] == pytest.approx(of_images, abs=1e-5)
    longer = Scorer([["a dog"]], metrics=["BLEU"]).score({0: "a dog runs on and on"}).corpus
    assert longer["BLEU-2"] == longer["BLEU-2 (no brevity penalty)"] > 0


@pytest.mark.parametrize(
    ("references", "candidates"),
    [
        *(([["a dog runs"], ["a cat"]], {0: empty, 1: empty}) for empty in ("", "...", "😀")),
        ([["!"], ["?"], ["a bird"]], {0: "a dog", 1: "a cat", 2: ""}),
    ],
)
def test_without_a_word_there_is_no_score(references, candidates):
    scores = Scorer(references, metrics=["BLEU", "ROUGE-L", "CIDEr"]).score(candidates).corpus
    assert all(score == pytest.approx(0, abs=1e-3) for score in scores.values())
    assert scores["CIDEr"] == 0


@pytest.mark.parametrize("references", [[["a dog runs"]], [["a dog", "a cat"], ["a cat", "a dog"]]])
def test_cider_that_is_zero_for_any_captions_is_no_score(references):
    """No n-gram of references that all images share has a weight: pycocoevalcap gives 0 for a
    reference itself.
    """
    captions = {row: texts[0] for row, texts in enumerate(references)}
    by_image = dict(enumerate(references))
    assert Cider().compute_score(by_image, {row: [text] for row, text in captions.items()})[0] == 0
    scores = Scorer(references, metrics=["ROUGE-L", "CIDEr"]).score(captions)
    assert math.isnan(scores.corpus["CIDEr"])
    assert all(math.isnan(image["CIDEr"]) for image in scores.per_image)
    assert [each.names for each in scores.statistics] == [("ROUGE-L",)]  # nothing to compare by


def test_awkward_captions_keep_their_places():
    long = " ".join(f"word{i}" for i in range(3000))
    awkward = ["", "a ||| b", "a dog\nruns", "\r\u2028😀", "\x00\x1b", long, '<a href="', "\ud800"]
    scorer = Scorer(
        [["a dog runs home"]] * len(awkward) + [["a cat sits"]],
        metrics=["BLEU", "ROUGE-L", "CIDEr"],
    )
    scores = scorer.score(dict(enumerate([*awkward, "a cat sits"])))
    rouge = [image["ROUGE-L"] for image in scores.per_image]
    assert len(rouge) == len(awkward) + 1
    assert rouge[-1] == pytest.approx(100)
    assert rouge[2] == scorer.score({2: "a dog runs"}).corpus["ROUGE-L"] > 50
    assert [rouge[i] for i in (0, 3, 4, 5, 7)] == [0] * 5
    part = scorer.score({8: "a cat sits", 0: "nothing"})  # a part of the images, in ascending order
    assert [image["ROUGE-L"] for image in part.per_image] == pytest.approx([0, 100])


def test_all_that_a_run_scores_is_in_the_table(corpus):
    generated = [GeneratedCaption([4, 2], 0.0, None, entropy=[1.0, 1.0])]
    said = caption_statistics([["a", "dog"]], generated, TrainingCaptions([("a",)]))
    optional = {name for name, score in SCORES.items() if not score.default}
    assert "SPICE" in optional
    every = [
        *corpus.scores.corpus,
        *optional,
        *said,
        *STATISTICS,
        "pointing",
        "pointing (images shuffled)",
    ]
    every += ["attention on image", "attention on memory", *CHAIR, *OF_SCENES]
    assert sorted(SCORES) == sorted(every)
    assert {name for name, score in SCORES.items() if score.per_image} == {
        *corpus.scores.per_image[0],
        *optional,
        *CHAIR,
        *OF_IMAGES,
    }
    for name in {name for name, score in SCORES.items() if score.mean} - optional:
        of_images = [image[name] for image in corpus.scores.per_image]
        assert corpus.scores.corpus[name] == pytest.approx(sum(of_images) / len(of_images))


CODE = '''
class Overlap:
    def compute_score(self, references, captions):
        """The share of different words that some reference has."""
        scores = []
        for image, (caption,) in captions.items():
            words, known = set(caption.split()), set(" ".join(references[image]).split())
            scores.append(len(words & known) / len(words))
        return sum(scores) / len(scores), scores

class Best(Overlap):
    def compute_score(self, references, captions):
        _, scores = super().compute_score(references, captions)
        return max(scores), scores

class CIDEr(Overlap): ...
class Needy:
    def __init__(self, size): ...
class Nothing: ...
'''


@pytest.fixture
def my(tmp_path, monkeypatch):
    """A module of the user's."""
    (tmp_path / "my.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("my", None)


@pytest.mark.usefixtures("my")
def test_a_users_metric_is_scored_beside_ours():
    scorer = Scorer(
        [["A dog, running", "a dog"], ["a red bus"]], metrics=["my.Overlap", "ROUGE-L", "my.Best"]
    )
    scores = scorer.score({0: "a dog barks!", 1: "a bus"})
    assert [*scores.corpus] == ["ROUGE-L", "Overlap", "Best"]
    assert scores.corpus["Overlap"] == pytest.approx(100 * (2 / 3 + 1) / 2)
    assert scores.corpus["Best"] == 100
    assert [image["Overlap"] for image in scores.per_image] == pytest.approx([200 / 3, 100])
    # of what is no mean over images the bootstrap knows nothing
    assert [each.names for each in scores.statistics] == [("ROUGE-L",), ("Overlap",)]
    assert scores_of(["my.Overlap", "BLEU"]) == [*BLEU, "Overlap"]  # which a monitor can name
    assert score_called("Overlap").group == "other scores"


@pytest.mark.usefixtures("my")
def test_an_evaluation_compares_a_users_metric(elsewhere, monkeypatch, capsys):
    references = [
        {"image_id": i, "id": i, "caption": text}
        for i, text in enumerate(["a dog", "a red bus", "a cat"])
    ]
    Path("references.json").write_text(
        json.dumps({"images": [{"id": i} for i in range(3)], "annotations": references})
    )
    for name, texts in {
        "ours": ["a dog", "a bus", "a cat"],
        "others": ["a dog", "no bus", "cats"],
    }.items():
        Path(f"{name}.json").write_text(
            json.dumps([{"image_id": i, "caption": text} for i, text in enumerate(texts)])
        )
    files = ["captions=ours.json", "references=references.json"]
    command = ["captioning.evaluate", *files, "metrics=[BLEU,my.Overlap]", "name=e", "runs=runs"]
    monkeypatch.setattr(sys, "argv", command)
    evaluate.main()
    assert json.loads(Path("runs/e/scores.json").read_text())["scores"]["Overlap"] == pytest.approx(
        100
    )
    files = ["ours.json", "others.json", "references=references.json"]
    command = ["captioning.compare", *files, "metrics=[BLEU,my.Overlap]"]
    monkeypatch.setattr(sys, "argv", command)
    compare()
    compared = json.loads(Path("compare/compare.json").read_text())["scores"]["Overlap"]
    assert (compared["ours"], compared["theirs"]) == pytest.approx((100, 50))
    lines = [json.loads(line) for line in Path("runs/e/captions.jsonl").read_text().splitlines()]
    assert all("Overlap" in line["scores"] for line in lines)
    assert "Overlap " in capsys.readouterr().out


@pytest.mark.usefixtures("my")
@pytest.mark.parametrize(
    ("metrics", "key"),
    [
        *[(metrics, "metrics") for metrics in (["bleu"], ["BLEU", "spice"], [], "BLEU")],
        *[
            ([name], name)
            for name in ("my.CIDEr", "my.Needy", "my.Nothing", "my.Missing", "missing_module.F1")
        ],
    ],
)
def test_what_cannot_score_is_refused_when_the_scorer_is_made(metrics, key):
    with pytest.raises((ValueError, CaptioningError), match=key):
        Scorer([["a dog"]], metrics=metrics)
    assert (
        Scorer([["a dog"]], metrics=DEFAULT_METRICS[::-1]).metrics
        == DEFAULT_METRICS
        == Scorer([["a dog"]]).metrics
    )
