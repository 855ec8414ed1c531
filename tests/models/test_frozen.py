"""The three first systems give the numbers that they gave as classes of their own: the same seed,
the same weights.

The numbers were taken from `ShowAttendTell` and `SpatialTransformer` at commit 9520f5c. Weights are
drawn in double precision: in single precision the last bits of an orthogonal matrix, and so the
eighth digit here, differ between CPUs.
"""

import pytest
import torch
from models.captioners import captioner

from captioning.backbones.context import ContextSet

V, D, GRID = 23, 17, (3, 5)
SAT = {"d_embed": 7, "d_hidden": 13, "score.d_attention": 11}
ST = {"d_model": 14, "heads": 7, "d_ff": 13, "decoder_layers": 3}
FROZEN = {
    "sat_soft, training": (
        "sat_soft",
        SAT | {"dropout": 0.5},
        [0.03024694971275306, -0.2829296045799374, -92.97447752715595, 33.384608607788884],
    ),
    "sat_hard, sampled": (
        "sat_hard",
        SAT | {"dropout": 0.0},
        [-0.09123323984117615, 0.5527575723855, -140.43632746919857, 47.6189749126303],
    ),
    "spatial_transformer, training": (
        "spatial_transformer",
        ST | {"dropout": 0.5},
        [0.38416133145715664, 0.8137958369129762, -102.15501949617918, 180.37466058818637],
    ),
}
"""Two logits, the loss and the norm of its gradient."""


def wave(*shape, rate):
    """Numbers without a generator."""
    count = int(torch.tensor(shape).prod())
    return (rate * torch.arange(1, count + 1, dtype=torch.float64)).sin().view(*shape)


@pytest.mark.parametrize("name", FROZEN)
def test_the_same_seed_gives_the_same_numbers(name):
    choices, settings, expected = FROZEN[name]
    torch.manual_seed(1)
    torch.set_default_dtype(torch.float64)
    try:
        model = captioner(choices, V, D, GRID, **settings).double().train("training" in name)
    finally:
        torch.set_default_dtype(torch.float32)
    torch.manual_seed(2)
    tokens = torch.tensor([[[1, 4, 9, 16, 3], [1, 22, 5, 5, 0], [1, 7, 0, 0, 0]]] * 2)
    tokens[1] = torch.where(tokens[1] > 3, 26 - tokens[1], tokens[1])
    context = ContextSet(2 * wave(2, 15, D, rate=0.7), GRID)
    hard = {
        "sampled": torch.tensor([True, False]),
        "uniform": 0.5 + 0.499 * wave(2, 3, 5, rate=1.3),
    }
    output = model(context, tokens, need_weights=True, **(hard if "sampled" in name else {}))
    logits = model.readout(output.hidden)
    loss = logits.log_softmax(-1)[..., 5].sum() + output.attention.square().sum()
    found = [logits[0, 0, 0, 5].item(), logits[1, 1, 3, 2].item()]
    if output.policy is not None:
        loss = loss + output.policy.log_prob.sum()
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    found += [loss.item(), sum(gradient.square().sum() for gradient in gradients).sqrt().item()]
    assert found == pytest.approx(expected, rel=1e-12)
