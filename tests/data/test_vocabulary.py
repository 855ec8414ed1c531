import pickle

import pytest
from refusals import refuses

from captioning.data.vocabulary import Vocabulary
from captioning.data.words import Language
from captioning.tokens import BOS, EOS, PAD, UNK

CAPTIONS = [
    ("a", "red", "dog"),
    ("a", "blue", "dog"),
    ("a", "cat", "and", "a", "cat"),
]  # a 4, cat 2, dog 2, rest 1


def test_words_by_falling_count_then_alphabetically():
    vocabulary = Vocabulary.from_captions(CAPTIONS, min_count=1)
    assert vocabulary.words == ["a", "cat", "dog", "and", "blue", "red"]
    assert len(vocabulary) == 10
    assert vocabulary.encode(["a", "zebra", "red"]) == [4, UNK, 9]
    assert Vocabulary.from_captions(CAPTIONS, min_count=2).words == ["a", "cat", "dog"]
    assert Vocabulary.from_captions(CAPTIONS, min_count=1, max_size=6).words == ["a", "cat"]


def test_the_share_of_unknown_words():
    vocabulary = Vocabulary(["a", "dog"])
    assert vocabulary.unknown(CAPTIONS) == 5 / 11
    assert vocabulary.unknown([("<eos>", "dog"), ()]) == 1 / 2
    assert vocabulary.unknown([]) == 0


def test_special_tokens_are_no_words_and_copies_keep_the_ids():
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


def test_no_word_is_frequent_enough_or_one_occurs_twice():
    with refuses(r"min_count=5.*most frequent: 4"):
        Vocabulary.from_captions(CAPTIONS)
    with refuses("none of the 0 different words"):
        Vocabulary.from_captions([])
    for words in (["a", "b", "a"], ["<pad>"]):
        with refuses("must differ"):
            Vocabulary(words)


def test_captions_are_written_as_in_their_language():
    chinese = Vocabulary(["狗", "一", "只", "t"], Language("zh", "characters"))
    assert chinese.decode([5, 6, UNK, 4, 7, EOS, 4]) == "一只狗t"
    assert chinese.words_of([5, 6, UNK, 4, EOS, 4]) == ["一", "只", "狗"]
    assert pickle.loads(pickle.dumps(chinese)).decode([5, 4]) == "一狗"
    french = Vocabulary(["l'", "homme", "court"], Language("fr"))
    assert french.decode([4, 5, 6]) == "l'homme court"
    assert [*chinese.words_in("一只"), *chinese.words_in("狗")] == ["一", "只", "狗"]
    with refuses("does not know the word 猫"):
        chinese.words_in("一只猫")
