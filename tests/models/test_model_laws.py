"""What holds for every captioner of the registry, in double precision.

B images, N captions per image, C input positions, L context vectors of D features, V words.
"""

import re

import pytest
import torch
from models.captioners import (
    CAPTIONERS,
    GRID,
    MASK,
    MIXTURES,
    SYSTEMS,
    B,
    C,
    D,
    L,
    N,
    V,
    agree,
    build,
    inputs,
    masks,
)
from models.tensors import close, gradient, normal
from torch import nn
from torch.nn import functional as F

from captioning.backbones.context import ContextSet
from captioning.config.registry import CONF
from captioning.data.batch import collate
from captioning.models import Transformer
from captioning.models.parts.recurrent_encoder import RecurrentEncoder
from captioning.tokens import BOS, PAD
from captioning.training.objectives import BatchRandom, CrossEntropy, Reinforce

# in this scope all laws of one captioner come together, and a process builds few of them
captioners = pytest.mark.parametrize("name", CAPTIONERS, scope="module")
systems = pytest.mark.parametrize("name", SYSTEMS, scope="module")
"""For laws that parts do not change."""


def given(name, mask=MASK):
    """A captioner, images and captions."""
    return build(name), *inputs(mask)


def hard(model):
    """Arguments of a pass in which the first image is sampled, if it can be."""
    if not model.stochastic:
        return {}
    uniform = torch.rand(B, N, C, generator=torch.Generator().manual_seed(3))
    return {"sampled": torch.tensor([True, False]), "uniform": uniform}


def is_grouped(model):
    """Whether its encoder joins neighbours, whose map shows a weight on each."""
    return getattr(model.encoder, "joined", 1) > 1


def seen(model, context, tokens, **how):
    """All that a pass gives, each `[B, N, C, ...]`."""
    output = model(context, tokens, need_weights=True, **how)
    policy = [] if output.policy is None else [output.policy.log_prob, output.policy.entropy]
    return [
        model.readout(output.hidden),
        *([] if output.attention is None else [output.attention]),
        *policy,
    ]


def stepped(model, context, tokens):
    """The logits of the last step of reading tokens one after the other."""
    state = model.start(context, N)
    for word in tokens.unbind(dim=2):
        step = model.step(word, state)
        state = step.state
    return step.logits


def test_every_part_is_in_some_captioner():
    told = MIXTURES + "".join(file.read_text() for file in CONF.glob("model/*.yaml"))
    for file in CONF.glob("model/*/*.yaml"):
        named = re.search(rf"\b{file.parent.name}(=|: ){file.stem}\b", told)
        assert named, f"{file} is in no captioner: add a line with it to MIXTURES"


@captioners
@masks
@torch.no_grad()
def test_step_by_step_equals_parallel_through_reorder(name, mask):
    model, context, _ = given(name, mask)
    generator = torch.Generator().manual_seed(2)
    # from 1 to 3, 3, 5 and 2 hypotheses: copies, swaps, deaths; the images go different ways
    parents = [
        [[0, 0, 0], [0, 0, 0]],
        [[2, 0, 0], [1, 1, 2]],
        [[1, 0, 2, 1, 0], [2, 2, 2, 0, 1]],
        [[4, 0], [3, 3]],
    ]
    history = torch.full((B, 1, 1), BOS)
    state = model.start(context, 1)
    image = state.image
    for rows in [*map(torch.tensor, parents), None]:
        step = model.step(history[..., -1], state)
        parallel = [x[:, :, -1] for x in seen(model, context, history)]
        agree([step.logits, *([] if step.attention is None else [step.attention])], parallel)
        again = model.step(
            history[..., -1], state
        )  # a state is a value: stepping from it twice is the same
        assert torch.equal(again.logits, step.logits)
        if rows is not None:
            state = step.state.reorder(rows)
            assert state.image is image  # what belongs to the image is stored once
            words = torch.randint(4, V, (B, rows.shape[1], 1), generator=generator)
            kept = history.gather(1, rows[:, :, None].expand(-1, -1, history.shape[2]))
            history = torch.cat((kept, words), dim=2)


