"""A filter of one's own in a configuration: what its words are, over words and over pieces."""

import sys
from types import ModuleType

import numpy as np
import pytest
import torch
from refusals import refuses

from captioning.data.subwords import build_vocabulary
from captioning.data.vocabulary import Vocabulary
from captioning.data.words import Language
from captioning.decoding import Filter, KnownWords, Words
from captioning.runs.evaluation.searches import build_search
from captioning.tokens import EOS

CAPTIONS = [("a", "dog", "runs")] * 3 + [("two", "dogs", "run")] * 3
OVER = {"words": build_vocabulary(CAPTIONS, 1), "pieces": build_vocabulary(CAPTIONS, 1, 30, "bpe")}


class Whole(Filter):
    def __init__(self, unwanted: Words = (), wanted: KnownWords = ()):
        self.unwanted, self.wanted = unwanted, wanted

    def refused(self, words, last):
        return self.unwanted

    def missing(self, words):
        return {*self.wanted} - {*words}


class OfIds:
    def __init__(self, unwanted: Words = ()):
        self.unwanted = unwanted

    def __call__(self, log_probs, history):
        return log_probs.index_fill(-1, torch.tensor(self.unwanted), -torch.inf)


@pytest.fixture(autouse=True)
def module(monkeypatch):
    module = ModuleType("my_filters")
    for each in (Whole, OfIds):
        monkeypatch.setattr(each, "__module__", "my_filters")
        setattr(module, each.__name__, each)
    monkeypatch.setitem(sys.modules, "my_filters", module)


def built(name, vocabulary, **settings):
    node = {"_target_": f"my_filters.{name}", **settings}
    search = {"_target_": "captioning.decoding.greedy", "_partial_": True, "filters": node}
    return build_search(search, vocabulary, None, ["my_filters"]).keywords["filters"]


@pytest.mark.parametrize("kind", OVER)
def test_words_are_whole_words_over_any_vocabulary(kind):
    vocabulary = OVER[kind]
    filters = built("Whole", vocabulary, unwanted=["runs", "zebra"], wanted=["two dogs"])
    before = vocabulary.encode(["a", "dog"])
    (row,) = filters.allowed([before], len(vocabulary), 9)
    *begun, last = vocabulary.encode(["a", "dog", "runs"])
    (at_last,) = filters.allowed([begun], len(vocabulary), 9)
    assert not at_last[last]
    assert not row[EOS]
    whole = vocabulary.encode(["two", "dogs"])
    (row,) = filters.allowed([whole], len(vocabulary), 9)
    assert row[EOS]
    with refuses(r"decoding\.filters\.wanted: .* zebra"):
        built("Whole", vocabulary, wanted=["zebra"])
    with refuses(r"decoding\.filters\.unwanted=runs"):  # not its letters
        built("Whole", vocabulary, unwanted="runs")


def test_a_function_of_ids_gets_ids_of_words_and_is_refused_over_pieces():
    words = OVER["words"]
    assert built("OfIds", words, unwanted=["dog", "zebra"]).unwanted == words.encode(["dog"])
    with refuses(r"decoding\.filters\.unwanted"):
        built("OfIds", OVER["pieces"], unwanted=["dog"])
    assert np.size(built("OfIds", OVER["pieces"]).unwanted) == 0


def test_endings_are_those_of_a_language():
    french = Vocabulary(["une"], Language("fr"))
    filters = {"_target_": "captioning.decoding.Filters", "no_bad_ending": True}
    search = {"_target_": "captioning.decoding.greedy", "_partial_": True, "filters": filters}
    with refuses(r"no_bad_ending.* language=fr"):
        build_search(search, french, None)
