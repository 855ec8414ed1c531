"""What holds for every search over every captioner, in double precision; settings that searches
refuse.
"""

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from models import captioners as registry
from toys import SEEDS, Table, assert_same, every, parallel, pictures, table, take, talkative

from captioning.decoding import (
    FORBIDDEN,
    Filters,
    GeneratedCaption,
    beam_search,
    diverse_beam_search,
    greedy,
    sample,
)
from captioning.decoding.ensemble import Ensemble, EnsembleContext
from captioning.decoding.steps import EVERY
from captioning.tokens import BOS, EOS, PAD, UNK

MAX_LENGTH = 4
SEARCHES = {
    "greedy": (greedy, 0.0),
    "beam 1": (partial(beam_search, width=1), 1.0),
    "beam 2, 0.7": (partial(beam_search, width=2, length_penalty=0.7), 0.7),
    "beam 3": (partial(beam_search, width=3, early_stopping=True), 1.0),
    "3 best of beam 4": (partial(beam_search, width=4, n_best=3, length_penalty=0), 0.0),
    "diverse beam": (
        partial(diverse_beam_search, width=4, groups=2, diversity=1.5, length_penalty=0.7),
        0.7,
    ),
    "sample": (partial(sample, seed=3), 0.0),
    "3 samples of a nucleus": (partial(sample, n=3, temperature=1.5, top_k=5, top_p=0.9), 0.0),
    "beam 2 of few repetitions": (
        partial(beam_search, width=2, filters=Filters(1, 2, no_word_twice=True)),
        1.0,
    ),
    "sample of few repetitions": (partial(sample, n=2, filters=Filters(2, no_repeat_ngram=1)), 0.0),
}
"""With their length penalties."""
PENALTY = {id(search): penalty for search, penalty in SEARCHES.values()}
TABLES = {
    "table": table(0),
    "table without attention": table(2, attention=False),
    "table that ends at once or never": table(1, eos=1.5),
}
TABLES["table that ends at once or never"].logits[[0, 1], :, EOS] = torch.tensor(
    [[60.0], [-60.0]]
).double()
searches = pytest.mark.parametrize(
    "search", [search for search, _ in SEARCHES.values()], ids=SEARCHES
)


def check_answer(model, context, search, max_length):
    """Form, score and maps of its captions, by the parallel pass."""
    captions = search(model, context, max_length=max_length)
    assert len(captions) == len(context.vectors)
    for i, caption in every(captions):
        assert 1 <= len(caption.tokens) <= max_length
        assert not set(caption.tokens) & set(FORBIDDEN)
        assert EOS not in caption.tokens[:-1]
        assert caption.finished == (caption.tokens[-1] == EOS)
        assert caption.finished or len(caption.tokens) == max_length
        chosen, maps = parallel(model, context, i, caption.tokens)
        expected = sum(chosen) / len(caption.tokens) ** PENALTY[id(search)]
        assert caption.score == pytest.approx(expected, rel=1e-10, abs=1e-10)
        assert (caption.attention is None) == (maps is None)
        if maps is not None:
            torch.testing.assert_close(caption.attention, maps, rtol=0, atol=1e-10)
            assert not caption.attention.requires_grad
    return captions


@pytest.mark.parametrize("name", [*TABLES, *registry.SYSTEMS])
def test_every_search_over_every_system(name):
    """Scores and maps are those of the parallel pass; alone, in any company and twice in an
    ensemble it is the same.

    Mixtures of parts step as their parallel pass in tests/models, and a search knows no more.
    """
    if name in TABLES:
        model, context = TABLES[name], pictures([0, 1, 2, 3, 4])
    else:
        model, (context, _) = talkative(name), registry.inputs(registry.MASK)
    said = set()
    for search, _ in SEARCHES.values():
        captions = check_answer(model, context, search, MAX_LENGTH)
        said |= {tuple(caption.tokens) for caption in captions}
        alone = [
            search(model, take(context, [i]), max_length=MAX_LENGTH)[0]
            for i in range(len(captions))
        ]
        assert_same(captions, alone)
        if name in TABLES:
            check_answer(model, context, search, 1)
            for order in ([2, 0, 4, 1, 3], [1, 1, 3]):
                assert_same(
                    search(model, take(context, order), max_length=MAX_LENGTH),
                    [alone[i] for i in order],
                )
    assert len(said) >= 3  # else the laws would hold for nothing
    twice = Ensemble([model, model]), EnsembleContext([context, context])
    assert_same(beam_search(*twice, 3, MAX_LENGTH), beam_search(model, context, 3, MAX_LENGTH))
    for penalty in (0.0, 1.0):  # a beam of one is greedy
        expected = [
            GeneratedCaption(
                caption.tokens, caption.score / len(caption.tokens) ** penalty, caption.attention
            )
            for caption in greedy(model, context, MAX_LENGTH)
        ]
        assert_same(
            beam_search(model, context, 1, MAX_LENGTH, penalty, early_stopping=True), expected
        )