@captioners
@torch.no_grad()
def test_images_and_captions_are_apart(name):
    model, context, tokens = given(name)
    how = hard(model)
    together = seen(model, context, tokens, **how)
    for i in range(B):
        for j in range(N):
            image = ContextSet(context.vectors[i : i + 1], GRID, MASK[i : i + 1])
            own = {
                key: x[i : i + 1] if x.ndim == 1 else x[i : i + 1, j : j + 1]
                for key, x in how.items()
            }
            alone = seen(model, image, tokens[i : i + 1, j : j + 1], **own)
            agree([x[i : i + 1, j : j + 1] for x in together], alone)


class Given(nn.Module):
    """In place of an embedding: what the words are is given, so that it can be differentiated."""

    def __init__(self, rows):
        super().__init__()
        self.rows = rows

    def forward(self, _):
        return self.rows


@captioners
def test_no_gradient_from_future_tokens_or_other_captions(name):
    model, context, tokens = given(name, None)
    rows = normal(B, N, C, model.embed.embedding_dim).requires_grad_()
    vectors = context.vectors.requires_grad_()
    model.embed = Given(rows)
    first = 1 if "begin=image" in name else 0  # the image is read in place of BOS
    found = seen(model, ContextSet(vectors, GRID), tokens, **hard(model))
    for t in range(C):
        loss = sum(x[1, 2, t].cos().sum() for x in found)
        rows_grad, vectors_grad = torch.autograd.grad(loss, (rows, vectors), retain_graph=True)
        assert rows_grad[1, 2, first : t + 1].any(dim=-1).all()
        rows_grad[1, 2, : t + 1] = 0
        assert not rows_grad.any(), t  # nothing later, no other caption, no other image
        assert vectors_grad[1].any()
        assert not vectors_grad[0].any()


@captioners
def test_padding_and_missing_captions_make_no_nan_and_change_nothing_else(name):
    model, context, tokens = given(name)
    how = hard(model)
    expected = seen(model, context, tokens, **how)
    further = {key: F.pad(x, (0, 3)) if x.ndim == 3 else x for key, x in how.items()}
    padded = seen(model, context, F.pad(tokens, (0, 3), value=PAD), **further)
    agree([x[:, :, :C] for x in padded], expected)
    tokens[1, 0] = PAD
    others = torch.ones(B, N, dtype=torch.bool)
    others[1, 0] = False
    agree([x[others] for x in seen(model, context, tokens, **how)], [x[others] for x in expected])
    context.vectors.requires_grad_()
    for training in (False, True):
        found = seen(model.train(training), context, tokens, **how)
        assert all(x.isfinite().all() for x in found)
        sum((x * others.unflatten(1, (N, *[1] * (x.ndim - 2)))).sum() for x in found).backward()
        assert context.vectors.grad.isfinite().all()
        assert all(
            parameter.grad is None or parameter.grad.isfinite().all()
            for parameter in model.parameters()
        )


