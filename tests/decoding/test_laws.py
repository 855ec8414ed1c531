"""What holds for every search over every captioner, in double precision."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from models import captioners as registry
from torch import nn
from toys import (
    Search,
    Table,
    assert_same,
    parallel,
    photographs,
    pictures,
    show_attend_tell,
    table,
    take,
    transformer,
)

from captioning.backbones.context import ContextSet
from captioning.decoding import (
    FORBIDDEN,
    Caption,
    Contexts,
    Ensemble,
    Filters,
    beam_search,
    diverse_beam_search,
    greedy,
    sample,
)
from captioning.decoding.caption import log_probs
from captioning.models import Recurrent, Transformer
from captioning.tokens import BOS, EOS, PAD, UNK

MAX_LENGTH = 4
SEARCHES: dict[str, tuple[Search, float]] = {
    "greedy": (greedy, 0.0),
    "beam 1": (partial(beam_search, width=1), 1.0),
    "beam 2, 0.7": (partial(beam_search, width=2, length_penalty=0.7), 0.7),
    "beam 3": (partial(beam_search, width=3), 1.0),
    "beam 5, 1": (partial(beam_search, width=5, length_penalty=1.0), 1.0),
    "3 best of beam 4": (partial(beam_search, width=4, n_best=3, length_penalty=0), 0.0),
    "diverse beam": (partial(diverse_beam_search, width=4, groups=2, diversity=1.5, length_penalty=0.7), 0.7),
    "sample": (partial(sample, seed=3), 0.0),
    "3 samples of a nucleus": (partial(sample, n=3, temperature=1.5, top_k=5, top_p=0.9), 0.0),
    "beam 2 of few repetitions": (partial(beam_search, width=2, filters=Filters(1, 2, no_word_twice=True)), 1.0),
    "sample of few repetitions": (partial(sample, n=2, filters=Filters(2, no_repeat_ngram=1)), 0.0),
}
ARGMAX = {"attention.choice": "argmax"}
CAPTIONERS = {
    "transformer": (transformer(), photographs(5)),
    "transformer, masked": (transformer(scale="sqrt_d"), photographs(5, masked=True)),
    "transformer, masked, d_len": (transformer(), photographs(5, masked=True)),
    "show, attend and tell": (show_attend_tell(), photographs(5)),
    "show, attend and tell, masked": (show_attend_tell(), photographs(5, masked=True)),
    "show, attend and tell, argmax": (show_attend_tell(**ARGMAX), photographs(5)),
    "show, attend and tell, argmax, masked": (
        show_attend_tell(**ARGMAX),
        photographs(5, masked=True),
    ),
    "table": (table(0), pictures([0, 1, 2, 3, 4])),
    "table of early ends": (table(1, eos=1.5), pictures([0, 1, 2, 3, 4])),
    "table without attention": (table(2, attention=False), pictures([0, 1, 2, 3, 4])),
}

searches = pytest.mark.parametrize(("search", "length_penalty"), SEARCHES.values(), ids=SEARCHES.keys())
captioners = pytest.mark.parametrize(("model", "context"), CAPTIONERS.values(), ids=CAPTIONERS.keys())
repeatable = settings(deadline=None, derandomize=True, max_examples=15, database=None)
Model = Table | Transformer | Recurrent
SEEDS, EOS_LOGITS = st.integers(0, 2**32 - 1), st.sampled_from([-2.0, 0.0, 2.0])


def check_answer(
    model: Any, context: ContextSet, captions: list[Caption], max_length: int, length_penalty: float
) -> None:
    """Form, score and maps of captions, by the parallel pass."""
    assert len(captions) == len(context.vectors)
    for i, caption in ((i, caption) for i, best in enumerate(captions) for caption in (best, *best.alternatives)):
        assert 1 <= len(caption.tokens) <= max_length
        assert not set(caption.tokens) & set(FORBIDDEN)
        assert EOS not in caption.tokens[:-1]
        assert caption.finished == (caption.tokens[-1] == EOS)
        assert caption.finished or len(caption.tokens) == max_length
        chosen, maps = parallel(model, context, i, caption.tokens)
        assert isinstance(caption.score, float)
        assert caption.score == pytest.approx(sum(chosen) / len(caption.tokens) ** length_penalty, rel=1e-10, abs=1e-10)
        assert (caption.attention is None) == (maps is None)
        if maps is not None:
            torch.testing.assert_close(caption.attention, maps, rtol=0, atol=1e-10)
            assert not caption.attention.requires_grad


@captioners
@searches
@pytest.mark.parametrize("max_length", [1, 2, MAX_LENGTH])
def test_score_and_attention_are_those_of_the_parallel_pass(
    model: Model, context: ContextSet, search: Search, length_penalty: float, max_length: int
) -> None:
    check_answer(model, context, search(model, context, max_length=max_length), max_length, length_penalty)


def test_the_captioners_say_various_things() -> None:
    # Else the laws would hold for nothing: captions differ, end at different lengths, and some are cut.
    captions = [
        caption
        for model, context in CAPTIONERS.values()
        for search, _ in SEARCHES.values()
        for caption in search(model, context, max_length=MAX_LENGTH)
    ]
    assert {len(caption.tokens) for caption in captions} == {1, 2, 3, 4}
    assert {caption.finished for caption in captions if len(caption.tokens) == MAX_LENGTH} == {True, False}
    for name, (model, context) in CAPTIONERS.items():
        said = {tuple(c.tokens) for width in (1, 3) for c in beam_search(model, context, width, MAX_LENGTH)}
        assert len(said) >= 3, name


@captioners
@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
@pytest.mark.parametrize("max_length", [1, 2, MAX_LENGTH])
def test_beam_one_is_greedy(model: Model, context: ContextSet, length_penalty: float, max_length: int) -> None:
    expected = [
        Caption(caption.tokens, caption.score / len(caption.tokens) ** length_penalty, caption.attention)
        for caption in greedy(model, context, max_length)
    ]
    assert_same(beam_search(model, context, 1, max_length, length_penalty), expected)


@repeatable
@given(seed=SEEDS, eos=EOS_LOGITS, length_penalty=st.sampled_from([0.0, 1.0]))
def test_beam_one_is_greedy_for_any_table(seed: int, eos: float, length_penalty: float) -> None:
    model, context = table(seed, eos=eos), pictures([0, 1, 2, 3, 4])
    captions = beam_search(model, context, 1, MAX_LENGTH, length_penalty)
    for caption, expected in zip(captions, greedy(model, context, MAX_LENGTH), strict=True):
        assert caption.tokens == expected.tokens
        assert caption.score == pytest.approx(expected.score / len(expected.tokens) ** length_penalty, rel=1e-12)
        assert torch.equal(caption.attention, expected.attention)


@captioners
@searches
def test_batched_in_any_order_is_one_by_one(
    model: Model, context: ContextSet, search: Search, length_penalty: float
) -> None:
    alone = [search(model, take(context, [i]), max_length=MAX_LENGTH)[0] for i in range(5)]
    for order in ([0, 1, 2, 3, 4], [2, 0, 4, 1, 3], [1, 1, 3]):
        assert_same(search(model, take(context, order), max_length=MAX_LENGTH), [alone[i] for i in order])


@repeatable
@given(
    seed=SEEDS,
    eos=EOS_LOGITS,
    search=st.sampled_from([search for search, _ in SEARCHES.values()]),
    rows=st.lists(st.integers(0, 4), min_size=1, max_size=7),
)
def test_an_answer_does_not_depend_on_the_company(seed: int, eos: float, search: Search, rows: list[int]) -> None:
    model = table(seed, eos=eos)
    alone = [search(model, pictures([row]), max_length=MAX_LENGTH)[0] for row in rows]
    assert_same(search(model, pictures(rows), max_length=MAX_LENGTH), alone)


@pytest.mark.parametrize("name", registry.CAPTIONERS)
def test_every_captioner_of_the_registry_with_every_search(name: str) -> None:
    model, (context, _) = registry.build(name), registry.inputs(registry.MASK)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 3  # so that it says more than one thing
    for search, length_penalty in SEARCHES.values():
        captions = search(model, context, max_length=MAX_LENGTH)
        check_answer(model, context, captions, MAX_LENGTH, length_penalty)
        assert_same(captions, [search(model, take(context, [i]), max_length=MAX_LENGTH)[0] for i in range(2)])
        twice = search(Ensemble([model, model]), Contexts([context, context]), max_length=MAX_LENGTH)
        assert_same(twice, captions)


@searches
def test_another_image_changes_nothing(search: Search, length_penalty: float) -> None:
    # Neither one that ends at the first step nor one that never ends.
    model = table(5, images=7, eos=0.5)
    model.logits[5, :, EOS] = 60
    model.logits[6, :, EOS] = -60
    expected = search(model, pictures([0, 1, 2, 3, 4]), max_length=MAX_LENGTH)
    for others in ([5], [6], [6, 5]):
        assert_same(search(model, pictures([0, 1, 2, 3, 4, *others]), max_length=MAX_LENGTH)[:5], expected)


@repeatable
@given(
    seed=SEEDS,
    search=st.sampled_from([search for search, _ in SEARCHES.values()]),
    forbidden=st.sets(st.sampled_from([PAD, BOS, UNK, 4, 5, 6]), max_size=5),
)
def test_no_forbidden_token_ever(seed: int, search: Search, forbidden: set[int]) -> None:
    model = table(seed, words=3, max_tokens=3, images=3)
    if forbidden:
        model.logits[..., sorted(forbidden)] += 9  # the model would say little else
    for i, caption in enumerate(search(model, pictures([0, 1, 2]), max_length=3, forbidden=sorted(forbidden))):
        assert not set(caption.tokens) & forbidden
        assert 1 <= len(caption.tokens) <= 3
        assert caption.finished or len(caption.tokens) == 3
        total = sum(parallel(model, pictures([i]), 0, caption.tokens)[0])
        assert any(caption.score == pytest.approx(total / len(caption.tokens) ** p, rel=1e-11) for p in (0, 0.7, 1))


@searches
def test_the_longest_caption_reads_no_more_than_max_tokens(search: Search, length_penalty: float) -> None:
    model, context = transformer(eos=-60), photographs(3)
    captions = search(model, context, max_length=7)
    assert [len(caption.tokens) for caption in captions] == [7, 7, 7]
    check_answer(model, context, captions, 7, length_penalty)
    with pytest.raises(ValueError, match="max_tokens=7"):
        search(model, context, max_length=8)


@searches
@pytest.mark.parametrize("build", [transformer, show_attend_tell])
def test_an_image_is_read_once_for_all_its_beams(
    search: Search, length_penalty: float, build: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an image's state holds, once however many hypotheses there are, is in the tests of the models."""
    model, context = build(), photographs(3, masked=True)
    started, stepped = [], []
    start, step = model.start, model.step
    monkeypatch.setattr(model, "start", lambda *given: started.append(start(*given)) or started[-1])
    monkeypatch.setattr(model, "step", lambda *given: stepped.append(given) or step(*given))
    search(model, context, max_length=MAX_LENGTH, forbidden=[*FORBIDDEN, EOS])
    assert len(started) == 1
    assert len(stepped) == MAX_LENGTH
    assert {id(state.image) for _, state in stepped} == {id(started[0].image)}
    settings = {} if search is greedy else search.keywords
    assert stepped[-1][0].shape == (3, settings.get("width", settings.get("n", 1)))


