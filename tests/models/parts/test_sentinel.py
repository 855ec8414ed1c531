"""Adaptive attention by a loop over its equations.

D features of a context vector, n of the state, L context vectors.
"""

import torch
from models.captioners import all_or, build, inputs

MASK = torch.tensor([[k != 3 for k in range(11)], [k in (0, 2, 5) for k in range(11)]])
SIGMOID = torch.sigmoid


def by_hand(model, vectors, tokens, places):
    """Logits `[C, V]`, alpha `[C, L]` and beta `[C]` of one caption of one image."""
    attention, cell, (weight, w) = (
        model.attention,
        model.cell,
        (model.attention.score, model.attention.score.weight),
    )
    v = [(attention.project.weight @ a + attention.project.bias).clamp(min=0) for a in vectors]
    mean = torch.stack([vectors[i] for i in places]).mean(dim=0)
    v_g = (model.inject.project.weight @ mean + model.inject.project.bias).clamp(min=0)
    n = len(cell.hidden.weight[0])
    h = m = torch.zeros(n).double()
    logits, maps, betas = [], [], []
    for token in tokens:
        x = cell.word.weight @ model.embed.weight[token] + cell.word.bias
        i, f, o, g, gate = (x + cell.constant.weight @ v_g + cell.hidden.weight @ h).split(n)
        m = SIGMOID(f) * m + SIGMOID(i) * g.tanh()
        h = SIGMOID(o) * m.tanh()
        s = SIGMOID(gate) * m.tanh()
        asked = weight.query.weight @ h
        z = [
            w @ (weight.context.weight @ v[k] + weight.context.bias + asked).tanh() for k in places
        ]
        z.append(w @ (attention.own.weight @ s + asked).tanh())
        extended = torch.stack(z).exp()
        extended = extended / extended.sum()
        c = extended[-1] * s + sum(e * v[k] for e, k in zip(extended, places, strict=False))
        alpha = torch.zeros(len(vectors)).double()
        alpha[places] = extended[:-1] / extended[:-1].sum()
        logits.append(model.head.output.weight @ (c + h) + model.head.output.bias)
        maps.append(alpha)
        betas.append(extended[-1])
    return torch.stack(logits), torch.stack(maps), torch.stack(betas)


@all_or(MASK)
@torch.no_grad()
def test_the_equations(mask):
    model = build("adaptive")
    context, tokens = inputs(mask)
    output = model(context, tokens, need_weights=True)
    logits, looked = model.readout(output.hidden), model.attention_shares(context, tokens)["image"]
    for b, captions in enumerate(tokens):
        places = list(range(11)) if mask is None else mask[b].nonzero().flatten().tolist()
        for n, caption in enumerate(captions):
            wanted = by_hand(model, context.vectors[b], caption, places)
            found = logits[b, n], output.attention[b, n], 1 - looked[b, n]
            torch.testing.assert_close(found, wanted)
