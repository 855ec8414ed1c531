"""Show, Attend and Tell, as it is composed, against loops over its equations; its choice of a context; its dropout.

B images, N captions per image, C input positions, L context vectors of D features, M = d_embed, n = d_hidden,
A = d_attention, V words; all different primes.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
from models.captioners import captioner, led
from torch import Tensor, nn
from torch.nn import functional as F

from captioning.backbones.context import ContextSet
from captioning.models import CaptionOutput, Recurrent
from captioning.models import recurrent as recurrent_module
from captioning.tokens import BOS
from captioning.training.objectives import Draws

B, N, C, M, L, HIDDEN, D, A, V = 2, 3, 5, 7, 11, 13, 17, 19, 23
GRID = (1, L)
CLOSE: dict[str, Any] = {"rtol": 0, "atol": 1e-10}
MASK = torch.tensor([[k not in (1, 7, 10) for k in range(L)], [k in (0, 2, 3, 5) for k in range(L)]])
MIXED = torch.tensor([True, False])

masks = pytest.mark.parametrize("mask", [None, MASK], ids=["all", "masked"])
gates = pytest.mark.parametrize("gate", [True, False], ids=["gate", "no gate"])


def build(seed: int = 0, **changes: Any) -> Recurrent:
    """In double precision, evaluating, every parameter random: biases too."""
    torch.manual_seed(seed)
    sizes = {"d_embed": M, "d_hidden": HIDDEN, "score.d_attention": A}
    model = captioner("sat_soft", V, D, GRID, **(sizes | changes)).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def inputs(
    seed: int = 1, b: int = B, n: int = N, c: int = C, length: int = L, mask: Tensor | None = None
) -> tuple[ContextSet, Tensor]:
    torch.manual_seed(seed)
    context = ContextSet(normal(b, length, D), (1, length), mask)
    tokens = torch.randint(4, V, (b, n, c))
    tokens[..., 0] = BOS
    return context, tokens


def paths(seed: int = 2, mask: Tensor | None = None) -> Tensor:
    """Locations `[B, N, C]` that may be attended."""
    generator = torch.Generator().manual_seed(seed)
    allowed = torch.ones(B, L) if mask is None else mask.float()
    return torch.multinomial(allowed, N * C, replacement=True, generator=generator).view(B, N, C)


class Pass(NamedTuple):
    hidden: Tensor
    logits: Tensor
    alpha: Tensor
    log_alpha: Tensor
    entropy: Tensor


def sigmoid(x: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-x))


def recomputed(
    model: Recurrent,
    vectors: Tensor,
    tokens: Tensor,
    keep: Tensor | None = None,
    path: Tensor | None = None,
    argmax: bool = False,
    temperature: float = 1.0,
    output_tanh: bool = False,
    drop: Callable[[Tensor], Tensor] = lambda x: x,
) -> Pass:
    """Section 1.2 for one image `[L, D]` and caption `[C]`.

    The fields are `[C, M]`, `[C, V]`, `[C, L]`, `[C, L]` and `[C]`. Knows of the model its weights and nothing else,
    and of masked vectors nothing at all.
    """
    p = dict(model.named_parameters())
    places = [k for k in range(len(vectors)) if keep is None or keep[k]]
    a_mean = torch.einsum("ld->d", vectors[places]) / len(places)

    def f_init(name: str) -> Tensor:
        inner = torch.tanh(torch.einsum("nd,d->n", p[f"{name}.0.weight"], a_mean) + p[f"{name}.0.bias"])
        return drop(torch.tanh(torch.einsum("kn,n->k", p[f"{name}.2.weight"], inner) + p[f"{name}.2.bias"]))

    h, c = f_init("initial.maps.0"), f_init("initial.maps.1")
    steps = []
    for t, token in enumerate(tokens.tolist()):
        word = p["embed.weight"][token]
        e = {}  # Eq. 4
        for k in places:
            inner = torch.einsum("ad,d->a", p["attention.score.context.weight"], vectors[k])
            inner = (
                inner
                + torch.einsum("an,n->a", p["attention.score.query.weight"], h)
                + p["attention.score.context.bias"]
            )
            e[k] = torch.dot(p["attention.score.weight"], torch.tanh(inner)) / temperature
        total = sum(torch.exp(score) for score in e.values())
        alpha = {k: torch.exp(score) / total for k, score in e.items()}  # Eq. 5
        if path is not None:
            z = vectors[path[t]]  # Eq. 9
        elif argmax:
            z = vectors[max(places, key=lambda k: float(e[k].detach()))]
        else:
            z = sum(alpha[k] * vectors[k] for k in places)  # Eq. 13
        if "attention.gate.weight" in p:
            z = sigmoid(torch.dot(p["attention.gate.weight"][0], h) + p["attention.gate.bias"][0]) * z
        blocks = []
        for k in range(4):  # Eq. 1
            rows = slice(k * HIDDEN, (k + 1) * HIDDEN)
            block = torch.einsum("km,m->k", p["cell.word.weight"][rows], word) + p["cell.word.bias"][rows]
            block = block + torch.einsum("kn,n->k", p["cell.hidden.weight"][rows], h)
            blocks.append(block + torch.einsum("kd,d->k", p["cell.context.weight"][rows], z))
        i, f, o, g = sigmoid(blocks[0]), sigmoid(blocks[1]), sigmoid(blocks[2]), torch.tanh(blocks[3])
        c = f * c + i * g  # Eq. 2
        h = o * torch.tanh(c)  # Eq. 3
        argument = word + torch.einsum("mn,n->m", p["head.hidden.weight"], h)  # Eq. 7
        argument = argument + torch.einsum("md,d->m", p["head.context.weight"], z)
        if output_tanh:
            argument = torch.tanh(argument)
        logits = torch.einsum("vm,m->v", p["head.output.weight"], drop(argument))
        none, never = vectors.new_zeros(()), vectors.new_full((), -math.inf)
        steps.append(
            Pass(
                argument,
                logits,
                torch.stack([alpha.get(k, none) for k in range(len(vectors))]),
                torch.stack([torch.log(alpha[k]) if k in alpha else never for k in range(len(vectors))]),
                -sum(x * torch.log(x) for x in alpha.values()),
            )
        )
    return Pass(*(torch.stack(field) for field in zip(*steps, strict=True)))


def check(
    model: Recurrent,
    context: ContextSet,
    tokens: Tensor,
    sampled: Tensor | None = None,
    locations: Tensor | None = None,
    **how: Any,
) -> None:
    """The pass of every caption, its logits, map and policy equal the recomputed ones."""
    uniform = None if locations is None else led(model, locations)
    output = model(context, tokens, need_weights=True, sampled=sampled, uniform=uniform)
    spared = model(context, tokens, sampled=sampled, uniform=uniform)
    logits = model.readout(output.hidden)
    b, n, c = tokens.shape
    assert output.hidden.shape == (b, n, c, M)
    assert logits.shape == (b, n, c, V)
    assert output.attention.shape == (b, n, c, context.vectors.shape[1])
    assert spared.attention is None
    assert torch.equal(spared.hidden, output.hidden)
    if sampled is None:
        assert output.policy is None
    else:
        assert torch.equal(output.policy.sampled, sampled)
        assert output.policy.log_prob.shape == output.policy.entropy.shape == (b, n, c)
    for i in range(b):
        keep = None if context.mask is None else context.mask[i]
        hard = sampled is not None and bool(sampled[i])
        for j in range(n):
            path = locations[i, j] if hard else None
            expected = recomputed(model, context.vectors[i], tokens[i, j], keep, path, **how)
            torch.testing.assert_close(output.hidden[i, j], expected.hidden, **CLOSE)
            torch.testing.assert_close(logits[i, j], expected.logits, **CLOSE)
            torch.testing.assert_close(output.attention[i, j], expected.alpha, **CLOSE)
            if hard:
                log_prob = torch.stack([expected.log_alpha[t, k] for t, k in enumerate(path.tolist())])
                torch.testing.assert_close(output.policy.log_prob[i, j], log_prob, **CLOSE)
                torch.testing.assert_close(output.policy.entropy[i, j], expected.entropy, **CLOSE)
            elif sampled is not None:
                assert not output.policy.log_prob[i, j].any()
                assert not output.policy.entropy[i, j].any()


def taken(
    model: Recurrent, context: ContextSet, tokens: Tensor, sampled: Tensor, uniform: Tensor | None = None
) -> tuple[CaptionOutput, Tensor]:
    """A pass along drawn locations, and these `[B, N, C]`, told by their probability."""
    output = model(context, tokens, need_weights=True, sampled=sampled, uniform=uniform)
    distance = (output.attention.log() - output.policy.log_prob[..., None]).abs()
    nearest = distance.topk(2, dim=-1, largest=False)
    assert (nearest.values[sampled][..., 0] < 1e-12).all()
    assert (nearest.values[sampled][..., 1] > 1e-9).all()
    return output, nearest.indices[..., 0]


# The whole pass


@masks
@gates
@torch.no_grad()
def test_whole_pass_with_the_expected_context(mask: Tensor | None, gate: bool) -> None:
    check(build(gate=gate), *inputs(mask=mask))


@masks
@gates
@torch.no_grad()
def test_whole_pass_along_given_locations(mask: Tensor | None, gate: bool) -> None:
    sampled = torch.ones(B, dtype=torch.bool)
    check(build(gate=gate), *inputs(mask=mask), sampled=sampled, locations=paths(mask=mask))


@masks
@pytest.mark.parametrize("sampled", [[True, False], [False, True], [False, False]])
@torch.no_grad()
def test_sampled_and_expected_images_in_one_pass(mask: Tensor | None, sampled: list[bool]) -> None:
    check(build(), *inputs(mask=mask), sampled=torch.tensor(sampled), locations=paths(mask=mask))


@masks
@torch.no_grad()
def test_whole_pass_at_the_likeliest_location(mask: Tensor | None) -> None:
    check(build(choice="argmax"), *inputs(mask=mask), argmax=True)


@pytest.mark.parametrize("temperature", [0.5, 3.0])
@torch.no_grad()
def test_temperature_divides_the_scores(temperature: float) -> None:
    model, (context, tokens) = build(temperature=temperature), inputs()
    check(model, context, tokens, temperature=temperature)
    check(model, context, tokens, sampled=MIXED, locations=paths(), temperature=temperature)


@torch.no_grad()
def test_output_tanh() -> None:
    check(build(**{"head.tanh": True}), *inputs(), output_tanh=True)


@torch.no_grad()
def test_attention_is_as_wide_as_the_context_vectors_by_default() -> None:
    model = build(**{"score.d_attention": None})
    assert model.attention.score.weight.shape == (D,)
    check(model, *inputs())


@masks
@pytest.mark.parametrize("sampled", [None, MIXED], ids=["expected", "mixed"])
def test_gradients_of_the_whole_pass(mask: Tensor | None, sampled: Tensor | None) -> None:
    # Those of log_prob and entropy too: through alpha_t they reach every earlier step of the LSTM.
    model, (context, tokens), locations = build(), inputs(mask=mask), paths(mask=mask)
    output = model(context, tokens, sampled=sampled, uniform=led(model, locations))
    loss, expected = output.hidden.cos().sum(), 0.0
    if sampled is not None:
        loss = loss + 2 * output.policy.log_prob.sum() + 3 * output.policy.entropy.sum()
    for i in range(B):
        keep = None if mask is None else mask[i]
        hard = sampled is not None and bool(sampled[i])
        for j in range(N):
            path = locations[i, j] if hard else None
            passed = recomputed(model, context.vectors[i], tokens[i, j], keep, path)
            expected = expected + passed.hidden.cos().sum()
            if hard:
                expected = expected + 2 * sum(passed.log_alpha[t, k] for t, k in enumerate(path.tolist()))
                expected = expected + 3 * passed.entropy.sum()
    names, parameters = zip(*((k, p) for k, p in model.named_parameters() if k != "head.output.weight"), strict=True)
    found, right = torch.autograd.grad(loss, parameters), torch.autograd.grad(expected, parameters)
    for name, gradient, other in zip(names, found, right, strict=True):
        assert gradient.any(), name
        torch.testing.assert_close(gradient, other, rtol=1e-10, atol=1e-10, msg=lambda text, name=name: name + text)


# What it is made of


def test_it_begins_with_orthogonal_recurrences_and_open_forget_gates() -> None:
    torch.manual_seed(0)
    model = captioner("sat_soft", V, D, GRID, **{"d_embed": M, "d_hidden": HIDDEN, "score.d_attention": A})
    for block in model.cell.hidden.weight.view(4, HIDDEN, HIDDEN):
        torch.testing.assert_close(block @ block.T, torch.eye(HIDDEN), rtol=0, atol=1e-5)
    bias = model.cell.word.bias.view(4, HIDDEN)  # i, f, o, g
    assert (bias[1] == 1).all()
    assert not bias[[0, 2, 3]].any()
    assert model.attention.score.weight.abs().max() <= A**-0.5
    assert all(parameter.any() for name, parameter in model.named_parameters() if not name.endswith("bias"))


# The choice of a context


@torch.no_grad()
def test_drawn_locations_are_a_path_like_a_given_one() -> None:
    model, (context, tokens) = build(), inputs(mask=MASK)
    torch.manual_seed(3)
    output, locations = taken(model, context, tokens, torch.ones(B, dtype=torch.bool))
    assert all(MASK[i, k] for i in range(B) for k in locations[i].flatten().tolist())
    assert len(set(locations.flatten().tolist())) > 4
    given = model(context, tokens, True, torch.ones(B, dtype=torch.bool), led(model, locations))
    assert torch.equal(given.hidden, output.hidden)
    assert torch.equal(given.attention, output.attention)
    assert torch.equal(given.policy.log_prob, output.policy.log_prob)
    assert torch.equal(given.policy.entropy, output.policy.entropy)


def chi_square(counts: Tensor, alpha: Tensor) -> float:
    expected = counts.sum() * alpha
    assert expected.min() > 20
    assert alpha.max() > 2 * alpha.min()  # else any draw would do
    return float(((counts - expected) ** 2 / expected).sum())


FREE_DRAWS_REACH = 35.56  # with probability 1e-4, at L - 1 = 10 degrees of freedom


@pytest.mark.parametrize("uniform", [None, Draws(4, 7, torch.tensor([2])).uniform(4001, 2)], ids=["generator", "given"])
@torch.no_grad()
def test_locations_are_drawn_from_alpha(uniform: Tensor | None) -> None:
    model, (context, tokens) = build(), inputs(b=1, n=4001, c=2)
    torch.manual_seed(4)
    output, locations = taken(model, context, tokens, torch.ones(1, dtype=torch.bool), uniform)
    first, second = locations[0].T
    alpha = output.attention[0, 0, 0]
    assert chi_square(first.bincount(minlength=L), alpha) < FREE_DRAWS_REACH
    # The second step draws anew, each caption from its own alpha.
    total = output.attention[0, :, 1].sum(dim=0)
    assert chi_square(second.bincount(minlength=L), total / total.sum()) < FREE_DRAWS_REACH
    assert 0.5 < (first == second).sum() / output.attention[0].prod(dim=1).sum() < 2


@torch.no_grad()
def test_evenly_spaced_numbers_draw_every_location_as_often_as_alpha_says() -> None:
    model, (context, tokens) = build(), inputs(b=1, n=4096, c=1)
    uniform = torch.arange(4096)[None, :, None] / 4096
    output, locations = taken(model, context, tokens, torch.ones(1, dtype=torch.bool), uniform)
    counts = locations.flatten().bincount(minlength=L)
    assert (counts - 4096 * output.attention[0, 0, 0]).abs().max() <= 1
    assert (locations.flatten().diff() >= 0).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@torch.no_grad()
def test_extreme_numbers_draw_the_first_and_the_last_location_that_may_be_attended(dtype: torch.dtype) -> None:
    mask = torch.ones(B, L, dtype=torch.bool)
    mask[:, [0, 1, 5, L - 1]] = False
    everywhere = torch.ones(B, dtype=torch.bool)
    for seed in range(5):
        context, tokens = inputs(seed, mask=mask)
        context = ContextSet(context.vectors.to(dtype), GRID, mask)
        for number, end in ((0.0, 2), (1 - 2**-24, L - 2)):
            uniform = torch.full((B, N, C), number)
            output = build(seed).to(dtype)(context, tokens, True, everywhere, uniform=uniform)
            assert torch.equal(output.policy.log_prob.exp(), output.attention[..., end])
            # attention so sharp that most of alpha is zero, at the ends too
            output = build(seed, temperature=1e-3).to(dtype)(context, tokens, True, everywhere, uniform=uniform)
            assert (output.attention == 0).any()
            assert (output.policy.log_prob.exp() > 0).all()


@torch.no_grad()
def test_the_choice_to_sample_draws_from_alpha() -> None:
    model, (context, tokens) = build(choice="sample"), inputs(b=1, n=4001, c=1)
    torch.manual_seed(5)
    output = model(context, tokens, need_weights=True)
    assert output.policy is None
    everywhere = torch.arange(L)[None, :, None]
    everyone = torch.ones(1, dtype=torch.bool)
    candidates = model(context, tokens[:, :L], sampled=everyone, uniform=led(model, everywhere)).hidden
    distance = torch.cdist(output.hidden[0, :, 0], candidates[0, :, 0])
    assert (distance.amin(dim=1) < 1e-6).all()
    counts = distance.argmin(dim=1).bincount(minlength=L)
    assert chi_square(counts, output.attention[0, 0, 0]) < FREE_DRAWS_REACH


@pytest.mark.parametrize("how", ["sampled", "choice"])
@torch.no_grad()
def test_samples_are_reproducible_by_seed(how: str) -> None:
    context, tokens = inputs()
    sampled = torch.ones(B, dtype=torch.bool) if how == "sampled" else None
    model = build(choice="sample" if how == "choice" else "expected")
    hidden = []
    for seed in (6, 6, 7):
        torch.manual_seed(seed)
        hidden.append(model(context, tokens, sampled=sampled).hidden)
    assert torch.equal(hidden[0], hidden[1])
    assert not torch.equal(hidden[0], hidden[2])


@pytest.mark.parametrize("choice", ["expected", "argmax"])
@torch.no_grad()
def test_only_samples_touch_the_generator(choice: str) -> None:
    model, (context, tokens) = build(choice=choice), inputs()
    before = torch.get_rng_state()
    model.step(tokens[..., 0], model(context, tokens) and model.start(context, N))
    assert torch.equal(torch.get_rng_state(), before)


# The policy


@masks
@torch.no_grad()
def test_an_even_alpha_by_hand(mask: Tensor | None) -> None:
    model, (context, tokens) = build(), inputs(mask=mask)
    model.attention.score.weight.zero_()
    output = model(context, tokens, True, torch.ones(B, dtype=torch.bool), led(model, paths(mask=mask)))
    count = torch.full((B,), L) if mask is None else mask.sum(dim=1)
    even = count.double().log()[:, None, None].expand(B, N, C)
    torch.testing.assert_close(output.policy.entropy, even, **CLOSE)
    torch.testing.assert_close(output.policy.log_prob, -even, **CLOSE)


def test_log_prob_teaches_the_lstm_along_the_path() -> None:
    model, (context, tokens) = build(), inputs()
    output = model(context, tokens, sampled=MIXED, uniform=led(model, paths()))
    for t in range(C):
        for of_step in (output.policy.log_prob[0, 0, t], output.policy.entropy[0, 0, t]):
            lstm = [model.cell.word.weight, model.cell.hidden.weight, model.cell.context.weight]
            found = torch.autograd.grad(of_step, lstm, retain_graph=True, allow_unused=True)
            assert [gradient is not None and bool(gradient.any()) for gradient in found] == [t > 0] * 3
    for policy in (output.policy.log_prob, output.policy.entropy):
        found = torch.autograd.grad(policy[1].sum(), list(model.parameters()), retain_graph=True, allow_unused=True)
        assert not any(gradient is not None and gradient.any() for gradient in found)


# Dropout


@pytest.fixture
def dropped(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[tuple[int, ...], float]]]:
    """Shape and probability of each use of dropout, which becomes a function that anyone can repeat."""
    calls: list[tuple[tuple[int, ...], float]] = []

    def visible(x: Tensor, p: float, training: bool) -> Tensor:
        if not training or p == 0.0:
            return x
        calls.append((tuple(x.shape), p))
        return repeatable(x)

    def refused(*_: Any, **__: Any) -> None:
        pytest.fail("dropout of another kind")

    monkeypatch.setattr(recurrent_module, "dropout", visible)
    for name in ("dropout", "alpha_dropout", "dropout1d", "dropout2d", "feature_alpha_dropout"):
        monkeypatch.setattr(F, name, refused)
    monkeypatch.setattr(torch, "dropout", refused)
    monkeypatch.setattr(torch, "bernoulli", refused)
    yield calls  # noqa: PT022


def repeatable(x: Tensor) -> Tensor:
    """In place of dropout: elementwise, so it does not mind the shape, and not linear, so it must be at the place."""
    return x * (1.5 + 0.25 * x.cos())


STATES = [((B, N, HIDDEN), 0.25)] * 2  # h_0 and c_0 of each caption


@masks
@torch.no_grad()
def test_dropout_is_at_the_initial_states_and_before_the_output(
    mask: Tensor | None, dropped: list[tuple[tuple[int, ...], float]]
) -> None:
    model = build(dropout=0.25, **{"head.tanh": True}).train()
    context, tokens = inputs(mask=mask)
    hidden = model(context, tokens).hidden
    assert dropped == STATES
    model.readout(hidden)
    assert dropped == [*STATES, ((B, N, C, M), 0.25)]
    # And they are where the recomputed pass has them.
    check(model, context, tokens, drop=repeatable, output_tanh=True)
    check(model, context, tokens, MIXED, paths(mask=mask), drop=repeatable, output_tanh=True)


@torch.no_grad()
def test_an_image_is_read_once_for_its_captions() -> None:
    model, (context, tokens) = build(), inputs()
    shapes: list[tuple[int, ...]] = []
    for module in (model.attention.score.context, *model.initial.maps):
        module.register_forward_hook(lambda *call: shapes.append(tuple(call[2].shape)))
    once = [(B, L, A), (B, HIDDEN), (B, HIDDEN)]
    model(context, tokens)
    assert shapes == once
    shapes.clear()
    state = model.start(context, N)
    for t in range(C):
        state = model.step(tokens[..., t], state).state
    assert shapes == once