@searches
def test_sampled_locations_are_reproducible_by_seed(search: Search, length_penalty: float) -> None:
    model, context = show_attend_tell(**{"attention.choice": "sample"}), photographs(5, masked=True)
    said = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        said.append(search(model, context, max_length=MAX_LENGTH))
    for caption, again in zip(said[0], said[1], strict=True):
        assert (caption.tokens, caption.score) == (again.tokens, again.score)
        assert torch.equal(caption.attention, again.attention)
    assert [caption.score for caption in said[0]] != [caption.score for caption in said[2]]
    assert [caption.tokens for caption in said[0]] != [caption.tokens for caption in said[2]]


# Precision


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_log_probs(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    logits = (5 * torch.randn(2, 3, 7)).to(dtype)
    before = logits.clone()
    result = log_probs(logits, (0, 4))
    assert torch.equal(logits, before)
    assert result.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    exact = logits.double() - logits.double().exp().sum(dim=-1, keepdim=True).log()
    exact[..., [0, 4]] = -math.inf
    torch.testing.assert_close(result.double(), exact, rtol=0, atol=1e-12 if dtype == torch.float64 else 4e-6)


@searches
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_logits(search: Search, length_penalty: float, dtype: torch.dtype) -> None:
    model = table(6)
    half = Table(model.logits.to(dtype), model.maps.to(dtype), model.max_tokens)
    single = Table(half.logits.float(), half.maps, model.max_tokens)
    context = pictures([0, 1, 2, 3, 4])
    captions = search(half, context, max_length=MAX_LENGTH)
    for caption, expected in zip(captions, search(single, context, max_length=MAX_LENGTH), strict=True):
        assert caption.tokens == expected.tokens
        assert caption.score == expected.score  # nothing is lost after the logits
        assert torch.equal(caption.attention, expected.attention)


@searches
@pytest.mark.parametrize("build", [transformer, show_attend_tell])
def test_a_model_in_bfloat16(search: Search, length_penalty: float, build: Callable[[], nn.Module]) -> None:
    model, images = build().bfloat16(), photographs(5, masked=True)
    context = ContextSet(images.vectors.bfloat16(), images.grid, images.mask)
    for i, caption in enumerate(search(model, context, max_length=MAX_LENGTH)):
        chosen, _ = parallel(model, context, i, caption.tokens)
        assert caption.score == pytest.approx(sum(chosen) / len(caption.tokens) ** length_penalty, abs=0.3)
        assert caption.attention.dtype == torch.bfloat16
