"""Diverse beam search against itself written with lists."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import Table, assert_same, photographs, pictures, table, transformer

from captioning.decoding import FORBIDDEN, beam_search, diverse_beam_search
from captioning.tokens import BOS, EOS

repeatable = settings(deadline=None, derandomize=True, max_examples=80, database=None)


class PlainGroup:
    """One group's hypotheses `(log-probability, words, code)` of one image."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.live: list[tuple[float, list[int], int]] = [(0.0, [], BOS)]
        self.ended: list[tuple[float, list[int]]] = []


def plain(
    model: Table, image: int, width: int, groups: int, diversity: float, max_length: int, length_penalty: float
) -> list[list[int]]:
    """The captions, best first, as the docstring tells it."""
    v = model.logits.shape[-1]
    log_probs = model.logits[image].log_softmax(dim=-1).tolist()
    all_groups = [PlainGroup(width // groups) for _ in range(groups)]
    for length in range(1, max_length + 1):
        said: list[int] = []
        for group in all_groups:
            continued = []
            for score, words, code in group.live:
                for token in (token for token in range(v) if token not in FORBIDDEN):
                    own = score + log_probs[code][token]
                    continued.append((own - diversity * said.count(token), own, [*words, token], code * v + token))
            continued.sort(key=lambda c: -c[0])
            group.ended += [(own, words) for _, own, words, _ in continued[: group.width] if words[-1] == EOS]
            group.live = [(own, words, code) for _, own, words, code in continued if words[-1] != EOS][: group.width]
            if length < max_length and group.live:
                best = max((score / len(words) ** length_penalty for score, words in group.ended), default=-math.inf)
                lengths = length + 1, max_length
                hope = max(score / n**length_penalty for score, _, _ in group.live for n in lengths)
                if len(group.ended) >= group.width or hope <= best:
                    group.live = []
            said += [words[-1] for _, words, _ in group.live]
    found = {}
    for group in all_groups:
        candidates = [*group.ended, *((score, words) for score, words, _ in group.live)]
        score, words = max((score / len(words) ** length_penalty, words) for score, words in candidates)
        found.setdefault(tuple(words), score)
    return [list(words) for words, _ in sorted(found.items(), key=lambda item: -item[1])]


@repeatable
@given(
    seed=st.integers(0, 2**32 - 1),
    eos=st.sampled_from([-2.0, 0.0, 2.0]),
    sizes=st.sampled_from([(2, 2), (4, 2), (3, 3), (6, 3), (6, 2), (3, 1)]),
    diversity=st.sampled_from([0.0, 0.3, 2.0, 50.0]),
    length_penalty=st.sampled_from([0.0, 1.0]),
)
def test_it_is_what_it_says(
    seed: int, eos: float, sizes: tuple[int, int], diversity: float, length_penalty: float
) -> None:
    model = table(seed, words=4, max_tokens=4, images=2, eos=eos)
    captions = diverse_beam_search(model, pictures([0, 1]), *sizes, diversity, 4, length_penalty)
    for image, best in enumerate(captions):
        expected = plain(model, image, *sizes, diversity, 4, length_penalty)
        assert [best.tokens, *(caption.tokens for caption in best.alternatives)] == expected


@pytest.mark.parametrize("groups", [1, 3])
def test_without_diversity_every_group_is_the_beam(groups: int) -> None:
    model, context = transformer(), photographs(5)
    found = diverse_beam_search(model, context, 2 * groups, groups, 0.0, 5)
    assert_same(found, beam_search(model, context, 2, 5))


def test_groups_avoid_each_others_words() -> None:
    model = table(3, words=5, max_tokens=3, eos=-60)
    for best in diverse_beam_search(model, pictures([0, 1, 2]), 3, 3, 1e6, 3):
        captions = [best, *best.alternatives]
        assert len(captions) == 3
        for words in zip(*(caption.tokens for caption in captions), strict=True):
            assert len(set(words)) == 3
