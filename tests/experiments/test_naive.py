"""The naive variants give the same answers, so that the ratios compare like with like.

B images, N captions per image, C steps.
"""

import pytest
import torch
from models.captioners import captioner
from models.tensors import gradient
from torch import nn
from torch.nn.functional import one_hot

from captioning.backbones.context import ContextSet
from captioning.data.batch import collate
from captioning.decoding import beam_search
from captioning.models import Transformer
from captioning.tokens import EOS
from captioning.training.objectives import BatchRandom, CrossEntropy, Reinforce, SelfCritical
from captioning.training.objectives.rewards import Reward
from experiments.throughput.material import composed, random_task
from experiments.throughput.naive import OnePerCaption, naive_beam

VOCABULARY, D, GRID, LENGTH = 13, 5, (1, 3), 7
EOS_LOGITS = (0.0, 3.0, 6.0, 10.0)


SIZES = {
    "spatial_transformer": {
        "d_model": 14,
        "heads": 2,
        "d_ff": 11,
        "encoder.layers": 1,
        "decoder_layers": 2,
        "max_tokens": LENGTH,
    },
    "sat_soft": {"d_embed": 7, "d_hidden": 11, "score.d_attention": 3},
}


def build(name):
    """In double precision, and such that images and words matter to what comes next."""
    model = captioner(name, VOCABULARY, D, GRID, dropout=0, **SIZES[name])
    torch.manual_seed(7)
    for key, parameter in model.double().named_parameters():
        nn.init.normal_(parameter, mean=1.0 if key.endswith("norm.weight") else 0.0, std=0.5)
        if "attention.output" in key or key in ("output.weight", "head.output.weight"):
            parameter.data *= 2
    return model


def images(b):
    torch.manual_seed(b)
    mask = torch.tensor([[True, False, True]]).repeat(b, 1)
    return ContextSet(3 * torch.randn(b, 3, D, dtype=torch.float64), GRID, mask)


models = pytest.mark.parametrize("name", SIZES)


@models
@pytest.mark.parametrize("width", [1, 3])
def test_naive_beam_is_beam_search(name, width):
    """Of captions that end early, late and not at all, by what is added to the logit of EOS."""
    context, lengths = images(11), set()
    for eos in EOS_LOGITS:
        model = build(name).eval()
        plain, offset = model.readout, eos * one_hot(torch.tensor(EOS), VOCABULARY).double()
        model.readout = lambda hidden, plain=plain, offset=offset: plain(hidden) + offset
        expected = beam_search(model, context, width, LENGTH, length_penalty=0, early_stopping=True)
        for i, caption in enumerate(expected):
            alone = ContextSet(context.vectors[i : i + 1], GRID, context.mask[i : i + 1])
            found = naive_beam(model, alone, width, LENGTH)
            assert found.tokens == caption.tokens
            assert found.score == pytest.approx(caption.score, rel=1e-11)
            lengths.add((len(found.tokens), found.finished))
    assert {finished for _, finished in lengths} == {True, False}


@models
@pytest.mark.parametrize(
    "objective",
    [
        CrossEntropy(label_smoothing=0.1, doubly_stochastic=1.0),
        Reinforce(samples=2, doubly_stochastic=0.5),
        CrossEntropy(scheduled_sampling=0.7),
        SelfCritical(reward=Reward(bleu4=0.5), samples=2, baseline="greedy", max_length=LENGTH),
    ],
)
def test_one_image_per_caption_has_the_same_loss_and_gradient(name, objective):
    model = build(name).train()
    if isinstance(objective, Reinforce) and isinstance(model, Transformer):
        pytest.skip("it samples no attention")
    context = images(3)
    # Captions of several lengths, of which one is missing.
    batch = collate(range(3), context.vectors, [[[4, 5, 6], [7]], [[8, 9, 10]], [[4], [5, 12, 6]]])
    shapes = f"vocab_size={VOCABULARY}", "batch.words=[1,5]"
    objective.prepare(random_task(composed(*shapes), 3, 2), model)
    found = []
    for one in (model, OnePerCaption(model)):
        loss = objective(one, context, batch, BatchRandom(1, 2, batch.index)).total
        found.append([loss, gradient(loss, model)])
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-9)
