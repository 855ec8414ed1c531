"""Show, Attend and Tell, as it is composed, against loops over its equations; its choice of a
context; its dropout.

B images, N captions per image, C input positions, L context vectors of D features, M = d_embed, n =
d_hidden, A = d_attention, V words; all different primes.
"""

import pytest
import torch
from models import captioners
from models.captioners import GRID, B, C, L, N, inputs, led, masks
from models.tensors import gradient, repeatable
from torch.testing import assert_close

from captioning.backbones.context import ContextSet

M, HIDDEN, A = 7, 19, 13
MIXED = torch.tensor([True, False])
EVERY = torch.ones(B, dtype=torch.bool)


def build(seed=0, **changes):
    return captioners.build("sat_soft", seed, **({"score.d_attention": A} | changes))


def recomputed(model, vectors, tokens, places, path, settings, drop):
    """Section 1.2 for one image `[L, D]` and caption `[C]`: hidden, logits, alpha, log-probability
    and entropy.

    `[C, M]`, `[C, V]`, `[C, L]`, `[C]` and `[C]`. Knows of the model its weights and nothing else,
    and of vectors those at the places that may be attended.
    """
    p = dict(model.named_parameters())
    mean = sum(vectors[k] for k in places) / len(places)

    def f_init(name):
        inner = (p[f"{name}.0.weight"] @ mean + p[f"{name}.0.bias"]).tanh()
        return drop((p[f"{name}.2.weight"] @ inner + p[f"{name}.2.bias"]).tanh())

    h, c = f_init("initial.maps.0"), f_init("initial.maps.1")
    steps = []
    for t, token in enumerate(tokens.tolist()):
        word = p["embed.weight"][token]
        e = {}  # Eq. 4
        for k in places:
            inner = (
                p["attention.score.context.weight"] @ vectors[k]
                + p["attention.score.query.weight"] @ h
            )
            score = p["attention.score.weight"] @ (inner + p["attention.score.context.bias"]).tanh()
            e[k] = score / settings.get("attention.temperature", 1.0)
        total = sum(score.exp() for score in e.values())
        alpha = {k: score.exp() / total for k, score in e.items()}  # Eq. 5
        log_prob = mean.new_zeros(())
        if path is not None:
            z, log_prob = vectors[path[t]], alpha[path[t].item()].log()  # Eq. 9
        elif settings.get("attention.mode") == "argmax":
            z = vectors[max(places, key=lambda k: e[k].item())]
        else:
            z = sum(alpha[k] * vectors[k] for k in places)  # Eq. 13
        if "attention.gate.weight" in p:
            z = (p["attention.gate.weight"] @ h + p["attention.gate.bias"]).sigmoid() * z
        gates = (
            p["cell.word.weight"] @ word + p["cell.word.bias"] + p["cell.hidden.weight"] @ h
        )  # Eq. 1
        i, f, o, g = (gates + p["cell.context.weight"] @ z).split(HIDDEN)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()  # Eq. 2
        h = o.sigmoid() * c.tanh()  # Eq. 3
        argument = word + p["head.hidden.weight"] @ h + p["head.context.weight"] @ z  # Eq. 7
        argument = argument.tanh() if settings.get("head.tanh") else argument
        shown = torch.stack([alpha.get(k, mean.new_zeros(())) for k in range(len(vectors))])
        entropy = -sum(x * x.log() for x in alpha.values()) * (path is not None)
        steps.append((argument, p["head.output.weight"] @ drop(argument), shown, log_prob, entropy))
    return [torch.stack(field) for field in zip(*steps, strict=True)]


def check(model, mask, settings, sampled=None, drop=lambda x: x):
    """Hidden states, logits, maps and policy of every caption, and their gradients, equal the
    recomputed ones.
    """
    context, tokens = inputs(mask)
    allowed = torch.ones(B, L, dtype=torch.bool) if mask is None else mask
    generator = torch.Generator().manual_seed(2)
    paths = torch.multinomial(allowed.float(), N * C, replacement=True, generator=generator).view(
        B, N, C
    )
    output = model(context, tokens, need_weights=True, sampled=sampled, uniform=led(model, paths))
    spared = model(context, tokens, sampled=sampled, uniform=paths)
    assert spared.attention is None
    assert torch.equal(spared.hidden, output.hidden)
    found = [output.hidden, model.readout(output.hidden), output.attention]
    if sampled is not None:
        assert torch.equal(output.policy.sampled, sampled)
        found += [output.policy.log_prob, output.policy.entropy]
    rows = []
    for i in range(B):
        places = allowed[i].nonzero().flatten().tolist()
        for j in range(N):
            path = paths[i, j] if sampled is not None and sampled[i] else None
            rows.append(
                recomputed(model, context.vectors[i], tokens[i, j], places, path, settings, drop)
            )
    expected = [torch.stack(field).unflatten(0, (B, N)) for field in zip(*rows, strict=True)][
        : len(found)
    ]
    assert_close(found, expected, rtol=1e-10, atol=1e-10)
    # through alpha_t, log_prob and entropy reach every earlier step of the LSTM
    gradients = [
        gradient(sum(x.cos().sum() for x in fields), model) for fields in (found, expected)
    ]
    assert_close(*gradients, rtol=1e-10, atol=1e-10)


