"""The scores against pycocoevalcap run directly and against numbers worked out by hand; what the scorer starts."""

import math
import os

import pytest
from omegaconf import OmegaConf
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.meteor.meteor import Meteor
from pycocoevalcap.rouge.rouge import Rouge
from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

from captioning.errors import CaptioningError
from captioning.metrics import DEFAULT_METRICS, METRICS, SCORES, Scorer
from captioning.metrics.attention import STATISTICS
from captioning.metrics.java import find_java
from captioning.metrics.wording import Said, TrainingCaptions, of_model

BLEU = ["BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4"]


@pytest.fixture(scope="session")
def their_meteor():
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("PATH", str(find_java().parent), prepend=os.pathsep)
        meteor = Meteor()
    yield meteor
    meteor.meteor_p.stdout.close()
    meteor.meteor_p.stderr.close()


# Their METEOR comes first, so that it loads its tables while ours does.
def test_equal_to_pycocoevalcap(monkeypatch, their_meteor, corpus, run):
    monkeypatch.setenv("PATH", str(find_java().parent), prepend=os.pathsep)
    images = range(len(corpus.candidates))
    references = PTBTokenizer().tokenize({i: [{"caption": text} for text in corpus.references[i]] for i in images})
    candidates = PTBTokenizer().tokenize({i: [{"caption": corpus.candidates[i]}] for i in images})

    bleu, bleu_per_image = Bleu().compute_score(references, candidates, verbose=0)
    expected = dict(zip(BLEU, zip(bleu, bleu_per_image, strict=True), strict=True))
    expected["ROUGE-L"] = Rouge().compute_score(references, candidates)
    expected["CIDEr"] = Cider().compute_score(references, candidates)
    expected["METEOR"] = their_meteor.compute_score(references, candidates)

    assert run.scores.corpus.keys() == expected.keys() | {f"{name} (no brevity penalty)" for name in BLEU}
    for name, (of_corpus, per_image) in expected.items():
        assert run.scores.corpus[name] == pytest.approx(100 * of_corpus, abs=1e-9), name
        ours = [image[name] for image in run.scores.per_image]
        assert ours == pytest.approx([100 * score for score in per_image], abs=1e-9), name
    assert all(image.keys() == expected.keys() for image in run.scores.per_image)
    assert min(run.scores.corpus.values()) > 1  # equal because they are right, not because they are zero


def test_nothing_is_written_into_site_packages(run):
    assert run.after == run.before


def test_processes_are_the_tokenizer_twice_and_meteor_once(run):
    assert sum("edu.stanford.nlp.process.PTBTokenizer" in command for command in run.commands) == 2
    assert sum(any("meteor" in word for word in command) for command in run.commands) == 1
    assert len(run.commands) == 3


def test_only_chosen_metrics_start_a_process_and_references_are_tokenised_once(started):
    scorer = Scorer([["a dog runs"], ["a cat sits"]], metrics=["CIDEr", "BLEU"])
    assert started == []
    first = scorer.score({0: "a dog", 1: "a cat"})
    second = scorer.score({0: "a dog", 1: "a cat"})
    assert first == second
    assert first.corpus.keys() == {*BLEU, *(f"{name} (no brevity penalty)" for name in BLEU), "CIDEr"}
    assert len(started) == 3  # references, and candidates twice
    assert all("edu.stanford.nlp.process.PTBTokenizer" in command for command in started)


def test_bleu_by_hand():
    references = [["a b c d e f", "a b x y"], ["g h i j"]]
    scores = Scorer(references, metrics=["BLEU"]).score({0: "A b c d", 1: "g h, z"})
    # Lengths: 4 + 3; the closest references have 4 (not 6) + 4.
    # Matches of 1- to 4-grams: 4 + 2 of 7, 3 + 1 of 5, 2 + 0 of 3, 1 of 1.
    precisions = [6 / 7, 4 / 5, 2 / 3, 1 / 1]
    penalty = math.exp(1 - 8 / 7)
    for n in range(1, 5):
        expected = 100 * math.prod(precisions[:n]) ** (1 / n)
        assert scores.corpus[f"BLEU-{n} (no brevity penalty)"] == pytest.approx(expected, abs=1e-5)
        assert scores.corpus[f"BLEU-{n}"] == pytest.approx(penalty * expected, abs=1e-5)
    assert [image["BLEU-1"] for image in scores.per_image] == pytest.approx(
        [100, 100 * 2 / 3 * math.exp(-1 / 3)], abs=1e-5
    )


def test_corpus_bleu_is_not_the_mean_of_the_images(run):
    of_images = [image["BLEU-4"] for image in run.scores.per_image]
    assert abs(run.scores.corpus["BLEU-4"] - sum(of_images) / len(of_images)) > 1


