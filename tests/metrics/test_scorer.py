"""The scores against pycocoevalcap run directly, and numbers worked out by hand; what they are
signed with; a user's metric.
"""

import math
import os
import sys
from importlib.metadata import version

import pytest
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.meteor.meteor import Meteor
from pycocoevalcap.rouge.rouge import Rouge
from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer
from scored import compared

from captioning.data.words import Language
from captioning.errors import CaptioningError
from captioning.metrics import SCORES, Scorer, score_called
from captioning.metrics.attention import STATISTICS
from captioning.metrics.java import find_java
from captioning.metrics.table import scores_of, unsupported_metrics
from captioning.metrics.wording import TrainingCaptions, caption_statistics, wording
from experiments.speech.error_rate import ErrorRate

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
    assert scores.corpus.keys() == expected.keys() | {*UNPENALISED}
    for name, (of_corpus, per_image) in expected.items():
        assert scores.corpus[name] == pytest.approx(100 * of_corpus, abs=1e-9), name
        ours = [image[name] for image in scores.per_image]
        assert ours == pytest.approx([100 * score for score in per_image], abs=1e-9), name
    assert min(scores.corpus.values()) > 1  # equal because they are right, not zero


def test_what_is_started(corpus, started, capfd):
    tokenizer = "edu.stanford.nlp.process.PTBTokenizer"
    assert corpus.scores.corpus
    started.clear()
    assert sum(tokenizer in command for command in corpus.commands) == 2
    assert sum(any("meteor" in word for word in command) for command in corpus.commands) == 1
    assert len(corpus.commands) == 3

    scorer = Scorer([["a dog runs"], ["Mr. Cat sits"]], metrics=["CIDEr", "BLEU"])
    assert started == []
    first, second = (scorer.score({0: "a dog", 1: "a cat"}) for _ in range(2))
    assert first == second
    assert len(started) == 1  # for the references, which have an abbreviation
    assert capfd.readouterr() == ("", "")


CHINESE = [["一只狗在跑。", "狗在草地上跑"], ["两个人，在海边", "海边的人"], ["小女孩走上台阶。"]]
SAID = ["一只狗在草地上", "两个人在跑。", "女孩在走"]


def test_other_languages_are_scored_by_their_own_tokens():
    scorer = Scorer(CHINESE, language=Language("zh", "characters"))
    scores = scorer.score(dict(enumerate(SAID)))
    *references, candidates = (
        [" ".join(text.strip("。").replace("，", "")) for text in texts]
        for texts in (*CHINESE, SAID)
    )
    known, said = dict(enumerate(references)), {i: [text] for i, text in enumerate(candidates)}
    bleu, _ = Bleu().compute_score(known, said, verbose=0)
    expected = dict(zip(BLEU, bleu, strict=True))
    for name, other in {"ROUGE-L": Rouge(), "CIDEr": Cider()}.items():
        expected[name], _ = other.compute_score(known, said)
    assert scores.corpus.keys() == {*expected, *UNPENALISED}  # METEOR does not know Chinese
    assert {name: scores.corpus[name] / 100 for name in expected} == pytest.approx(expected)
    assert "|lang:zh|tok:characters|" in scorer.signatures["CIDEr"]


def test_what_a_language_leaves_out_is_said():
    metrics = ["METEOR", "SPICE", "CIDEr"]
    assert unsupported_metrics(metrics, "en") == []
    (line,) = unsupported_metrics(metrics, "zh")
    assert line.endswith("language=zh: METEOR, SPICE, bad_endings")
    assert unsupported_metrics(metrics, "de")[0].endswith(": SPICE, bad_endings")
    assert scores_of(metrics, "zh") == ["CIDEr"]
    assert scores_of(metrics, "de") == ["METEOR", "CIDEr"]
    assert set(wording([["ein", "Hund"]], "de")) == {*wording([["a"]])} - {"bad_endings"}


REFERENCES = [["a dog"], ["a cat", "the cat"], ["a cow"] * 5]


def test_what_scores_depend_on_is_signed():
    ends = f"|pycocoevalcap:{version('pycocoevalcap')}"
    signed = Scorer(REFERENCES, ["CIDEr", "BLEU", "METEOR", ErrorRate()]).signatures
    assert signed == {
        "CIDEr": f"CIDEr|refs:1-5|lang:en|tok:PTB|variant:CIDEr-D|df:3{ends}",
        "BLEU": f"BLEU|refs:1-5|lang:en|tok:PTB|length:closest{ends}",
        "METEOR": f"METEOR|refs:1-5|lang:en|tok:PTB|jar:1.5{ends}",
        "WER": "WER|refs:1-5|lang:en|tok:PTB",
    }
    german = Scorer(REFERENCES[1:2], ["METEOR"], language=Language("de")).signatures["METEOR"]
    assert german == f"METEOR|refs:2|lang:de|tok:words|jar:1.5|match:exact+stem{ends}"


