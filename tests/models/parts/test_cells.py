"""Cells against PyTorch's where they compute the same, and against their equations where nobody
else has them.

B images, N captions per image, features of word, image, context and state; all different primes.
"""

import pytest
import torch
from models.tensors import close, normal, randomised, repeatable
from torch import nn

from captioning.models.parts.cells import GRU, LSTM, AoACell, ConditionalGRU, UpDown
from captioning.models.parts.numerics import initialise

pytestmark = pytest.mark.usefixtures("without_gradients")

B, N, WORD, IMAGE, CONTEXT, STATE = 2, 3, 5, 7, 11, 13
SIZES = {"d_word": WORD, "d_image": IMAGE, "d_context": CONTEXT, "d_hidden": STATE}
WORDS, SHOWN, FOUND = normal(B, N, WORD), normal(B, 1, IMAGE, seed=2), normal(B, N, CONTEXT, seed=3)
READ = torch.cat((WORDS, SHOWN.expand(-1, N, -1)), dim=-1)
X = torch.cat((READ, FOUND), dim=-1)

queries = pytest.mark.parametrize("query", ["after", "before"])


def memory(cell):
    return [normal(B, N, STATE, seed=5 + k) for k in range(cell.memories)]


def step(cell):
    """The query and the memory after a step."""
    x = cell.words(WORDS) + cell.image(SHOWN)
    query, between = cell.compute_query(x, tuple(memory(cell)))
    return query, list(cell(x, FOUND, between))


def whole(cell):
    """The matrix of [word; image; context], as far as they are."""
    return torch.cat(
        [part.weight for part in (cell.word, cell.constant, cell.context) if part is not None],
        dim=1,
    )


def pytorch(cell, matrix, x, *state, inside=False):
    """A step of PyTorch's cell with the weights of ours, whose matrix is of all that it reads.

    The bias of the candidate is that of what it reads, or of the state, `inside` the reset.
    """
    blocks = [matrix, cell.hidden.weight, cell.word.bias]
    if isinstance(cell, LSTM):
        theirs = nn.LSTMCell(matrix.shape[1], STATE, dtype=torch.float64)
        found = [torch.cat([rows.chunk(4)[k] for k in (0, 1, 3, 2)]) for rows in blocks]
    else:  # its z is 1 - u, and its reset gate comes after the matrix
        theirs = nn.GRUCell(matrix.shape[1], STATE, dtype=torch.float64)
        blocks[1] = torch.cat((blocks[1], cell.candidate.weight))
        found = [torch.cat((r, -u, new)) for u, r, new in (rows.chunk(3) for rows in blocks)]
    of_state = torch.zeros_like(found[-1])
    if inside:
        of_state[-STATE:] = found[-1][-STATE:]
    values = [*found[:-1], found[-1] - of_state, of_state]
    for parameter, value in zip(theirs.parameters(), values, strict=True):
        parameter.copy_(value)
    flat = [m.flatten(0, 1) for m in state]
    after = theirs(x.flatten(0, 1), tuple(flat) if len(flat) > 1 else flat[0])
    return tuple(m.unflatten(0, (B, N)) for m in (after if isinstance(after, tuple) else (after,)))


@pytest.mark.parametrize("cell", [LSTM(**SIZES), GRU(**SIZES, reset="after")], ids=["LSTM", "GRU"])
def test_single_cells_are_those_of_pytorch(cell):
    randomised(cell)
    query, found = step(cell)
    assert torch.equal(query, memory(cell)[0])  # attention is asked by the state before
    close(found, list(pytorch(cell, whole(cell), X, *memory(cell))))


@queries
def test_up_down_is_two_lstms_of_pytorch(query):
    cell = randomised(UpDown(**SIZES, query=query))
    h2, c2, h1, c1 = memory(cell)
    h1, c1 = pytorch(cell.first, whole(cell.first), torch.cat((READ, h2), dim=-1), h1, c1)
    after = pytorch(cell.second, whole(cell.second), torch.cat((h1, FOUND), dim=-1), h2, c2)
    close(step(cell), (h1 if query == "after" else h2, [*after, h1, c1]))


def test_the_candidate_of_an_lstm_may_be_the_larger_of_two_maps():
    cell = randomised(LSTM(**SIZES, maxout=True))
    h, c = memory(cell)
    rows = (X @ whole(cell).T + h @ cell.hidden.weight.T + cell.word.bias).split(STATE, dim=-1)
    i, f, o = (1 / (1 + (-gate).exp()) for gate in rows[:3])
    c = f * c + i * torch.where(rows[3] > rows[4], rows[3], rows[4])
    close(step(cell), (h, [o * c.tanh(), c]))


