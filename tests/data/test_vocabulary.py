import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from captioning.data.vocabulary import Vocabulary, split_words
from captioning.errors import CaptioningError
from captioning.tokens import BOS, EOS, PAD, UNK

CAPTIONS = [("a", "red", "dog"), ("a", "blue", "dog"), ("a", "cat", "and", "a", "cat")]  # a 4, cat 2, dog 2, rest 1


def test_words_by_falling_count_then_alphabetically() -> None:
    vocabulary = Vocabulary.from_captions(CAPTIONS, min_count=1)
    assert vocabulary.words == ["a", "cat", "dog", "and", "blue", "red"]
    assert len(vocabulary) == 10
    assert vocabulary.encode(["a", "zebra", "red"]) == [4, UNK, 9]
    assert Vocabulary.from_captions(CAPTIONS, min_count=2).words == ["a", "cat", "dog"]
    assert Vocabulary.from_captions(CAPTIONS, min_count=1, max_size=6).words == ["a", "cat"]


def test_the_share_of_unknown_words() -> None:
    vocabulary = Vocabulary(["a", "dog"])
    assert vocabulary.unknown(CAPTIONS) == 5 / 11
    assert vocabulary.unknown([("<eos>", "dog"), ()]) == 1 / 2
    assert vocabulary.unknown([]) == 0


def test_special_tokens_are_no_words_and_copies_keep_the_ids() -> None:
    vocabulary = Vocabulary(["a", "dog", "cat"])
    assert vocabulary.decode([BOS, 4, UNK, 5, PAD, EOS, 6]) == "a dog"
    assert vocabulary.decode([EOS]) == ""
    assert vocabulary.decode(vocabulary.encode(["cat", "a"])) == "cat a"
    for foreign in (-1, 7):
        with pytest.raises(IndexError):
            vocabulary.decode([foreign])
    written = Vocabulary.from_captions([("a", "<eos>", "<pad>")], min_count=1)
    assert (written.words, written.encode(["<eos>", "<pad>"])) == (["a"], [UNK, UNK])
    for copy in (Vocabulary(vocabulary.words), pickle.loads(pickle.dumps(vocabulary))):
        assert copy == vocabulary
        assert hash(copy) == hash(vocabulary)
        assert copy.encode(["cat", "a"]) == [6, 4]


def test_no_word_is_frequent_enough_or_one_occurs_twice() -> None:
    with pytest.raises(CaptioningError, match=r"min_count=5.*most frequent: 4"):
        Vocabulary.from_captions(CAPTIONS)
    with pytest.raises(CaptioningError, match="none of the 0 different words"):
        Vocabulary.from_captions([])
    for words in (["a", "b", "a"], ["<pad>"]):
        with pytest.raises(CaptioningError, match="must differ"):
            Vocabulary(words)


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
