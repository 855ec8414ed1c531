"""Draws against the probabilities that they are drawn from."""

from collections import Counter

import pytest
import torch
from toys import every, pictures, table

from captioning.backbones.context import ContextSet
from captioning.decoding import FORBIDDEN, sample
from captioning.decoding.sampling import context_hash, draw_ids
from captioning.tokens import BOS

P = torch.tensor([0.05, 0.5, 0.15, 0.3], dtype=torch.float64)


@pytest.mark.parametrize(
    "settings, expected",
    [
        ({}, [0.05, 0.5, 0.15, 0.3]),
        ({"top_k": 1}, [0, 1, 0, 0]),
        ({"top_k": 2}, [0, 5 / 8, 0, 3 / 8]),
        ({"top_k": 9}, [0.05, 0.5, 0.15, 0.3]),
        ({"top_p": 0.5}, [0, 1, 0, 0]),
        ({"top_p": 0.51}, [0, 5 / 8, 0, 3 / 8]),
        ({"top_p": 0.81}, [0, 10 / 19, 3 / 19, 6 / 19]),
        ({"top_p": 0.6, "top_k": 2}, [0, 1, 0, 0]),  # 5/8 of what is left is enough
    ],
)
def test_shares_by_hand(settings, expected):
    """How often each id is drawn by evenly spaced numbers."""
    ids = draw_ids(P.log().expand(1000, 4), (torch.arange(1000) + 0.5) / 1000, **settings)
    assert [float((ids == i).float().mean()) for i in range(4)] == pytest.approx(
        expected, abs=1.1e-3
    )


def test_samples_are_as_frequent_as_they_are_probable_and_the_likeliest_comes_first():
    model = table(3, words=2, max_tokens=3, spread=1.0)
    captions = [
        caption
        for _, caption in every(sample(model, pictures([2]), n=4000, temperature=0.7, max_length=3))
    ]
    scores = [caption.score for caption in captions]
    assert len(scores) == 4000
    assert scores == sorted(scores, reverse=True)
    logits = model.logits[2].clone()
    logits[:, [*FORBIDDEN]] = -torch.inf
    log_probs = (logits / 0.7).log_softmax(-1)
    checked = 0.0
    for tokens, count in Counter(tuple(caption.tokens) for caption in captions).items():
        code, probability = BOS, 1.0
        for token in tokens:
            probability *= float(log_probs[code, token].exp())
            code = code * model.logits.shape[-1] + token
        checked += probability
        assert abs(count / 4000 - probability) < 5 * (probability * (1 - probability) / 4000) ** 0.5
    assert checked > 0.98


def test_draws_are_those_of_seed_and_image():
    model = table(5, spread=0.1)
    model.logits[1] = model.logits[0]  # two images that say the same

    def said(images, seed, n=9):
        found = every(sample(model, pictures(images), n=n, seed=seed, max_length=4))
        return [
            [caption.tokens for i, caption in found if i == image] for image in range(len(images))
        ]

    assert said([0, 1], 1) == said([0, 1], 1)
    assert said([0, 1], 1) != said([0, 1], 2)
    assert said([0, 0], 1)[0] == said([0, 0], 1)[1]
    assert said([0, 1], 1)[0] != said([0, 1], 1)[1]  # another image draws other numbers
    assert all(
        tokens in said([0], 1)[0] for tokens in said([0], 1, n=4)[0]
    )  # more samples are further samples


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_keys_of_images(dtype):
    vectors = torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(0)).to(dtype)
    mask = torch.tensor([[True, True, False]]).expand(4, 3)
    keys = context_hash(ContextSet(vectors, (1, 3)))
    assert torch.equal(context_hash(ContextSet(vectors[[2, 0]], (1, 3))), keys[[2, 0]])
    swapped = context_hash(ContextSet(vectors[:, [1, 0, 2]], (1, 3)))
    assert len({*keys.tolist(), *swapped.tolist()}) == 8
    masked = context_hash(ContextSet(vectors, (1, 3), mask))
    vectors[:, 2] = 7
    assert torch.equal(context_hash(ContextSet(vectors, (1, 3), mask)), masked)
