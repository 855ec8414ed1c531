"""X-linear attention by a loop over its equations.

B images, N captions per image, L context vectors of D features, H heads of A features.
"""

import pytest
import torch
from models.captioners import OF_SIX as MASK
from models.captioners import all_or
from models.tensors import close, normal, randomised

from captioning.backbones.context import ContextSet
from captioning.models.parts.x_linear import XLinear

B, N, D, QUERY, L, H, A = 2, 3, 5, 7, 6, 2, 4


def embedded(part, x):
    """f(W x + b) of one vector, `[H, A]`: each head with mean 0 and variance 1 before its
    weights.
    """
    z = part.linear.weight @ x + part.linear.bias
    z = torch.where(z > 0, z, 1.3 * ((z / 1.3).exp() - 1)).view(H, A)
    z = (z - z.mean(dim=1, keepdim=True)) / (
        z.var(dim=1, keepdim=True, unbiased=False) + 1e-5
    ).sqrt()
    return z * part.norm.weight.view(H, A) + part.norm.bias.view(H, A)


@all_or(MASK)
@torch.no_grad()
def test_the_equations(mask):
    part = randomised(XLinear(D, QUERY, (2, 3), d_attention=H * A, heads=H))
    vectors, queries = normal(B, L, D), normal(B, N, QUERY, seed=3)
    found = part(part.read(ContextSet(vectors, (2, 3), mask)), queries)
    for b in range(B):
        places = range(L) if mask is None else mask[b].nonzero().flatten().tolist()
        for n in range(N):
            heads, alpha = [], torch.zeros(L).double()
            for head in range(H):
                q, v1 = (
                    embedded(part.query, queries[b, n])[head],
                    embedded(part.gain, queries[b, n])[head],
                )
                hidden = torch.stack(
                    [
                        part.hidden(q * embedded(part.key, vectors[b, i])[head]).clamp(min=0)
                        for i in places
                    ]
                )
                beta = part.place(hidden).flatten().exp()
                beta = beta / beta.sum()
                gamma = 1 / (1 + (-part.channel(hidden.mean(dim=0))).exp())
                v2 = torch.stack([embedded(part.value, vectors[b, i])[head] for i in places])
                heads.append(gamma * v1 * (beta @ v2))
                alpha[places] += beta / H
            joined = part.output(torch.cat([queries[b, n], *heads]))
            joined = (joined - joined.mean()) / (joined.var(unbiased=False) + 1e-5).sqrt()
            expected = joined * part.norm.weight + part.norm.bias
            close(found.context[b, n], expected, 1e-10)
            close(found.alpha[b, n], alpha, 1e-10)


def test_the_published_size():
    """That of the block, its projection and norm, without the bias of the scores, which changes
    nothing.
    """
    part = XLinear(1024, 1024, (1, 1))
    assert sum(parameter.numel() for parameter in part.parameters()) == 6_323_457 - 1
    with pytest.raises(ValueError, match="heads is 4"):
        XLinear(D, QUERY, (1, 1), d_attention=6, heads=4)
    assert not XLinear.stochastic
