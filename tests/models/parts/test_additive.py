"""The roundings of additive scores, and the promise that their largest array is never held; values
and gradients: test_scores.py, test_recurrent.py and the laws of all captioners.

B images, N captions per image, L context vectors, A attention features; all different primes.
"""

import math

import pytest
import torch
from models.captioners import Largest

from captioning.models.parts.additive import Keys, additive_scores


def scores(keys, query, weight):
    return additive_scores(Keys.of(keys), query, weight)


def written_out(keys, query, weight):
    return ((keys[:, None] + query[:, :, None]).tanh() * weight).sum(-1)


def drawn(*sizes):
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(size, generator=generator, dtype=torch.float64).requires_grad_()
        for size in sizes
    ]


def arguments(b, n, length, a):
    return drawn((b, length, a), (b, n, a), (a,))


@pytest.mark.parametrize("mean", [0.02, 0.3])
def test_half_precision_rounds_a_score_as_its_own_size_asks(mean):
    keys, query, weight = (x.detach() for x in drawn((2, 11, 512), (2, 3, 512), (512,)))
    half = [x.bfloat16().requires_grad_() for x in (keys, query, mean + 0.03 * weight)]
    expected = written_out(*(x.double() for x in half))
    found = scores(*half)
    assert found.dtype == torch.bfloat16
    assert (found.double() - expected).abs().max() < 0.01 * expected.abs().max()
    found.sum().backward()
    assert all(x.grad.dtype == torch.bfloat16 for x in half)
    single = [
        keys.bfloat16(),
        query.float(),
        weight.float(),
    ]  # scores have the precision of the keys
    assert scores(*single).dtype == torch.bfloat16


@pytest.mark.parametrize("key", [100.0, -100.0])
def test_powers_are_neither_zero_nor_infinite_in_single_precision(key):
    """So that a query that is the key's opposite undoes it."""
    for query, expected in ((key, math.copysign(2.0, key)), (-key, 0.0)):
        found = scores(*(torch.tensor(x) for x in ([[[key]]], [[[query]]], [2.0])))
        assert found.item() == pytest.approx(expected)


@pytest.mark.parametrize("shape", [(2, 3, 5, 7), (1, 1, 1, 1), (3, 1, 11, 2)], ids=str)
def test_no_array_of_all_pairs_is_kept_for_the_backward_pass(shape):
    leaves, kept = arguments(*shape), []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):
        scores(*leaves)
    # the keys' powers in place of the keys, and no copies
    assert {x.data_ptr() for x in kept[1:]} == {x.data_ptr() for x in leaves[1:]}
    assert [x.shape for x in kept] == [x.shape for x in leaves]


def test_on_a_cpu_the_pairs_of_one_image_exist_at_a_time():
    b, n, length, a = 3, 5, 7, 11
    for function, images in ((scores, 1), (written_out, b)):
        with Largest() as largest:
            function(*arguments(b, n, length, a)).sum().backward()
        assert largest.numbers == images * n * length * a


def test_autocast_rounds_no_sum():
    sizes = (2, 50, 64), (2, 3, 64), (64,), (2, 3, 50, 5), (64, 5)  # the last two of pairs
    projected, *others = (x.detach().float() for x in drawn(*sizes))
    keys = Keys.of(projected)
    plain = additive_scores(keys, *others)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(additive_scores(keys, *others), plain, rtol=1e-6, atol=1e-6)