@given(
    SEEDS,
    st.sampled_from([search for search, _ in SEARCHES.values()]),
    st.sets(st.sampled_from([PAD, BOS, UNK, 4, 5, 6]), max_size=5),
)
def test_no_forbidden_token_ever(seed, search, forbidden):
    """Its probability is lost; padding, where it is allowed, is a word like others."""
    model = table(seed, words=3, max_tokens=3, images=3)
    model.logits[..., sorted(forbidden)] += 9  # the model would say little else
    for i, caption in enumerate(
        search(model, pictures([0, 1, 2]), max_length=3, forbidden=sorted(forbidden))
    ):
        assert not set(caption.tokens) & forbidden
        assert caption.finished or len(caption.tokens) == 3
        total = sum(parallel(model, pictures([i]), 0, caption.tokens)[0])
        assert caption.score == pytest.approx(
            total / len(caption.tokens) ** PENALTY[id(search)], rel=1e-11
        )


@searches
def test_the_longest_caption_reads_no_more_than_max_tokens(search):
    model, (context, _) = talkative("spatial_transformer", max_tokens=7), registry.inputs(b=3)
    model.output.bias.data[EOS] -= 600
    assert [len(caption.tokens) for caption in check_answer(model, context, search, 7)] == [7, 7, 7]
    with pytest.raises(ValueError, match="max_tokens=7"):
        search(model, context, max_length=8)


@searches
@pytest.mark.parametrize("name", ["spatial_transformer", "sat_soft"])
def test_an_image_is_read_once_for_all_its_beams(search, name, monkeypatch):
    model, (context, _) = registry.build(name), registry.inputs(registry.MASK)
    started, stepped = [], []
    start, step = model.start, model.step
    monkeypatch.setattr(model, "start", lambda *given: started.append(start(*given)) or started[-1])
    monkeypatch.setattr(model, "step", lambda *given: stepped.append(given) or step(*given))
    search(model, context, max_length=MAX_LENGTH, forbidden=[*FORBIDDEN, EOS])
    assert (len(started), len(stepped)) == (1, MAX_LENGTH)
    assert {id(state.image) for _, state in stepped} == {id(started[0].image)}
    settings = {} if search is greedy else search.keywords
    assert stepped[-1][0].shape == (2, settings.get("width", settings.get("n", 1)))


@searches
def test_asking_seldom_whether_all_have_ended_changes_nothing(search, monkeypatch):
    """A GPU goes on until it is asked: further steps after the end of all captions."""
    model, context = table(4, eos=2.0, max_tokens=6), pictures([0, 1, 2, 3, 4])
    expected = search(model, context, max_length=6)
    usual, model.steps = model.steps, 0
    monkeypatch.setitem(EVERY, "cpu", 6)
    assert_same(search(model, context, max_length=6), expected)
    assert usual < model.steps == 6


@pytest.mark.parametrize(
    "search, settings, key",
    [
        (greedy, {"max_length": 0}, "max_length"),
        (beam_search, {"length_penalty": float("nan")}, "length_penalty"),
        (beam_search, {"normalisation": "words"}, "normalisation"),
        (beam_search, {"width": 2, "n_best": 3}, "n_best"),
        (diverse_beam_search, {"width": 5, "groups": 2}, "width"),
        (sample, {"top_p": 1.5}, "top_p"),
        (lambda *_, **given: Filters(**given), {"min_length": -1}, "min_length"),
    ],
)
def test_refused(search, settings, key):
    with pytest.raises(ValueError, match=rf"(?m)^{key}\b"):
        search(table(0), pictures([0]), **settings)


@searches
def test_in_half_precision_nothing_is_lost_after_the_logits(search):
    model, context = table(6), pictures([0, 1, 2, 3, 4])
    half = Table(model.logits.half(), model.maps.half(), model.max_tokens)
    single = Table(half.logits.float(), half.maps, model.max_tokens)
    found = search(half, context, max_length=MAX_LENGTH)
    assert_same(found, search(single, context, max_length=MAX_LENGTH))
    assert {caption.attention.dtype for caption in found} == {torch.float16}
