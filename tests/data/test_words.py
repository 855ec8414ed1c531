import pytest
from hypothesis import given
from hypothesis import strategies as st

from captioning.data.words import split_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A dog runs.", "a dog runs"),
        ("Two dogs' well-known T-shirts, don't ask!", "two dogs well known t shirts don't ask"),
        ("a man\N{RIGHT SINGLE QUOTATION MARK}s hat", "a man's hat"),
        ("'quoted' rock''n'roll", "quoted rock n'roll"),
        ("3.5 metres, 2 of_them", "3 5 metres 2 of them"),
        ("Cafe\N{COMBINING ACUTE ACCENT} \u00c9COLE stra\u00dfe", "caf\u00e9 \u00e9cole stra\u00dfe"),
        ("\u0939\u093f\u0928\u094d\u0926\u0940 \u72d7", "\u0939\u093f\u0928\u094d\u0926\u0940 \u72d7"),
        (" ... !", ""),
        ("", ""),
    ],
)
def test_known_captions(text: str, words: str) -> None:
    assert split_words(text) == tuple(words.split())


@given(st.text())
def test_any_text_gives_words_that_splitting_leaves_alone(text: str) -> None:
    words = split_words(text)
    assert split_words(" ".join(words)) == words
    assert not any(word.startswith("'") or word.endswith("'") or "_" in word for word in words)