@pytest.mark.parametrize(
    "references, candidates",
    [
        ([["a dog runs"], ["a cat"]], {0: "...", 1: "😀"}),
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
    scores = Scorer(references, metrics=["ROUGE-L", "CIDEr"]).score(captions)
    assert math.isnan(scores.corpus["CIDEr"])
    assert all(math.isnan(image["CIDEr"]) for image in scores.per_image)
    assert [statistics.names for statistics in scores.statistics] == [("ROUGE-L",)]


def test_awkward_captions_keep_their_places():
    long = " ".join(f"word{i}" for i in range(3000))
    awkward = ["", "a ||| b", "a dog\nruns", "\r\u2028😀", "\x00\x1b", long, '<a href="', "\ud800"]
    references = [["a dog runs home"]] * len(awkward) + [["a cat sits"]]
    scorer = Scorer(references, metrics=["BLEU", "ROUGE-L", "CIDEr"])
    scores = scorer.score(dict(enumerate([*awkward, "a cat sits"])))
    rouge = [image["ROUGE-L"] for image in scores.per_image]
    assert rouge[8] == pytest.approx(100)
    assert rouge[2] == scorer.score({2: "a dog runs"}).corpus["ROUGE-L"] > 50
    assert [rouge[i] for i in (0, 3, 4, 5, 7)] == [0] * 5
    part = scorer.score({8: "a cat sits", 0: "nothing"})  # a part of the images, in ascending order
    assert [image["ROUGE-L"] for image in part.per_image] == pytest.approx([0, 100])


def test_chance_is_what_captions_of_the_next_image_get(corpus):
    references, captions = corpus.references, corpus.candidates
    positions = [7, 2, 5]  # of a part of the split, in any order
    scorer = Scorer(references, ["BLEU", "ROUGE-L", "CIDEr"])
    found = scorer.chance({position: [captions[position]] for position in positions})
    shuffled = {2: captions[5], 5: captions[7], 7: captions[2]}
    expected = Scorer(references, ["BLEU", "CIDEr"]).score(shuffled).corpus
    names = "BLEU-4", "CIDEr"
    assert found == {f"{name} (images shuffled)": expected[name] for name in names}
    assert found.keys() <= SCORES.keys()
    assert scorer.chance({2: ["a dog"]}) == {}


def test_all_that_a_run_scores_is_in_the_table(corpus):
    said = caption_statistics([["a", "dog"]], [True], [[1.0, 1.0]], TrainingCaptions([("a",)]))
    assert {*said, *STATISTICS} <= SCORES.keys()
    for name, score in SCORES.items():
        of_images = [image[name] for image in corpus.scores.per_image if name in image]
        assert bool(of_images) == (score.per_image and name in corpus.scores.corpus)


CODE = '''
from captioning.metrics import Metric, MetricResult

class Lengths(Metric):
    """The words of all captions of an image for each of its references' words."""

    fields = {"by": "words"}

    def compute(self, captions, references, images=None):
        pairs = zip(captions, references, strict=True)
        words = [[len(" ".join(texts).split()) for texts in pair] for pair in pairs]
        return MetricResult.from_means({self.name: [ours / theirs for ours, theirs in words]})

class CIDEr(Lengths):
    name = "CIDEr"
class Broken(Lengths):
    name = "Broken"
    def compute(self, captions, references, images=None):
        if captions[0] == ["a dog"]:
            raise ZeroDivisionError("no words\\nat all")
        return super().compute(captions, references, images)
class Needy(Lengths):
    def __init__(self): ...
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
def test_users_metrics_are_scored_signed_and_resampled():
    scorer = Scorer([["A dog, running", "a dog"], ["a red bus"]], ["ROUGE-L", "my.Lengths"])
    scores = scorer.score({0: ["a dog barks!", "dogs"], 1: "a bus"})
    assert [*scores.corpus] == ["ROUGE-L", "Lengths"]
    assert [image["Lengths"] for image in scores.per_image] == pytest.approx([80, 200 / 3])
    others = scorer.score({0: "a dog", 1: "a big red bus"})
    assert compared(scores, others)["Lengths"].theirs == pytest.approx(100 * (2 / 5 + 4 / 3) / 2)
    assert scorer.signatures["Lengths"] == "Lengths|refs:1-2|lang:en|tok:PTB|by:words"
    assert scores_of(["my.Lengths", "BLEU"]) == ["Lengths", *BLEU]  # which a monitor can name
    assert score_called("Lengths").group == "other scores"


@pytest.mark.usefixtures("my")
def test_a_metric_that_fails_leaves_the_others(caplog):
    references = [["a dog"], ["a red bus"]]
    metrics = ["my.Broken", "CIDEr", "my.Lengths"]
    scorer = Scorer(references, metrics)
    scores = scorer.score({0: "a dog", 1: "a bus"})
    others = Scorer(references, metrics[1:]).score({0: "a dog", 1: "a bus"})
    assert math.isnan(scores.corpus.pop("Broken"))
    assert (scores.corpus, scores.per_image) == (others.corpus, others.per_image)
    (record,) = caplog.records
    assert record.getMessage() == "no Broken: ZeroDivisionError: no words at all"
    assert [*scorer.signatures] == ["CIDEr", "Lengths"]
    again = scorer.score({0: "dogs", 1: "a bus"})
    assert again.corpus["Broken"] == again.corpus["Lengths"]
    assert "Broken" in scorer.signatures


@pytest.mark.usefixtures("my")
@pytest.mark.parametrize(
    "name", ["bleu", "CLIPScore", "my.CIDEr", "my.Needy", "my.Nothing", "my.Missing", "no.F1"]
)
def test_what_cannot_score_is_refused_when_the_scorer_is_made(name):
    with pytest.raises((ValueError, CaptioningError), match=name if "." in name else "one of"):
        Scorer([["a dog"]], ["BLEU", name])