def test_attention_on_attention_is_an_lstm_and_a_gate():
    cell = randomised(AoACell(**SIZES, tied=False))
    u, h, m = memory(cell)
    h, m = pytorch(cell.first, whole(cell.first), torch.cat((READ, u), dim=-1), h, m)
    information, gate = (
        h @ cell.state.weight.T + cell.state.bias + FOUND @ cell.context.weight.T
    ).chunk(2, dim=-1)
    close(step(cell), (h, [information / (1 + (-gate).exp()), h, m]))


def test_attention_on_attention_drops_parts_of_its_last_output(dropped):
    cell = randomised(AoACell(**SIZES, dropout=0.25, tied=False)).train()
    u, h, m = memory(cell)
    seen = torch.cat((READ, repeatable(u)), dim=-1)
    h, _ = pytorch(cell.first, whole(cell.first), seen, h, m)
    close(step(cell)[0], h)
    assert dropped == [((B, N, STATE), 0.25)]


def test_a_tied_image_is_read_as_the_last_output():
    sizes = SIZES | {"d_image": STATE}
    tied, free = (AoACell(**sizes), randomised(AoACell(**sizes, tied=False)))
    free.first.constant.weight.copy_(free.first.context.weight)
    tied.double().load_state_dict(
        {k: v for k, v in free.state_dict().items() if "constant" not in k}
    )
    shown = normal(B, 1, STATE, seed=4)
    close(tied.image(shown), free.image(shown))
    with pytest.raises(ValueError, match="7 features, the state 13"):
        AoACell(**SIZES)


def gru(cell, x, h):
    """The GRU that resets the state, written out."""
    wu, wr, wc = whole(cell).chunk(3)
    bu, br, bc = cell.word.bias.chunk(3)
    uu, ur = cell.hidden.weight.chunk(2)
    u = 1 / (1 + (-(x @ wu.T + h @ uu.T + bu)).exp())
    r = 1 / (1 + (-(x @ wr.T + h @ ur.T + br)).exp())
    return (u * (x @ wc.T + (r * h) @ cell.candidate.weight.T + bc).tanh() + (1 - u) * h,)


def test_gru_resets_the_state():
    cell = randomised(GRU(**SIZES))
    close(step(cell)[1], list(gru(cell, X, *memory(cell))))


@queries
@pytest.mark.parametrize("reset", ["before", "after"])
def test_conditional_gru_is_one_state_through_two(query, reset):
    """With `after`, the one of Nematus, two of PyTorch."""
    cell = randomised(ConditionalGRU(**SIZES, query=query, reset=reset))

    def single(unit, x, h):
        if reset == "before":
            return gru(unit, x, h)[0]
        return pytorch(unit, whole(unit), x, h, inside=unit is cell.second)[0]

    (s,) = memory(cell)
    between = single(cell.first, READ, s)
    after = single(cell.second, FOUND, between)
    close(step(cell), (between if query == "after" else s, [after]))


@pytest.mark.parametrize("kind, count", [(LSTM, 4), (GRU, 3), (UpDown, 8), (ConditionalGRU, 6)])
def test_recurrences_begin_orthogonal_and_forget_gates_open(kind, count):
    torch.manual_seed(0)
    cell = kind(**SIZES)
    for parameter in cell.parameters():
        parameter.data.zero_()
    initialise(cell)
    blocks = [
        block for p in cell.parameters() if p.ndim == 2 and p.any() for block in p.split(STATE)
    ]
    assert len(blocks) == count
    for block in blocks:
        close(block @ block.T, torch.eye(STATE), 1e-05)
    for name, parameter in cell.named_parameters():
        if name.endswith("word.bias") and len(parameter) == 4 * STATE:
            assert parameter.view(4, STATE).sum(dim=1).tolist() == [0, STATE, 0, 0]


def test_the_lstm_keeps_its_sum_in_single_precision():
    cell = LSTM(**SIZES).bfloat16()
    hidden, total = cell(
        cell.words(WORDS.bfloat16()), FOUND.bfloat16(), tuple(m.bfloat16() for m in memory(cell))
    )
    assert (hidden.dtype, total.dtype) == (torch.bfloat16, torch.float32)
