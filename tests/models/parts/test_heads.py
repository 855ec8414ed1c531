"""Heads, initial states and what is injected, against their equations.

B images, L context vectors of D features, features of word, state and context, V words.
"""

from typing import Any

import pytest
import torch
from models.captioners import normal, randomised

from captioning.backbones.context import ContextSet
from captioning.models.parts.heads import Deep, Head, Linear, Xu
from captioning.models.parts.image import MLP, Initial, Inject, Mean, State, Zero
from captioning.models.parts.numerics import dropout

B, L, D, WORD, STATE, CONTEXT, V = 2, 3, 5, 7, 11, 13, 17
SIZES = {"d_word": WORD, "d_hidden": STATE, "d_context": CONTEXT, "vocab_size": V}
Y, H, Z = normal(B, WORD), normal(B, STATE, seed=2), normal(B, CONTEXT, seed=3)
MASK = torch.tensor([[True, False, True], [False, True, False]])
CLOSE: dict[str, Any] = {"rtol": 0, "atol": 1e-12}


@pytest.mark.parametrize("attends", [True, False])
@pytest.mark.parametrize("name", ["linear", "xu", "xu, tanh", "xu, bias", "deep", "maxout"])
@torch.no_grad()
def test_heads(name: str, attends: bool) -> None:
    sizes = SIZES | ({} if attends else {"d_context": 0})
    heads: dict[str, Head] = {
        "linear": Linear(**sizes),
        "xu": Xu(**sizes),
        "xu, tanh": Xu(**sizes, tanh=True),
        "xu, bias": Xu(**sizes, bias="zero"),
        "deep": Deep(**sizes),
        "maxout": Deep(**sizes, pool="maxout", width=6),
    }
    head = randomised(heads[name])
    found = head(head.features(Y, H, Z if attends else None))
    p = dict(head.named_parameters())
    total = H if name == "linear" else H @ p["hidden.weight"].T
    if attends and name != "linear":
        total = total + Z @ p["context.weight"].T
    if name.startswith("xu"):
        total = total + Y
    elif name != "linear":
        total = total + Y @ p["word.weight"].T + p["word.bias"]
    if name in ("xu, tanh", "deep"):
        total = total.tanh()
    if name == "maxout":
        total = torch.stack([torch.maximum(total[:, 2 * k], total[:, 2 * k + 1]) for k in range(3)], dim=1)
    expected = total @ p["output.weight"].T + p.get("output.bias", torch.zeros(V))
    torch.testing.assert_close(found, expected, **CLOSE)
    assert ("output.bias" in p) == (name not in ("xu", "xu, tanh"))


def test_a_bias_of_frequencies() -> None:
    """Of a word seen thrice, one seen once and 15 never seen, each counted once more: 4, 2 and 1 of 21."""
    head = Xu(**SIZES, bias="frequencies")
    head.begin(torch.tensor([0, 3, 1, *[0] * 14]))
    probabilities = head(torch.zeros(WORD)).softmax(dim=-1) * 21
    torch.testing.assert_close(probabilities, torch.tensor([1.0, 4, 2, *[1] * 14]))


def image(masked: bool) -> tuple[ContextSet, torch.Tensor]:
    vectors = normal(B, L, D)
    rows = [[k for k in range(L) if not masked or MASK[b, k]] for b in range(B)]
    mean = torch.stack([sum(vectors[b, k] for k in rows[b]) / len(rows[b]) for b in range(B)])
    return ContextSet(vectors, (1, L), MASK if masked else None), mean


@pytest.mark.parametrize("masked", [True, False])
@torch.no_grad()
def test_initial_states(masked: bool) -> None:
    context, mean = image(masked)
    sizes = {"d_context": D, "grid": (1, L), "d_hidden": STATE, "memories": 2}

    def outputs(initial: Initial) -> list[torch.Tensor]:
        found = initial(context)
        assert [x.shape for x in found] == [(B, STATE)] * 2
        return list(found)

    assert not any(x.any() for x in outputs(Zero(**sizes)))
    two, one, flat = (randomised(MLP(**sizes, **how)) for how in ({}, {"layers": 1}, {"pool": "flat"}))
    for k, found in enumerate(outputs(two)):
        inner = (mean @ two.maps[k][0].weight.T + two.maps[k][0].bias).tanh()
        torch.testing.assert_close(found, (inner @ two.maps[k][2].weight.T + two.maps[k][2].bias).tanh(), **CLOSE)
    for k, found in enumerate(outputs(one)):
        torch.testing.assert_close(found, (mean @ one.maps[k][0].weight.T + one.maps[k][0].bias).tanh(), **CLOSE)
    kept = context.vectors * (MASK[..., None] if masked else 1)
    for k, found in enumerate(outputs(flat)):
        inner = (kept.reshape(B, L * D) @ flat.maps[k][0].weight.T + flat.maps[k][0].bias).tanh()
        torch.testing.assert_close(found, (inner @ flat.maps[k][2].weight.T + flat.maps[k][2].bias).tanh(), **CLOSE)


def test_an_initial_state_of_a_normalised_mean() -> None:
    """While training, features of it are dropped, of all tensors the same."""
    sizes = {"d_context": D, "grid": (1, L), "d_hidden": STATE, "memories": 2, "layers": 1}
    context, mean = image(True)
    initial = randomised(MLP(**sizes, norm=True, dropout=0.25))
    scale, shift = initial.norm.weight, initial.norm.bias
    centred = mean - mean.mean(dim=1, keepdim=True)
    seen = centred / (centred.square().mean(dim=1, keepdim=True) + 1e-5).sqrt() * scale + shift
    for found, map_ in zip(initial(context), initial.maps, strict=True):
        torch.testing.assert_close(found, (seen @ map_[0].weight.T + map_[0].bias).tanh(), **CLOSE)
    torch.manual_seed(1)
    found = initial.train()(context)
    torch.manual_seed(1)
    dropped = dropout(seen, 0.25, True)
    assert not torch.equal(dropped, seen)
    for state, map_ in zip(found, initial.maps, strict=True):
        torch.testing.assert_close(state, (dropped @ map_[0].weight.T + map_[0].bias).tanh(), **CLOSE)


@pytest.mark.parametrize("masked", [True, False])
@torch.no_grad()
def test_injected_images(masked: bool) -> None:
    context, mean = image(masked)
    sizes = {"d_context": D, "d_word": WORD, "d_hidden": STATE}
    parts: dict[str, Inject] = {
        "every": Mean(**sizes),
        "first": Mean(**sizes, once=True),
        "mean": Mean(**sizes, project=False),
        "state": State(**sizes),
    }
    assert {name for name, part in parts.items() if part.once} == {"first"}
    for name, part in parts.items():
        p = dict(randomised(part).named_parameters())
        seen = {"mean": mean, "state": H}.get(name, mean)
        expected = seen @ p["project.weight"].T + p.get("project.bias", 0) if p else seen
        found = part(context, H)
        torch.testing.assert_close(found, expected, **CLOSE)
        assert found.shape == (B, part.d_image)
