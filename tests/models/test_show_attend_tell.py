"""Show, Attend and Tell against section 1.2 of the design: the whole pass recomputed with loops, and its laws.

B images, N captions per image, C input positions, L context vectors of D features, M = d_embed, n = d_hidden,
A = d_attention, V words; all different primes.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from captioning.backbones.context import ContextSet
from captioning.models import CaptionOutput, ShowAttendTell
from captioning.models import show_attend_tell as show_attend_tell_module
from captioning.tokens import BOS, PAD
from captioning.training.objectives import Draws

B, N, C, M, L, HIDDEN, D, A, V = 2, 3, 5, 7, 11, 13, 17, 19, 23
GRID = (1, L)
CLOSE: dict[str, Any] = {"rtol": 0, "atol": 1e-10}
MASK = torch.tensor([[k not in (1, 7, 10) for k in range(L)], [k in (0, 2, 3, 5) for k in range(L)]])
MIXED = torch.tensor([True, False])

masks = pytest.mark.parametrize("mask", [None, MASK], ids=["all", "masked"])
gates = pytest.mark.parametrize("gate", [True, False], ids=["gate", "no gate"])


def build(seed: int = 0, **changes: Any) -> ShowAttendTell:
    """In double precision, evaluating, every parameter random: biases too."""
    torch.manual_seed(seed)
    arguments = {
        "vocab_size": V,
        "d_context": D,
        "grid": GRID,
        "d_embed": M,
        "d_hidden": HIDDEN,
        "d_attention": A,
    }
    model = ShowAttendTell(**(arguments | changes)).double().eval()
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
    model: ShowAttendTell,
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

    h, c = f_init("initial_hidden"), f_init("initial_cell")
    steps = []
    for t, token in enumerate(tokens.tolist()):
        word = p["embed.weight"][token]
        e = {}  # Eq. 4
        for k in places:
            inner = torch.einsum("ad,d->a", p["attention_context.weight"], vectors[k])
            inner = inner + torch.einsum("an,n->a", p["attention_hidden.weight"], h) + p["attention_context.bias"]
            e[k] = torch.dot(p["attention_score"], torch.tanh(inner)) / temperature
        total = sum(torch.exp(score) for score in e.values())
        alpha = {k: torch.exp(score) / total for k, score in e.items()}  # Eq. 5
        if path is not None:
            z = vectors[path[t]]  # Eq. 9
        elif argmax:
            z = vectors[max(places, key=lambda k: float(e[k].detach()))]
        else:
            z = sum(alpha[k] * vectors[k] for k in places)  # Eq. 13
        if "gate.weight" in p:
            z = sigmoid(torch.dot(p["gate.weight"][0], h) + p["gate.bias"][0]) * z
        blocks = []
        for k in range(4):  # Eq. 1
            rows = slice(k * HIDDEN, (k + 1) * HIDDEN)
            block = torch.einsum("km,m->k", p["lstm_word.weight"][rows], word) + p["lstm_word.bias"][rows]
            block = block + torch.einsum("kn,n->k", p["lstm_hidden.weight"][rows], h)
            blocks.append(block + torch.einsum("kd,d->k", p["lstm_context.weight"][rows], z))
        i, f, o, g = sigmoid(blocks[0]), sigmoid(blocks[1]), sigmoid(blocks[2]), torch.tanh(blocks[3])
        c = f * c + i * g  # Eq. 2
        h = o * torch.tanh(c)  # Eq. 3
        argument = word + torch.einsum("mn,n->m", p["output_hidden.weight"], h)  # Eq. 7
        argument = argument + torch.einsum("md,d->m", p["output_context.weight"], z)
        if output_tanh:
            argument = torch.tanh(argument)
        logits = torch.einsum("vm,m->v", p["output.weight"], drop(argument))
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
    model: ShowAttendTell,
    context: ContextSet,
    tokens: Tensor,
    sampled: Tensor | None = None,
    locations: Tensor | None = None,
    **how: Any,
) -> None:
    """The pass of every caption, its logits, map and policy equal the recomputed ones."""
    output = model(context, tokens, need_weights=True, sampled=sampled, locations=locations)
    spared = model(context, tokens, sampled=sampled, locations=locations)
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
    model: ShowAttendTell, context: ContextSet, tokens: Tensor, sampled: Tensor, uniform: Tensor | None = None
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
    check(build(output_tanh=True), *inputs(), output_tanh=True)


@torch.no_grad()
def test_attention_is_as_wide_as_the_context_vectors_by_default() -> None:
    model = build(d_attention=None)
    assert model.attention_score.shape == (D,)
    check(model, *inputs())


@masks
@pytest.mark.parametrize("sampled", [None, MIXED], ids=["expected", "mixed"])
def test_gradients_of_the_whole_pass(mask: Tensor | None, sampled: Tensor | None) -> None:
    # Those of log_prob and entropy too: through alpha_t they reach every earlier step of the LSTM.
    model, (context, tokens), locations = build(), inputs(mask=mask), paths(mask=mask)
    output = model(context, tokens, sampled=sampled, locations=locations)
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
    names, parameters = zip(*((k, p) for k, p in model.named_parameters() if k != "output.weight"), strict=True)
    found, right = torch.autograd.grad(loss, parameters), torch.autograd.grad(expected, parameters)
    for name, gradient, other in zip(names, found, right, strict=True):
        assert gradient.any(), name
        torch.testing.assert_close(gradient, other, rtol=1e-10, atol=1e-10, msg=lambda text, name=name: name + text)


# What it is made of


def test_size_is_about_that_of_the_spatial_transformer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nn.init, "orthogonal_", lambda matrix: matrix)  # slow, and no size depends on it
    model = ShowAttendTell(10_000, 512, (14, 14))
    m, n, d = 512, 1216, 512
    embedding = 10_000 * m
    initial_states = 2 * (d * n + n + n * n + n)
    attention = d * d + d + n * d + d  # W_a and b, W_h, w
    gate = n + 1
    lstm = 4 * n * (m + n + d) + 4 * n  # one bias
    readout = n * m + d * m + m * 10_000  # no bias, and not the weights of the embedding
    total = embedding + initial_states + attention + gate + lstm + readout
    assert total == 27_119_297
    assert sum(parameter.numel() for parameter in model.parameters()) == total
    assert abs(total / 27_052_816 - 1) < 0.01
    assert (model.dropout, model.choice, model.temperature, model.output_tanh) == (0.5, "expected", 1.0, False)


def test_biases_are_where_the_equations_have_them() -> None:
    names = {name for name, _ in build().named_parameters()}
    assert {name for name in names if name.endswith("bias")} == {
        "initial_hidden.0.bias",
        "initial_hidden.2.bias",
        "initial_cell.0.bias",
        "initial_cell.2.bias",
        "attention_context.bias",
        "gate.bias",
        "lstm_word.bias",
    }
    assert names - {name for name, _ in build(gate=False).named_parameters()} == {"gate.weight", "gate.bias"}


def test_it_begins_with_orthogonal_recurrences_and_open_forget_gates() -> None:
    torch.manual_seed(0)
    model = ShowAttendTell(V, D, GRID, d_embed=M, d_hidden=HIDDEN, d_attention=A)
    for block in model.lstm_hidden.weight.view(4, HIDDEN, HIDDEN):
        torch.testing.assert_close(block @ block.T, torch.eye(HIDDEN), rtol=0, atol=1e-5)
    bias = model.lstm_word.bias.view(4, HIDDEN)  # i, f, o, g
    assert (bias[1] == 1).all()
    assert not bias[[0, 2, 3]].any()
    assert model.attention_score.abs().max() <= A**-0.5
    assert all(parameter.any() for name, parameter in model.named_parameters() if not name.endswith("bias"))


@gates
def test_every_parameter_learns(gate: bool) -> None:
    model = build(gate=gate)
    model.readout(model(*inputs(mask=MASK)).hidden).cos().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.any(), name


# The choice of a context


@torch.no_grad()
def test_drawn_locations_are_a_path_like_a_given_one() -> None:
    model, (context, tokens) = build(), inputs(mask=MASK)
    torch.manual_seed(3)
    output, locations = taken(model, context, tokens, torch.ones(B, dtype=torch.bool))
    assert all(MASK[i, k] for i in range(B) for k in locations[i].flatten().tolist())
    assert len(set(locations.flatten().tolist())) > 4
    given = model(context, tokens, True, torch.ones(B, dtype=torch.bool), locations)
    assert torch.equal(given.hidden, output.hidden)
    assert torch.equal(given.attention, output.attention)
    assert torch.equal(given.policy.log_prob, output.policy.log_prob)
    assert torch.equal(given.policy.entropy, output.policy.entropy)


@torch.no_grad()
def test_sampled_overrules_the_choice() -> None:
    context, tokens = inputs()
    for choice in ("expected", "sample", "argmax"):
        check(build(choice=choice), context, tokens, sampled=MIXED, locations=paths())


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
    candidates = model(context, tokens[:, :L], sampled=torch.ones(1, dtype=torch.bool), locations=everywhere).hidden
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
    model.attention_score.zero_()
    output = model(context, tokens, True, torch.ones(B, dtype=torch.bool), paths(mask=mask))
    count = torch.full((B,), L) if mask is None else mask.sum(dim=1)
    even = count.double().log()[:, None, None].expand(B, N, C)
    torch.testing.assert_close(output.policy.entropy, even, **CLOSE)
    torch.testing.assert_close(output.policy.log_prob, -even, **CLOSE)


def test_log_prob_teaches_the_lstm_along_the_path() -> None:
    model, (context, tokens) = build(), inputs()
    output = model(context, tokens, sampled=MIXED, locations=paths())
    for t in range(C):
        for of_step in (output.policy.log_prob[0, 0, t], output.policy.entropy[0, 0, t]):
            lstm = [model.lstm_word.weight, model.lstm_hidden.weight, model.lstm_context.weight]
            found = torch.autograd.grad(of_step, lstm, retain_graph=True, allow_unused=True)
            assert [gradient is not None and bool(gradient.any()) for gradient in found] == [t > 0] * 3
    for policy in (output.policy.log_prob, output.policy.entropy):
        found = torch.autograd.grad(policy[1].sum(), list(model.parameters()), retain_graph=True, allow_unused=True)
        assert not any(gradient is not None and gradient.any() for gradient in found)


def test_an_image_that_is_not_sampled_may_be_given_any_location() -> None:
    # Such as zero, masked or not: its path is not taken.
    model, (context, tokens) = build(), inputs(mask=MASK)
    locations = paths(mask=MASK)
    locations[1] = 1
    assert not MASK[1, 1]
    output = model(context, tokens, sampled=MIXED, locations=locations)
    assert not output.policy.log_prob[1].any()
    output.policy.log_prob.sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


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

    monkeypatch.setattr(show_attend_tell_module, "dropout", visible)
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
    model = build(dropout=0.25, output_tanh=True).train()
    context, tokens = inputs(mask=mask)
    hidden = model(context, tokens).hidden
    assert dropped == STATES
    model.readout(hidden)
    assert dropped == [*STATES, ((B, N, C, M), 0.25)]
    # And they are where the recomputed pass has them.
    check(model, context, tokens, drop=repeatable, output_tanh=True)
    check(model, context, tokens, MIXED, paths(mask=mask), drop=repeatable, output_tanh=True)


@torch.no_grad()
def test_dropout_while_training_step_by_step(dropped: list[tuple[tuple[int, ...], float]]) -> None:
    model = build(dropout=0.25).train()
    context, tokens = inputs()
    expected = model.readout(model(context, tokens).hidden)
    dropped.clear()
    state = model.start(context, N)
    assert dropped == STATES
    for t in range(C):
        step = model.step(tokens[..., t], state)
        state = step.state
        torch.testing.assert_close(step.logits, expected[:, :, t], **CLOSE)
    assert dropped == STATES + [((B, N, M), 0.25)] * C


@pytest.mark.parametrize(("p", "training"), [(0.25, False), (0.0, True)])
@torch.no_grad()
def test_no_dropout(p: float, training: bool, dropped: list[tuple[tuple[int, ...], float]]) -> None:
    model = build(dropout=p).train(training)
    check(model, *inputs())
    assert dropped == []


@torch.no_grad()
def test_real_dropout_is_random_for_each_caption() -> None:
    model, (context, _) = build(dropout=0.5).train(), inputs()
    tokens = torch.full((B, N, C), BOS)
    hidden = model(context, tokens).hidden
    assert not torch.equal(model(context, tokens).hidden, hidden)
    assert not torch.equal(hidden[:, 0], hidden[:, 1])
    model.eval()
    assert torch.equal(model(context, tokens).hidden, model(context, tokens).hidden)


# Laws


class Given(nn.Module):
    """In place of an embedding: what the words are is given, so that it can be differentiated."""

    def __init__(self, rows: Tensor) -> None:
        super().__init__()
        self.rows = rows

    def forward(self, _: Tensor) -> Tensor:
        return self.rows


def test_no_gradient_from_future_tokens_or_other_captions() -> None:
    model, (context, tokens) = build(), inputs()
    rows = normal(B, N, C, M).requires_grad_()
    vectors = context.vectors.requires_grad_()
    model.embed = Given(rows)
    sampled = torch.tensor([False, True])
    for how in ({}, {"sampled": sampled, "locations": paths()}):
        output = model(ContextSet(vectors, GRID), tokens, need_weights=True, **how)
        for t in range(C):
            loss = output.hidden[1, 2, t].cos().sum()
            rows_grad, vectors_grad = torch.autograd.grad(loss, (rows, vectors), retain_graph=True)
            assert rows_grad[1, 2, : t + 1].abs().amin() > 0
            rows_grad[1, 2, : t + 1] = 0
            assert not rows_grad.any(), t  # nothing later, no other caption, no other image
            assert vectors_grad[1].abs().amin() > 0
            assert not vectors_grad[0].any()
            # It attends before it reads the word of this step.
            loss = output.attention[1, 2, t].cos().sum()
            if how:
                loss = loss + output.policy.log_prob[1, 2, t] + output.policy.entropy[1, 2, t]
            (rows_grad,) = torch.autograd.grad(loss, rows, retain_graph=True, materialize_grads=True)
            assert t == 0 or rows_grad[1, 2, :t].abs().amin() > 0
            rows_grad[1, 2, :t] = 0
            assert not rows_grad.any(), t


@torch.no_grad()
def test_padding_changes_nothing_before_it() -> None:
    model, (context, tokens) = build(), inputs()
    padded = F.pad(tokens, (0, 3), value=PAD)
    further = F.pad(paths(), (0, 3))
    exact = model(context, tokens, True, MIXED, paths())
    output = model(context, padded, True, MIXED, further)
    torch.testing.assert_close(output.hidden[:, :, :C], exact.hidden, **CLOSE)
    torch.testing.assert_close(output.attention[:, :, :C], exact.attention, **CLOSE)
    torch.testing.assert_close(output.policy.log_prob[:, :, :C], exact.policy.log_prob, **CLOSE)
    torch.testing.assert_close(output.policy.entropy[:, :, :C], exact.policy.entropy, **CLOSE)


@masks
@pytest.mark.parametrize("training", [True, False])
def test_a_missing_caption_makes_no_nan(mask: Tensor | None, training: bool) -> None:
    model, (context, tokens) = build().train(training), inputs(mask=mask)
    tokens[1, 0] = PAD
    context.vectors.requires_grad_()
    output = model(context, tokens, sampled=torch.tensor([False, True]) if training else None)
    logits = model.readout(output.hidden)
    assert logits.isfinite().all()
    weight = torch.ones(B, N, 1)
    weight[1, 0] = 0
    loss = (logits.log_softmax(dim=-1)[..., 4] * weight).sum()
    if training:
        loss = loss + ((output.policy.log_prob + output.policy.entropy) * weight).sum()
    loss.backward()
    assert context.vectors.grad.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@torch.no_grad()
def test_a_missing_caption_changes_no_other() -> None:
    model, (context, tokens) = build(), inputs()
    expected = model(context, tokens).hidden
    tokens[1, 0] = PAD
    hidden = model(context, tokens).hidden
    others = torch.ones(B, N, dtype=torch.bool)
    others[1, 0] = False
    torch.testing.assert_close(hidden[others], expected[others], **CLOSE)


@pytest.mark.parametrize("sampled", [None, MIXED], ids=["expected", "mixed"])
@torch.no_grad()
def test_a_masked_pass_is_the_pass_on_the_other_vectors(sampled: Tensor | None) -> None:
    model, (context, tokens) = build(), inputs(mask=MASK)
    locations = paths(mask=MASK)
    masked = model(context, tokens, True, sampled, locations)
    for i in range(B):
        real = MASK[i].nonzero().flatten()
        alone = model(
            ContextSet(context.vectors[i : i + 1, real], (1, len(real))),
            tokens[i : i + 1],
            need_weights=True,
            sampled=None if sampled is None else sampled[i : i + 1],
            locations=torch.searchsorted(real, locations[i : i + 1]),
        )
        torch.testing.assert_close(masked.hidden[i], alone.hidden[0], **CLOSE)
        torch.testing.assert_close(masked.attention[i][..., real], alone.attention[0], **CLOSE)
        assert not masked.attention[i][..., ~MASK[i]].any()
        if sampled is not None:
            torch.testing.assert_close(masked.policy.log_prob[i], alone.policy.log_prob[0], **CLOSE)
            torch.testing.assert_close(masked.policy.entropy[i], alone.policy.entropy[0], **CLOSE)


def test_masked_vectors_have_no_influence() -> None:
    model, (context, tokens) = build(), inputs(mask=MASK)
    vectors = context.vectors.requires_grad_()
    sampled = torch.tensor([True, False])
    other = torch.where(MASK[:, :, None], vectors, 100 * normal(B, L, D))
    torch.manual_seed(8)
    output = model(context, tokens, True, sampled)
    torch.manual_seed(8)
    changed = model(ContextSet(other, GRID, MASK), tokens, True, sampled)
    torch.testing.assert_close(changed.hidden, output.hidden, **CLOSE)
    torch.testing.assert_close(changed.policy.log_prob, output.policy.log_prob, **CLOSE)
    loss = output.hidden.cos().sum() + output.attention.square().sum()
    (grad,) = torch.autograd.grad(loss + output.policy.log_prob.sum() + output.policy.entropy.sum(), vectors)
    assert not grad[~MASK].any()
    assert grad[MASK].abs().amin() > 0


@torch.no_grad()
def test_a_mask_of_ones_is_no_mask() -> None:
    model, (context, tokens) = build(), inputs()
    masked = ContextSet(context.vectors, GRID, torch.ones(B, L, dtype=torch.bool))
    expected = model(context, tokens, False, MIXED, paths())
    output = model(masked, tokens, False, MIXED, paths())
    torch.testing.assert_close(output.hidden, expected.hidden, **CLOSE)
    torch.testing.assert_close(output.policy.entropy, expected.policy.entropy, **CLOSE)


@masks
@pytest.mark.parametrize("choice", ["expected", "argmax", "sample"])
@torch.no_grad()
def test_step_by_step_equals_parallel(mask: Tensor | None, choice: str) -> None:
    model, (context, tokens) = build(choice=choice, output_tanh=True), inputs(mask=mask)
    torch.manual_seed(9)
    expected = model(context, tokens, need_weights=True)
    logits = model.readout(expected.hidden)
    torch.manual_seed(9)
    state = model.start(context, N)
    for t in range(C):
        step = model.step(tokens[..., t], state)
        torch.testing.assert_close(step.logits, logits[:, :, t], **CLOSE)
        torch.testing.assert_close(step.attention, expected.attention[:, :, t], **CLOSE)
        state = step.state


@masks
@torch.no_grad()
def test_step_by_step_equals_parallel_through_reorder(mask: Tensor | None) -> None:
    model, (context, _) = build(), inputs(mask=mask)
    generator = torch.Generator().manual_seed(2)
    parents = [  # from 1 to 3, 3, 5 and 2 hypotheses: copies, swaps, deaths; the images go different ways
        [[0, 0, 0], [0, 0, 0]],
        [[2, 0, 0], [1, 1, 2]],
        [[1, 0, 2, 1, 0], [2, 2, 2, 0, 1]],
        [[4, 0], [3, 3]],
    ]
    history = torch.full((B, 1, 1), BOS)
    state = model.start(context, 1)
    image = state.image
    for chosen in [*parents, None]:
        before = state
        step = model.step(history[..., -1], state)
        output = model(context, history, need_weights=True)
        torch.testing.assert_close(step.logits, model.readout(output.hidden[:, :, -1]), **CLOSE)
        torch.testing.assert_close(step.attention, output.attention[:, :, -1], **CLOSE)
        again = model.step(history[..., -1], before)  # a state is a value: stepping from it twice is the same
        assert torch.equal(again.logits, step.logits)
        if chosen is None:
            break
        rows = torch.tensor(chosen)
        state = step.state.reorder(rows)
        assert state.image is image  # what belongs to the image is stored once
        assert (state.image.vectors.shape, state.image.keys.values.shape) == ((B, L, D), (B, L, A))
        words = torch.randint(4, V, (B, rows.shape[1], 1), generator=generator)
        history = torch.cat((history.gather(1, rows[:, :, None].expand(-1, -1, history.shape[2])), words), dim=2)


@pytest.mark.parametrize("choice", ["expected", "argmax"])
@torch.no_grad()
def test_images_and_captions_are_apart(choice: str) -> None:
    model, (context, tokens) = build(choice=choice), inputs(mask=MASK)
    together = model(context, tokens, need_weights=True)
    mixed = model(context, tokens, False, MIXED, paths(mask=MASK))
    for i in range(B):
        for j in range(N):
            image = ContextSet(context.vectors[i : i + 1], GRID, MASK[i : i + 1])
            caption = tokens[i : i + 1, j : j + 1]
            alone = model(image, caption, need_weights=True)
            torch.testing.assert_close(together.hidden[i, j], alone.hidden[0, 0], **CLOSE)
            torch.testing.assert_close(together.attention[i, j], alone.attention[0, 0], **CLOSE)
            alone = model(image, caption, False, MIXED[i : i + 1], paths(mask=MASK)[i : i + 1, j : j + 1])
            torch.testing.assert_close(mixed.hidden[i, j], alone.hidden[0, 0], **CLOSE)
            torch.testing.assert_close(mixed.policy.log_prob[i, j], alone.policy.log_prob[0, 0], **CLOSE)


@masks
@torch.no_grad()
def test_attention_maps(mask: Tensor | None) -> None:
    model, (context, tokens) = build(), inputs(mask=mask)
    maps = model.attention_maps(context, tokens)
    assert list(maps) == ["alpha"]
    assert maps["alpha"].shape == (B, N, C, 1, L)
    torch.testing.assert_close(maps["alpha"].sum(dim=-1), torch.ones(B, N, C, 1).double(), **CLOSE)
    assert torch.equal(maps["alpha"].squeeze(3), model(context, tokens, need_weights=True).attention)


@torch.no_grad()
def test_an_image_is_read_once_for_its_captions() -> None:
    model, (context, tokens) = build(), inputs()
    shapes: list[tuple[int, ...]] = []
    for module in (model.attention_context, model.initial_hidden, model.initial_cell):
        module.register_forward_hook(lambda *call: shapes.append(tuple(call[2].shape)))
    once = [(B, L, A), (B, HIDDEN), (B, HIDDEN)]
    model(context, tokens)
    assert shapes == once
    shapes.clear()
    state = model.start(context, N)
    for t in range(C):
        state = model.step(tokens[..., t], state).state
    assert shapes == once


# Precision


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("sampled", [None, MIXED], ids=["expected", "mixed"])
def test_under_bfloat16_autocast_the_cell_stays_in_single_precision(dtype: torch.dtype, sampled: Tensor | None) -> None:
    model, (context, tokens) = build().float(), inputs(mask=MASK)
    vectors = context.vectors.to(dtype)
    exact = model(ContextSet(vectors.float(), GRID, MASK), tokens, True, sampled, paths(mask=MASK))
    logits = model.readout(exact.hidden)
    context = ContextSet(vectors, GRID, MASK)
    with torch.autocast("cpu", torch.bfloat16):
        state = model.start(context, N)
        for t in range(C):
            assert state.cell.dtype == torch.float32
            state = model.step(tokens[..., t], state).state
        assert state.cell.dtype == torch.float32
        output = model(context, tokens, True, sampled, paths(mask=MASK))
        found = model.readout(output.hidden)
    torch.testing.assert_close(found.float(), logits, rtol=0, atol=0.03 * float(logits.detach().abs().max()))
    torch.testing.assert_close(output.attention.float(), exact.attention, rtol=0, atol=0.02)
    loss = found.float().log_softmax(dim=-1)[..., 4].sum()
    if sampled is not None:
        torch.testing.assert_close(output.policy.log_prob.float(), exact.policy.log_prob, rtol=0, atol=0.05)
        torch.testing.assert_close(output.policy.entropy.float(), exact.policy.entropy, rtol=0, atol=0.05)
        loss = loss + output.policy.log_prob.sum() + output.policy.entropy.sum()
    loss.backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


# Refusals


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"choice": "hard"}, "choice is 'hard'; allowed: expected, sample, argmax"),
        ({"temperature": 0}, "temperature is 0; it must be above 0"),
        ({"temperature": -1.0}, "temperature is -1.0; it must be above 0"),
        ({"dropout": 10}, r"dropout is 10; .*0 <= dropout < 1"),
        ({"dropout": 1.0}, r"dropout is 1.0; .*0 <= dropout < 1"),
        ({"dropout": -0.1}, r"dropout is -0.1; .*0 <= dropout < 1"),
    ],
)
def test_bad_arguments_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(**changes)
