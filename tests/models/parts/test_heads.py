"""Heads, initial states and what is injected, against their equations.

B images, L context vectors of D features, features of word, state and context, V words.
"""

import pytest
import torch
from models.tensors import close, normal, randomised

from captioning.backbones.context import ContextSet
from captioning.models.parts.heads import Deep, LinearHead, Xu
from captioning.models.parts.image import Mean, MLPInit, State, Zero
from captioning.models.parts.numerics import dropout

pytestmark = pytest.mark.usefixtures("without_gradients")

B, L, D, WORD, STATE, CONTEXT, V = 2, 3, 5, 7, 11, 13, 17
SIZES = {"d_word": WORD, "d_hidden": STATE, "d_context": CONTEXT, "vocab_size": V}
INITIAL = {"d_context": D, "grid": (1, L), "d_hidden": STATE, "memories": 2}
Y, H, Z = normal(B, WORD), normal(B, STATE, seed=2), normal(B, CONTEXT, seed=3)
MASK = torch.tensor([[True, False, True], [False, True, False]])
VECTORS = normal(B, L, D)


@pytest.mark.parametrize("attends", [True, False])
@pytest.mark.parametrize(
    "kind, settings",
    [
        (LinearHead, {}),
        (Xu, {}),
        (Xu, {"tanh": True}),
        (Xu, {"bias": "zero"}),
        (Deep, {}),
        (Deep, {"pool": "maxout", "width": 6}),
    ],
)
def test_heads(kind, settings, attends):
    head = randomised(kind(**SIZES | ({} if attends else {"d_context": 0}), **settings))
    p = dict(head.named_parameters())
    total = H if kind is LinearHead else H @ p["hidden.weight"].T
    if attends and kind is not LinearHead:
        total = total + Z @ p["context.weight"].T
    if kind is Xu:
        total = total + Y
    elif kind is Deep:
        total = total + Y @ p["word.weight"].T + p["word.bias"]
    if settings.get("pool") == "maxout":
        total = torch.stack(
            [torch.maximum(total[:, 2 * k], total[:, 2 * k + 1]) for k in range(3)], dim=1
        )
    elif kind is Deep or settings.get("tanh"):
        total = total.tanh()
    expected = total @ p["output.weight"].T + p.get("output.bias", torch.zeros(V))
    close(head(head.features(Y, H, Z if attends else None)), expected)
    assert ("output.bias" in p) == (kind is not Xu or "bias" in settings)


def test_a_bias_of_frequencies():
    """Of a word seen thrice, one seen once and 15 never seen, each counted once more: 4, 2 and 1 of
    21.
    """
    head = Xu(**SIZES, bias="frequencies")
    head.init_bias_from_counts(torch.tensor([0, 3, 1, *[0] * 14]))
    probabilities = head(torch.zeros(WORD)).softmax(dim=-1) * 21
    torch.testing.assert_close(probabilities, torch.tensor([1.0, 4, 2, *[1] * 14]))


def mean(masked):
    return torch.stack([VECTORS[b, MASK[b] if masked else [0, 1, 2]].mean(dim=0) for b in range(B)])


def mapped(map_, x, last=torch.tanh):
    """tanh(W .. tanh(W x + b) + b)."""
    *first, linear = map_[::2]
    for before in first:
        x = (x @ before.weight.T + before.bias).tanh()
    return last(x @ linear.weight.T + linear.bias)


@pytest.mark.parametrize("masked", [True, False])
def test_initial_states(masked):
    context = ContextSet(VECTORS, (1, L), MASK if masked else None)
    assert [x.shape for x in Zero(**INITIAL)(context) if not x.any()] == [(B, STATE)] * 2
    flat = (VECTORS * (MASK[..., None] if masked else 1)).reshape(B, L * D)
    for how, seen, layers in (
        ({}, mean(masked), 2),
        ({"layers": 1}, mean(masked), 1),
        ({"pool": "flat"}, flat, 2),
    ):
        initial = randomised(MLPInit(**INITIAL, **how))
        assert [len(map_) for map_ in initial.maps] == [2 * layers] * 2
        close(initial(context), tuple(mapped(map_, seen) for map_ in initial.maps))


def test_a_linear_initial_state():
    context = ContextSet(VECTORS, (1, L), MASK)
    for layers in (1, 2):
        initial = randomised(MLPInit(**INITIAL, layers=layers, last="linear"))
        x = mean(True)
        close(initial(context), tuple(mapped(map_, x, torch.asarray) for map_ in initial.maps))


def test_an_initial_state_of_a_normalised_mean():
    """While training, features of it are dropped, of all tensors the same."""
    initial = randomised(MLPInit(**INITIAL, layers=1, norm=True, dropout=0.25))
    centred = mean(True) - mean(True).mean(dim=1, keepdim=True)
    scaled = centred / (centred.square().mean(dim=1, keepdim=True) + 1e-5).sqrt()
    seen = scaled * initial.norm.weight + initial.norm.bias
    torch.manual_seed(1)
    dropped = dropout(seen, 0.25, True)
    assert not torch.equal(dropped, seen)
    for training, x in ((False, seen), (True, dropped)):
        torch.manual_seed(1)
        found = initial.train(training)(ContextSet(VECTORS, (1, L), MASK))
        close(found, tuple(mapped(map_, x) for map_ in initial.maps))


@pytest.mark.parametrize("masked", [True, False])
def test_injected_images(masked):
    sizes = {"d_context": D, "d_word": WORD, "d_hidden": STATE}
    for part in (
        Mean(**sizes),
        Mean(**sizes, once=True),
        Mean(**sizes, project=False),
        State(**sizes),
    ):
        p = dict(randomised(part).named_parameters())
        seen = H if isinstance(part, State) else mean(masked)
        expected = seen @ p["project.weight"].T + p.get("project.bias", 0) if p else seen
        found = part(ContextSet(VECTORS, (1, L), MASK if masked else None), H)
        close(found, expected)
        assert found.shape == (B, part.d_image)


def test_the_vector_of_the_whole_image_is_injected_in_place_of_the_mean():
    sizes = {"d_context": D, "d_word": WORD, "d_hidden": STATE}
    part = randomised(Mean(**sizes, relu=True, whole=3, width=6))
    whole = normal(B, 3, seed=4)
    found = part(ContextSet(VECTORS, (1, L), MASK, whole), H)
    expected = whole @ part.project.weight.T + part.project.bias
    assert part.d_image == 6
    close(found, expected.clamp(min=0))
    close(Mean(**sizes, project=False, whole=3)(ContextSet(VECTORS, (1, L), MASK, whole), H), whole)
    with pytest.raises(ValueError, match=r"backbone\.whole"):
        part(ContextSet(VECTORS, (1, L), MASK), H)
    with pytest.raises(ValueError, match=r"width=null"):
        Mean(**sizes, once=True, width=6)