@captioners
def test_a_masked_pass_is_the_pass_on_the_other_vectors(name):
    model, context, tokens = given(name)
    how = hard(model)
    vectors = context.vectors.requires_grad_()
    found = seen(model, context, tokens, **how)
    other = torch.where(MASK[:, :, None], vectors, 100 * normal(B, L, D, seed=9))
    agree(seen(model, ContextSet(other, GRID, MASK), tokens, **how), found)
    if len(found) > 1 and not is_grouped(model):
        assert not found[1].transpose(1, 3)[~MASK].any()
    (grad,) = torch.autograd.grad(sum(x.cos().sum() for x in found), vectors)
    assert not grad[~MASK].any()
    assert grad[MASK].any(dim=-1).float().mean() > (0.3 if "argmax" in name else 0.99)
    ones = ContextSet(vectors, GRID, torch.ones(B, L, dtype=torch.bool))
    agree(seen(model, ones, tokens, **how), seen(model, ContextSet(vectors, GRID), tokens, **how))
    if (
        isinstance(model, Transformer)
        or "encoder=" in name
        or "flat" in name
        or isinstance(model.encoder, RecurrentEncoder)
    ):
        return  # it knows where a vector lies
    if getattr(getattr(model, "attention", None), "needs_previous_weights", False):
        return  # and where it looked last
    for i in range(B):
        real = MASK[i].nonzero().flatten()
        image = ContextSet(vectors[i : i + 1, real], (1, len(real)))
        alone = seen(
            model, image, tokens[i : i + 1], **{key: x[i : i + 1] for key, x in how.items()}
        )
        if len(found) > 1:
            alone[1] = torch.zeros(1, N, C, L).double().index_copy(-1, real, alone[1])
        agree([x[i : i + 1] for x in found], alone)


@pytest.mark.parametrize("name", ["lstm_bottleneck", "lstm_every", "mp_lstm", "show_tell"])
@torch.no_grad()
def test_without_attention_only_the_mean_counts(name):
    """Two images with equal means get equal captions, whatever is where."""
    model, context, tokens = given(name, None)
    other = normal(B, L, D, seed=8)
    other += (context.vectors - other).mean(dim=1, keepdim=True)
    images = [ContextSet(x, GRID) for x in (context.vectors, other, context.vectors + 0.1)]
    one, same, further = (seen(model, image, tokens)[0] for image in images)
    agree(one, same)
    assert (further - one).abs().max() > 1e-3  # but it does see the mean


@captioners
@masks
@torch.no_grad()
def test_attention_maps_and_locations_drawn_from_them(name, mask):
    model, context, tokens = given(name, mask)
    maps = model.attention_maps(context, tokens)
    attention = model(context, tokens, need_weights=True).attention
    assert model(context, tokens).attention is None
    assert bool(maps) == (attention is not None)
    for shown in maps.values():
        assert (shown.shape[:3], shown.shape[4]) == ((B, N, C), L)
        agree(shown.sum(dim=-1), torch.ones(shown.shape[:4]).double())
        agree(shown[..., -(model.heads or 1) :, :].mean(dim=-2), attention)
    if (
        model.stochastic and not is_grouped(model) and "transposed" not in name
    ):  # of another grid than the map
        output = model(context, tokens, need_weights=True, sampled=torch.ones(B, dtype=torch.bool))
        distance = (output.attention.log() - output.policy.log_prob[..., None]).abs()
        assert (distance.amin(dim=-1) < 1e-12).all()
        even = (
            torch.full((B, 1, 1), L).log() if mask is None else mask.sum(dim=1)[:, None, None].log()
        )
        assert ((output.policy.entropy > 0) & (output.policy.entropy <= even + 1e-12)).all()


@captioners
def test_every_parameter_learns_and_the_gradient_is_that_of_small_differences(name):
    model, context, tokens = given(name)

    def loss():
        return sum(x.cos().mean() for x in seen(model, context, tokens))

    loss().backward()
    directions = [normal(*p.shape, seed=i) for i, p in enumerate(model.parameters())]
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        # the query of a linear score and the bias of keys cancel in the softmax, argmax teaches
        # attention nothing but its map, and equal weights depend on no query
        uniform = "|project_query" if name.endswith("conditioning=uniform") else ""
        cancels = re.search(f"score|k_proj.*bias{uniform}", parameter_name)
        assert parameter.grad.abs().max() > 1e-15 or cancels, parameter_name
    slope = sum(
        (p.grad * d).sum() for p, d in zip(model.parameters(), directions, strict=True)
    ).item()
    values = []
    with torch.no_grad():
        for step in (1e-5, -2e-5):
            for parameter, direction in zip(model.parameters(), directions, strict=True):
                parameter += step * direction
            values.append(loss().item())
    if "argmax" not in name:
        assert (values[0] - values[1]) / 2e-5 == pytest.approx(slope, rel=1e-5, abs=1e-7)