def test_no_penalty_where_captions_are_longer():
    scores = Scorer([["a dog"]], metrics=["BLEU"]).score({0: "a dog runs on and on"})
    assert scores.corpus["BLEU-2"] == scores.corpus["BLEU-2 (no brevity penalty)"] > 0


@pytest.mark.parametrize("empty", ["", "...", "😀"])
def test_captions_without_a_word_score_zero(empty):
    scores = Scorer([["a dog runs"], ["a cat"]], metrics=["BLEU", "ROUGE-L", "CIDEr"]).score({0: empty, 1: empty})
    assert all(score == pytest.approx(0, abs=1e-3) for score in scores.corpus.values())
    assert all(score == 0 for name, score in scores.corpus.items() if "BLEU" in name)


def test_references_without_a_word_score_zero():
    scores = Scorer([["!"], ["?"]], metrics=["BLEU", "CIDEr"]).score({0: "a dog", 1: "a cat"})
    assert scores.corpus["CIDEr"] == 0
    assert scores.corpus["BLEU-4"] == pytest.approx(0, abs=1e-3)


def test_awkward_captions_keep_their_places():
    long = " ".join(f"word{i}" for i in range(3000))
    awkward = ["", "a ||| b", "a dog\nruns", "\r\u2028😀", "\x00\x1b", long, '<a href="', "\ud800"]
    scorer = Scorer([["a dog runs home"]] * len(awkward) + [["a cat sits"]], metrics=["BLEU", "ROUGE-L", "CIDEr"])
    scores = scorer.score(dict(enumerate([*awkward, "a cat sits"])))
    rouge = [image["ROUGE-L"] for image in scores.per_image]
    assert len(rouge) == len(awkward) + 1
    assert rouge[-1] == pytest.approx(100)
    assert rouge[2] == scorer.score({2: "a dog runs"}).corpus["ROUGE-L"] > 50
    assert [rouge[i] for i in (0, 3, 4, 5, 7)] == [0] * 5


def test_part_of_the_images_in_ascending_order():
    references = [["a dog"], ["a cat"], ["two birds"]]
    scores = Scorer(references, metrics=["ROUGE-L"]).score({2: "two birds", 0: "nothing"})
    assert [image["ROUGE-L"] for image in scores.per_image] == pytest.approx([0, 100])
    assert scores.corpus["ROUGE-L"] == pytest.approx(50)


def test_all_that_a_run_scores_is_in_the_table(run):
    said = of_model([Said("a dog", True, [1.0, 1.0])], TrainingCaptions([("a",)]))
    every = [*run.scores.corpus, "SPICE", *said, *STATISTICS, "pointing", "pointing (images shuffled)"]
    assert sorted(SCORES) == sorted(every)
    assert {name for name, score in SCORES.items() if score.per_image} == {*run.scores.per_image[0], "SPICE"}
    means = {name for name, score in SCORES.items() if score.mean}
    for name in means - {"SPICE"}:
        of_images = [image[name] for image in run.scores.per_image]
        assert run.scores.corpus[name] == pytest.approx(sum(of_images) / len(of_images))


def test_the_default_is_all_but_spice_in_a_fixed_order():
    assert Scorer([["a dog"]], metrics=DEFAULT_METRICS[::-1]).metrics == DEFAULT_METRICS == Scorer([["a dog"]]).metrics
    assert set(METRICS) - set(DEFAULT_METRICS) == {"SPICE"}
    assert Scorer([["a dog"]], metrics=OmegaConf.create(["CIDEr", "BLEU"])).metrics == ("BLEU", "CIDEr")


@pytest.mark.parametrize(
    ("references", "metrics", "key"),
    [
        ([["a dog"]], ["bleu"], "metrics"),
        ([["a dog"]], ["BLEU", "spice"], "metrics"),
        ([["a dog"]], [], "metrics"),
        ([["a dog"]], "BLEU", "metrics"),
        ([["a dog"], []], ["BLEU"], "position 1"),
    ],
)
def test_refused(references, metrics, key):
    with pytest.raises((ValueError, CaptioningError), match=key):
        Scorer(references, metrics=metrics)


@pytest.mark.parametrize("candidates", [{}, {2: "a"}, {-1: "a"}])
def test_positions_that_are_not_there_are_refused(candidates):
    with pytest.raises(CaptioningError, match=r"at least one|0 to 1 only"):
        Scorer([["a"], ["b"]]).score(candidates)


def test_nothing_is_printed(capfd, started):
    Scorer([["a dog"], ["a cat"]], metrics=["BLEU", "ROUGE-L", "CIDEr"]).score({0: "a dog", 1: "cats"})
    assert started
    assert capfd.readouterr() == ("", "")