@masks
@pytest.mark.parametrize(
    "sampled", [None, EVERY, MIXED, ~EVERY], ids=["none", "every", "first", "no"]
)
@pytest.mark.parametrize(
    "settings",
    [
        {"attention.gate": False},
        {"attention.gate": True},
        {"attention.gate": "features"},
        {"attention.temperature": 0.5, "head.tanh": True},
        {"attention.mode": "argmax"},
    ],
)
def test_whole_pass(mask, sampled, settings):
    """An image that is not sampled has the expected context."""
    if sampled is not None:  # which takes the place of a mode
        settings = {key: value for key, value in settings.items() if key != "attention.mode"}
    check(build(**settings), mask, settings, sampled)


@masks
def test_dropout_is_at_the_initial_states_and_before_the_output(mask, dropped):
    model = build(dropout=0.25).train()
    hidden = model(*inputs(mask)).hidden
    states = [((B, N, HIDDEN), 0.25)] * 2  # h_0 and c_0 of each caption
    assert dropped == states
    model.readout(hidden)
    assert dropped == [*states, ((B, N, C, M), 0.25)]
    check(
        model, mask, {}, MIXED, drop=repeatable
    )  # and they are where the recomputed pass has them


@torch.no_grad()
def test_evenly_spaced_numbers_draw_every_location_as_often_as_alpha_says():
    (context, tokens), count = inputs(b=1, n=4096, c=1), 4096
    uniform = torch.arange(count)[None, :, None] / count
    output = build()(context, tokens, True, EVERY[:1], uniform)
    drawn = output.policy.log_prob.flatten()
    alpha = output.attention[0, 0, 0]
    distances, locations = (alpha.log() - drawn[:, None]).abs().topk(2, largest=False)
    assert (distances[:, 0] < 1e-12).all()
    assert (distances[:, 1] > 1e-9).all()  # told by their probability
    counts = locations[:, 0].bincount(minlength=L)
    assert (counts - count * alpha).abs().max() <= 1
    assert (locations[:, 0].diff() >= 0).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@torch.no_grad()
def test_extreme_numbers_draw_the_first_and_the_last_location_that_may_be_attended(dtype):
    mask = torch.ones(B, L, dtype=torch.bool)
    mask[:, [0, 1, 5, L - 1]] = False
    context, tokens = inputs()
    context = ContextSet(context.vectors.to(dtype), GRID, mask)
    for seed in range(2):
        for number, end in ((0.0, 2), (1 - 2**-24, L - 2)):
            uniform = torch.full((B, N, C), number)
            output = build(seed).to(dtype)(context, tokens, True, EVERY, uniform=uniform)
            assert torch.equal(output.policy.log_prob.exp(), output.attention[..., end])
            # attention so sharp that most of alpha is zero, at the ends too
            sharp = build(seed, **{"attention.temperature": 1e-3}).to(dtype)
            output = sharp(context, tokens, True, EVERY, uniform=uniform)
            assert (output.attention == 0).any()
            assert (output.policy.log_prob.exp() > 0).all()


@torch.no_grad()
def test_the_choice_to_sample_draws_from_alpha():
    model, (context, tokens) = build(**{"attention.mode": "sample"}), inputs(b=1, n=4001, c=1)
    torch.manual_seed(5)
    again = model(context, tokens).hidden
    torch.manual_seed(5)
    output = model(context, tokens, need_weights=True)
    assert torch.equal(output.hidden, again)
    assert output.policy is None
    everywhere = led(model, torch.arange(L)[None, :, None])
    candidates = model(
        context, tokens[:, :L], sampled=torch.ones(1, dtype=torch.bool), uniform=everywhere
    ).hidden
    distance = torch.cdist(output.hidden[0, :, 0], candidates[0, :, 0])
    assert (distance.amin(dim=1) < 1e-6).all()
    alpha = output.attention[0, 0, 0]
    assert alpha.max() > 2 * alpha.min()  # else any draw would do
    counts, expected = distance.argmin(dim=1).bincount(minlength=L), 4001 * alpha
    assert expected.min() > 20
    # by chi-square, 35.56 with probability 1e-4 at L - 1 = 10 degrees of freedom
    assert ((counts - expected) ** 2 / expected).sum() < 35.56
