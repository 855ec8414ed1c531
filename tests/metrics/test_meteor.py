"""METEOR from sums of per-image numbers, against the jar itself; its one process."""

import shutil
import signal

import numpy as np
import pytest
from processes import in_session, python, wait
from scored import CANDIDATES, CHOICES, REFERENCES, counts

from captioning.data.words import Language
from captioning.metrics import Scorer, meteor
from captioning.metrics.meteor import MATCHING, Meteor, MeteorProcess, process_of
from captioning.metrics.statistics import Statistics

DOG = ["a dog runs on the beach", "the dog is running"]
LONG = " ".join(f"word{i % 50}" for i in range(5000))
AWKWARD = [
    "",
    "\U0001f600",
    "\ud800",
    "||||",
    "a dog ||| runs",
    "a dog\nruns",
    "a\x00\x0b\x1b dog\r\nruns",
    LONG,
    "a dog runs",
]


@pytest.fixture(scope="module")
def matched():
    """METEOR's statistics of the six images, then of awkward captions."""
    references = [*REFERENCES, *[DOG] * len(AWKWARD), ["a ||| dog\r\nruns", ""]]
    captions = [[text] for text in (*CANDIDATES, *AWKWARD, "a dog runs")]
    return Meteor(timeout=600).compute(captions, references).statistics


def evaluated(language, groups):
    """What the jar makes of groups of rows: the score of each row, and of all of them."""
    java = process_of(language).start()
    for rows in groups:
        lines = [" ".join(f"{number:g}" for number in row) for row in rows]
        print(" ||| ".join(["EVAL", *lines]), file=java.stdin, flush=True)
    answers = iter(java.stdout.readline, "")
    return [([float(next(answers)) for _ in rows], float(next(answers))) for rows in groups]


def test_meteor(matched):
    # what the jar counts a chunk too many is corrected in the rows
    answers = evaluated("en", [[matched.rows[i] for i in choice] for choice in CHOICES])
    six = Statistics(matched.names, matched.rows[:6], matched.formula)
    for choice, (per_image, corpus) in zip(CHOICES, answers, strict=True):
        assert six.scores(counts(choice, 6))[0] / 100 == pytest.approx([corpus], abs=1e-11)
        of_images = six.scores(np.eye(6)[list(choice)])[:, 0] / 100
        assert of_images == pytest.approx(per_image, abs=1e-11)
    partly, whole = six.scores(np.eye(6))[[0, 2], 0]
    assert 0 < partly < whole == pytest.approx(100)


def test_awkward_captions_keep_their_places(matched):
    *scores, perfect, whole = matched.scores(np.eye(len(matched.rows)))[6:, 0]
    assert scores[:4] == [0] * 4
    assert scores[4] == scores[5] == perfect < whole == pytest.approx(100)
    assert 0 < scores[6] <= perfect


@pytest.mark.parametrize("code", ["de", "cs", "fr", "sv"])
def test_other_languages_are_the_jars(code):
    """Nothing is matched by paraphrases, which are English."""
    references = [
        ["ein kleiner hund läuft über die wiesen", "die hunde"],
        ["zwei männer sitzen"],
        ["les garçons jouent"],
    ]
    captions = [["der hund läuft über eine wiese"], ["zwei männer sitzen"], ["des garçon"]]
    result = Meteor(code).compute(captions, references)
    answers = evaluated(code, [[row] for row in result.statistics.rows])
    scores = result.per_image["METEOR"]
    assert scores == pytest.approx([score for _, score in answers], abs=1e-9)
    assert scores[1] == max(scores) > 0.9


def test_the_packages_may_be_in_a_folder_of_any_name(tmp_path, monkeypatch):
    lines = ["SCORE ||| a dog runs ||| a dog is running fast"]
    expected = process_of("en").ask(lines, 60)
    folder = tmp_path / "50 % a=b"
    folder.mkdir()
    shutil.copy(meteor.JAR, folder)  # a link is resolved
    (folder / "data").symlink_to(meteor.JAR.with_name("data"))
    monkeypatch.setattr(meteor, "JAR", folder / meteor.JAR.name)
    process = MeteorProcess(MATCHING["en"])
    assert (process.ask(lines, 60) == expected).all()
    process.start().kill()


def test_one_process_answers_every_scorer_and_is_started_again_if_it_dies():
    references = [["un chien court", "le chien"], ["un chat noir"]]
    captions = {0: "un chien noir", 1: "des chats"}
    scorer, other = (Scorer(references, ["METEOR"], language=Language("fr")) for _ in range(2))
    scorer.start()
    java = process_of("fr").start()
    scores = [scorer.score(captions), scorer.score({0: "chien"}), other.score(captions)]
    assert scores[0] == scores[2]
    assert process_of("fr").start() is java
    java.kill()
    java.wait()
    assert other.score(captions) == scores[0]
    assert process_of("fr").start() is not java


def test_long_questions_and_answers_do_not_wait_for_each_other():
    """More than the pipes in either direction hold; French has no tables to load."""
    text = "le petit chien court dans le jardin avec un ballon rouge"
    captions = [[f"{text} {number}"] for number in range(2000)]
    result = Meteor("fr", 600).compute(captions, captions)
    assert result.per_image["METEOR"] == pytest.approx(np.ones(2000))


def test_what_was_asked_before_is_not_asked_again(monkeypatch):
    process = MeteorProcess(MATCHING["fr"])
    lines = [f"SCORE ||| un chien noir ||| {text}" for text in ("un chien", "le chat", "un chien")]
    first = process.ask(lines, 600)
    asked = []
    answers = process.start().answers
    monkeypatch.setattr(
        process.start(), "answers", lambda new, limit: asked.extend(new) or answers(new, limit)
    )
    further = "SCORE ||| un chien noir ||| noir"
    again = process.ask([*lines[::-1], further], 600)
    assert asked == [further]
    assert (again[:3] == first[::-1]).all()
    assert (first[0] == first[2]).all()
    assert (first[0] != first[1]).any()
    process.start().kill()


KILLED = """
import os, signal
from captioning.metrics.meteor import Meteor, process_of
Meteor("fr").compute([["un chien"]], [["un chien"]])
print(process_of("fr").start().pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_it_ends_with_a_run_that_is_killed():
    ended = python("-c", KILLED)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    wait(lambda: not in_session(int(ended.stdout)))