@systems
@torch.no_grad()
def test_dropout_while_training_alone_and_all_else_is_in_its_state(name):
    model, still, (context, _) = (
        build(name, dropout=0.5),
        build(name, seed=1, dropout=0.0),
        inputs(),
    )
    tokens = torch.full((B, N, C), BOS)
    still.load_state_dict(model.state_dict())
    agree(seen(still, context, tokens), seen(model, context, tokens))
    model.train()
    logits = seen(model, context, tokens)[0]
    assert not torch.equal(seen(model, context, tokens)[0], logits)
    assert not torch.equal(logits[:, 0], logits[:, 1])  # of each caption its own
    assert torch.equal(
        seen(still.train(), context, tokens)[0], seen(still.eval(), context, tokens)[0]
    )


@captioners
def test_a_batch_is_the_sum_of_its_images(name):
    """Loss and gradient, so that processes that share a batch come to the same; with masks and
    missing captions too.
    """
    model, context, _ = given(name)
    captions = [[[5, 6, 7], [8]], [[9, 4]]]
    for objective in [CrossEntropy(0.1), Reinforce(samples=2, doubly_stochastic=0.5)][
        : 1 + model.stochastic
    ]:
        found = []
        for rows in ([0, 1], [0], [1]):
            batch = collate(rows, context.vectors[rows], [captions[i] for i in rows])
            images = ContextSet(batch.inputs, GRID, MASK[rows])
            draws = BatchRandom(0, 0, batch.index)
            loss = objective(model, images, batch, draws).total
            found.append(torch.cat([loss[None], gradient(loss, model)]))
        agree(found[0], found[1] + found[2])


@systems
def test_in_bfloat16_and_under_its_autocast(name):
    model, (context, tokens) = build(name).float(), inputs(MASK)
    single = ContextSet(context.vectors.float(), GRID, MASK)
    exact = seen(model, single, tokens)
    with torch.autocast("cpu", torch.bfloat16):
        found = seen(model, single, tokens)
        assert found[0].dtype == stepped(model, single, tokens).dtype == torch.bfloat16
    for one, other in zip(found, exact, strict=True):
        bound = 0.05 * max(1.0, float(other.detach().abs().max()))
        close(one.float(), other, bound)
    sum(x.float().cos().sum() for x in found).backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
    half, images = model.bfloat16(), ContextSet(context.vectors.bfloat16(), GRID, MASK)
    logits = seen(half, images, tokens)[0]
    assert logits.dtype == torch.bfloat16
    close(stepped(half, images, tokens), logits[:, :, -1], 0.2)


@pytest.mark.parametrize(
    "name", ["sat_hard", pytest.param("spatial_transformer", marks=pytest.mark.soak)]
)
def test_a_pass_is_one_graph_for_all_sizes_of_batches(name):
    """All steps of a recurrent decoder together; the same losses and gradients as without the
    compiler.
    """
    model = build(name)
    graphs = []

    def traced(graph, examples):
        graphs.append(graph)
        return graph

    torch.compiler.reset()
    compiled = torch.compile(model, backend=traced, fullgraph=True, dynamic=True)
    for b in (4, 5, 6):
        context, tokens = inputs(b=b, c=2)
        how = (
            {"sampled": torch.arange(b) > 0, "uniform": torch.rand(b, N, 2)}
            if name == "sat_hard"
            else {}
        )
        found, expected = (
            seen_loss(each, model, context, tokens, how) for each in (compiled, model)
        )
        agree(found, expected)
    assert len(graphs) == 1


def seen_loss(network, model, context, tokens, how):
    """A loss of the logits, and its gradients."""
    loss = model.readout(network(context, tokens, **how).hidden).logsumexp(dim=-1).sum()
    return loss, gradient(loss, model)
