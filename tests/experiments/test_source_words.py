"""Source sentences as context sets."""

from pathlib import Path

import torch
from refusals import refuses

from captioning.data.example import Example
from captioning.features.build import FeatureStore
from captioning.tokens import PAD, UNK
from experiments.two_languages.sentences import Words

D, S = 5, 7
SENTENCES = [("b", "a", "b"), ("a",), ("b", "c", "a", *"aaaaaa")]


def examples(sentences=SENTENCES):
    return [
        Example(number, Path("text.de"), (), source=words) for number, words in enumerate(sentences)
    ]


def learnt():
    backbone = Words(dim=D, max_size=6, min_count=1, max_source=S)
    backbone.prepare({"train": examples()})
    return backbone


def test_words_become_ids_that_travel_with_the_weights():
    backbone = learnt()
    assert backbone.words == ["a", "b"]  # the most frequent that fit beside the special tokens
    rows = backbone.open_inputs(examples(), FeatureStore(Path("cache")), "test").rows([2, 0])
    assert rows.tolist() == [[5, UNK, 4, 4, 4, 4, 4], [5, 4, 5, *[PAD] * 4]]
    other = Words(dim=D, max_size=6, min_count=1, max_source=S)
    other.load_state_dict(backbone.state_dict())
    other.prepare({"train": examples([("z",)])})
    assert other.words == ["a", "b"]
    context = other.context(rows)
    assert context.grid == (1, S)
    assert context.mask.sum(dim=1).tolist() == [7, 3]
    assert torch.equal(context.vectors[1, :3], backbone.network.weight[[5, 4, 5]])
    context.vectors.sum().backward()
    learns = other.network.weight.grad.abs().sum(dim=1).bool().tolist()
    assert learns == [False] * 3 + [True] * 3


def test_what_is_no_source_is_refused():
    for sentences in ([()], [("a",), ()]):
        with refuses("data=parallel"):
            Words().prepare({"train": examples(sentences)})
    with refuses("single photographs"):
        learnt().context_of(torch.zeros(1, 3, 8, 8, dtype=torch.uint8))
    longer = learnt()
    longer.set_extra_state(torch.tensor(list(b"a b c \xff d"), dtype=torch.uint8))
    assert longer.words == ["a", "b"]  # as many as there are rows
