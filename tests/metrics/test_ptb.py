"""The tokenizer against pycocoevalcap's, and texts that could shift lines."""

import os
import random

import pytest
from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

from captioning.metrics.java import find_java
from captioning.metrics.ptb import ptb_tokenize


def test_equal_to_pycocoevalcap(monkeypatch, corpus):
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
        "123",
    ]
    expected = PTBTokenizer().tokenize({i: [{"caption": text}] for i, text in enumerate(texts)})
    assert ptb_tokenize(texts) == [expected[i][0] for i in range(len(texts))]


def test_by_hand():
    texts = ['A man\'s dog: "Well-fed"!', "...", "Don't (ever)"]
    # Brackets stay: the list of punctuation to remove has them in capitals, and the tokens are in lower case by then.
    assert ptb_tokenize(texts) == ["a man 's dog well-fed", "", "do n't -lrb- ever -rrb-"]


def test_line_separators_are_spaces():
    separators = ["\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\n\n\r"]
    texts = [text for mark in separators for text in (f"a{mark}dog", f"{mark}cat", f"bird{mark}")]
    assert ptb_tokenize(texts) == ["a dog", "cat", "bird"] * len(separators)


def test_no_character_shifts_lines():
    codes = [*range(0x300), *range(0x2000, 0x2070), 0xD800, 0xDFFF, 0xFEFF, 0xFFFE, 0xFFFF, 0x1F600, 0x10FFFF]
    texts = [text for code in codes for text in (f"x{chr(code)}y", f"number{code}")]
    assert ptb_tokenize(texts)[1::2] == [f"number{code}" for code in codes]


def test_no_mark_up_shifts_lines():
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
        "etc.",
        "?",
        "$",
        "",
    ]
    choice = random.Random(7)
    texts = ["".join(choice.choices(pieces, k=choice.randrange(7))) for _ in range(5000)]
    assert len(ptb_tokenize(texts)) == 5000


@pytest.mark.parametrize("texts", [[""], ["", ""], ["a", ""], ["", "a", "", ""]])
def test_empty_texts_keep_their_places(texts):
    assert ptb_tokenize(texts) == texts


def test_foreign_encoding_and_locale(monkeypatch):
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dfile.encoding=US-ASCII -Duser.language=tr -Duser.country=TR")
    assert ptb_tokenize(["CAFÉ IN ISTANBUL 犬"]) == ["café in istanbul 犬"]


def test_nothing_to_do_starts_nothing(started):
    assert ptb_tokenize([]) == []
    assert started == []
    ptb_tokenize(["a dog"])
    assert len(started) == 1


def test_ten_thousand_words():
    words = [f"word{i}" for i in range(10_000)]
    assert ptb_tokenize(["a dog", " ".join(words), "a cat"]) == ["a dog", " ".join(words), "a cat"]
