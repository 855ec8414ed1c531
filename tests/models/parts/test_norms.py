"""Normalisations against their equations and PyTorch's.

B images, L vectors of E features, some of them masked.
"""

import pytest
import torch
from models.captioners import OF_SIX as MASK
from models.tensors import close, normal, randomised
from torch import nn

from captioning.models.parts.norms import BatchNorm, LayerNorm

B, L, E = 2, 6, 5
X = normal(B, L, E)


def test_by_deviation_of_a_sample():
    """Of one degree of freedom less, with 1e-6 added to it, not to the variance."""
    norm = randomised(LayerNorm(E, deviation=True))
    centred = X - X.sum(-1, keepdim=True) / E
    deviation = (centred.square().sum(-1, keepdim=True) / (E - 1)).sqrt()
    close(norm(X), norm.weight * centred / (deviation + 1e-6) + norm.bias)
    plain = randomised(LayerNorm(E))
    close(plain(X), nn.functional.layer_norm(X, (E,), plain.weight, plain.bias))


def test_equal_features_become_the_bias_and_have_gradients():
    norm, x = LayerNorm(E, deviation=True), torch.full((1, E), 3.0, requires_grad=True)
    norm(x).sum().backward()
    assert torch.equal(norm(x), norm.bias.expand(1, E))
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("mask", [None, MASK], ids=["all", "masked"])
def test_batches_are_normalised_over_unmasked_vectors(mask):
    norm, theirs = BatchNorm(E).double(), nn.BatchNorm1d(E).double()
    real = torch.ones(B, L, dtype=torch.bool) if mask is None else mask
    for k in range(3):  # the running statistics follow
        x = X + k
        close(norm(x, mask)[real], theirs(x[real]))
    for name, buffer in theirs.named_buffers():
        close(norm.get_buffer(name), buffer)
    close(norm.eval()(X, mask)[real], theirs.eval()(X[real]))
    rest = X + normal(B, L, E, seed=2) * ~real[..., None]
    assert torch.equal(norm(rest, mask)[real], norm(X, mask)[real])
