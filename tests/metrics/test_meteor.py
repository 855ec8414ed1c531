"""METEOR's process: awkward captions, a German locale, death and silence. Its values are checked in test_scorer.py."""

import os
import signal
import sys
import threading

import pytest

from captioning.errors import CaptioningError
from captioning.metrics.meteor import Meteor

needs_signals = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")


def test_awkward_captions_keep_their_places_under_a_german_locale(monkeypatch):
    # Left to that locale, METEOR dies of its first EVAL. test_java.py has the other ways to ask for it.
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Duser.language=de -Duser.country=DE")
    dog = ["a dog runs on the beach", "the dog is running"]
    long = " ".join(f"word{i % 50}" for i in range(10_000))
    candidates = [
        "",
        "a dog ||| runs",
        "a dog\nruns",
        "😀",
        "a\x00\x0b\x1b dog\r\nruns",
        long,
        "\ud800",
        "||||",
        "a dog runs",
    ]
    with Meteor() as meteor:
        corpus, per_image = meteor.score([dog] * len(candidates), candidates)
        again = meteor.score([["a ||| dog\r\nruns", ""]], ["a dog runs"])
    assert len(per_image) == len(candidates)
    perfect = per_image[-1]
    assert 0 < corpus < perfect < 1
    assert per_image[0] == per_image[3] == per_image[6] == per_image[7] == 0
    assert per_image[1] == per_image[2] == perfect
    assert 0 < per_image[4] <= perfect
    assert again[0] == pytest.approx(1.0)
    assert again[1] == [pytest.approx(1.0)]


@needs_signals
def test_killed_in_the_middle_is_told_at_once():
    with Meteor(timeout=600) as meteor:
        killer = threading.Timer(1.0, os.kill, (meteor.pid, signal.SIGKILL))
        killer.start()
        with pytest.raises(CaptioningError, match=r"METEOR.*ended unexpectedly with exit status -9"):
            meteor.score([["a dog"]] * 100_000, ["a dog runs"] * 100_000)
        killer.join()


@needs_signals
def test_silence_is_told_after_the_timeout():
    with Meteor(timeout=0.5) as meteor:
        os.kill(meteor.pid, signal.SIGSTOP)
        with pytest.raises(CaptioningError, match=r"METEOR.*said nothing for 0\.5 s"):
            meteor.score([["a dog"]] * 50_000, ["a dog runs"] * 50_000)


@pytest.mark.parametrize(("references", "candidates"), [([], []), ([["a"]], ["a", "b"]), ([["a"], []], ["a", "b"])])
def test_what_it_cannot_score_is_refused(references, candidates):
    with Meteor() as meteor, pytest.raises(CaptioningError, match="METEOR was given"):
        meteor.score(references, candidates)
