"""SPICE where it cannot run: no fitting Java, no network; and what is made of its answers where it can.

Its models are too large to be downloaded for a test, so a program of the test's own stands in for `java` and answers in
the form that pycocoevalcap reads.
"""

import os
import sys
from pathlib import Path

import pytest
from pycocoevalcap.spice import get_stanford_models, spice

from captioning.download.fetch import Connection
from captioning.errors import CaptioningError
from captioning.metrics import Scorer

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="a script stands in for java")

JAVA = """#!{python}
import json, sys
if sys.argv[-1] == "-version":
    sys.exit(print('openjdk version "{version}" 2019-10-15', file=sys.stderr))
if {fail}:
    sys.exit(3)
asked = json.load(open(sys.argv[sys.argv.index("-jar") + 2]))
scores = [0.5 if "dog" in image["test"] else None for image in asked]
answer = [{{"image_id": image["image_id"], "scores": {{"All": {{"f": f}}}}}} for image, f in zip(asked, scores)]
json.dump(answer[::-1], open(sys.argv[sys.argv.index("-out") + 1], "w"))
"""


def install_java(folder: Path, monkeypatch: pytest.MonkeyPatch, version: str, fail: bool = False) -> None:
    java = folder / "java"
    java.write_text(JAVA.format(python=sys.executable, version=version, fail=fail))
    java.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of pycocoevalcap's own, so that nothing changes there, without models and without a network."""
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # where nothing answers
    monkeypatch.delenv("no_proxy", raising=False)
    folder = tmp_path / "spice"
    (folder / "lib").mkdir(parents=True)
    monkeypatch.setattr(get_stanford_models, "SPICEDIR", str(folder))
    monkeypatch.setattr(spice, "__file__", str(folder / "spice.py"))
    monkeypatch.setattr("captioning.metrics.spice.CONNECTION", Connection(timeout=5, retries=0, backoff=0))
    return folder


def test_offline_it_says_what_to_fetch_and_where_to_put_it(package, tmp_path, monkeypatch, caplog, capfd):
    install_java(tmp_path, monkeypatch, "11.0.4")
    with caplog.at_level("INFO"), pytest.raises(CaptioningError) as failed:
        Scorer([["a dog"]], metrics=["SPICE"])
    (said,) = caplog.messages
    url = "http://nlp.stanford.edu/software/stanford-corenlp-full-2015-12-09.zip"
    for part in ("several hundred MB", url, str(package / "lib")):
        assert part in said
    message = str(failed.value)
    jars = "stanford-corenlp-3.6.0.jar and stanford-corenlp-3.6.0-models.jar"
    for part in ("download failed", "Connection refused", url, jars, str(package / "lib"), "leave SPICE out"):
        assert part in message
    assert "\n" not in message


@pytest.mark.parametrize("version", ["1.7.0_80", "15.0.1", None])
def test_another_java_is_refused_before_any_download(package, tmp_path, monkeypatch, caplog, version):
    if version is None:
        monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    else:
        install_java(tmp_path, monkeypatch, version)
    with (
        caplog.at_level("INFO"),
        pytest.raises(CaptioningError, match=r"version 8 to 14 on PATH, and .*(is version|none)"),
    ):
        Scorer([["a dog"]], metrics=["BLEU", "SPICE"])
    assert caplog.messages == []


def install_models(package: Path) -> None:
    for name in ("stanford-corenlp-3.6.0.jar", "stanford-corenlp-3.6.0-models.jar"):
        (package / "lib" / name).touch()


@pytest.mark.parametrize("version", ["1.8.0_312", "14"])
def test_scores_in_the_order_of_the_images(package, tmp_path, monkeypatch, caplog, version):
    install_java(tmp_path, monkeypatch, version)
    install_models(package)
    with caplog.at_level("INFO"):
        scorer = Scorer([["a dog runs"], ["Two dogs."]], metrics=["SPICE"])
    assert caplog.messages == []
    scores = scorer.score({0: "A dog!", 1: "The dog"})
    assert scores.corpus == {"SPICE": pytest.approx(50)}
    assert scores.per_image == [{"SPICE": pytest.approx(50)}] * 2


def test_half_of_the_models_is_downloaded_again(package, tmp_path, monkeypatch):
    install_java(tmp_path, monkeypatch, "8")
    (package / "lib" / "stanford-corenlp-3.6.0.jar").touch()
    with pytest.raises(CaptioningError, match="download failed"):
        Scorer([["a dog"]], metrics=["SPICE"])


def test_it_may_be_silent_for_a_while_and_not_for_ever(package, tmp_path, monkeypatch):
    install_java(tmp_path, monkeypatch, "1.8.0_312")
    install_models(package)
    scorer = Scorer([["a dog runs"]], metrics=["SPICE"])
    (tmp_path / "java").write_text("#!/bin/sh\nsleep 1000\n")
    scorer._spice._timeout = 0.2
    with pytest.raises(CaptioningError, match=r"SPICE failed: SPICE .*did not end within 0\.4 s"):
        scorer.score({0: "a dog"})


def test_a_java_that_never_tells_its_version(package, tmp_path, monkeypatch):
    install_java(tmp_path, monkeypatch, "8")
    (tmp_path / "java").write_text("#!/bin/sh\nsleep 1000\n")
    with pytest.raises(
        CaptioningError, match=r"version 8 to 14 on PATH, and java -version .*did not end within 0\.3 s"
    ):
        Scorer([["a dog"]], metrics=["SPICE"], timeout=0.3)


def test_its_failure_is_told(package, tmp_path, monkeypatch):
    install_java(tmp_path, monkeypatch, "1.8.0_312", fail=True)
    install_models(package)
    scorer = Scorer([["a dog runs"]], metrics=["SPICE"])
    with pytest.raises(CaptioningError, match=r"SPICE failed: .*exit status 3.*8 GB"):
        scorer.score({0: "a dog"})
