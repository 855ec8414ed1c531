"""Cells against PyTorch's where they compute the same, and against their equations where nobody else has them.

B images, N captions per image, features of word, image, context and state; all different primes.
"""

from typing import Any

import pytest
import torch
from models.captioners import normal, randomised
from torch import Tensor, nn

from captioning.models.parts.cells import GRU, LSTM, Cell, ConditionalGRU, PrintedGRU, UpDown

B, N, WORD, IMAGE, CONTEXT, STATE = 2, 3, 5, 7, 11, 13
SIZES = {"d_word": WORD, "d_image": IMAGE, "d_context": CONTEXT, "d_hidden": STATE}
CLOSE: dict[str, Any] = {"rtol": 0, "atol": 1e-12}


WORDS, SHOWN, FOUND = normal(B, N, WORD), normal(B, 1, IMAGE, seed=2), normal(B, N, CONTEXT, seed=3)
X = torch.cat((WORDS, SHOWN.expand(-1, N, -1), FOUND), dim=-1)


def memory(cell: Cell) -> tuple[Tensor, ...]:
    return tuple(normal(B, N, STATE, seed=5 + k) for k in range(cell.memories))


def step(cell: Cell) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The query and the memory after a step."""
    x = cell.words(WORDS) + cell.image(SHOWN)
    query, between = cell.ask(x, memory(cell))
    return query, cell(x, FOUND, between)


def whole(cell: Any) -> Tensor:
    """The matrix of [word; image; context]."""
    return torch.cat((cell.word.weight, cell.constant.weight, cell.context.weight), dim=1)


def pytorch_lstm(cell: Any, matrix: Tensor) -> nn.LSTMCell:
    """PyTorch's with the weights of ours."""
    theirs = nn.LSTMCell(matrix.shape[1], STATE, dtype=torch.float64)
    pairs = ((matrix, theirs.weight_ih), (cell.hidden.weight, theirs.weight_hh), (cell.word.bias, theirs.bias_ih))
    for ours, other in pairs:
        i, f, o, g = ours.chunk(4)
        other.copy_(torch.cat((i, f, g, o)))
    theirs.bias_hh.zero_()
    return theirs


@torch.no_grad()
def test_lstm_is_that_of_pytorch() -> None:
    cell = randomised(LSTM(**SIZES))
    theirs = pytorch_lstm(cell, whole(cell))
    query, found = step(cell)
    before = memory(cell)
    assert query is not before[0]
    assert torch.equal(query, before[0])  # attention is asked by the state before
    expected = theirs(X.flatten(0, 1), tuple(m.flatten(0, 1) for m in before))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.flatten(0, 1), other, **CLOSE)


def gru(cell: Any, x: Tensor, h: Tensor) -> Tensor:
    w = whole(cell) if cell.context is not None else torch.cat((cell.word.weight, cell.constant.weight), dim=1)
    return plain_gru(w, cell.word.bias, cell.hidden.weight, cell.candidate.weight, x, h)


def plain_gru(w: Tensor, bias: Tensor, gates: Tensor, candidate: Tensor, x: Tensor, h: Tensor) -> Tensor:
    wu, wr, wc = w.chunk(3)
    bu, br, bc = bias.chunk(3)
    uu, ur = gates.chunk(2)
    u = 1 / (1 + (-(x @ wu.T + h @ uu.T + bu)).exp())
    r = 1 / (1 + (-(x @ wr.T + h @ ur.T + br)).exp())
    new = (x @ wc.T + (r * h) @ candidate.T + bc).tanh()
    return u * new + (1 - u) * h


@torch.no_grad()
def test_gru_resets_the_state() -> None:
    cell = randomised(GRU(**SIZES))
    torch.testing.assert_close(step(cell)[1][0], gru(cell, X, memory(cell)[0]), **CLOSE)


def pytorch_gru(cell: Any, matrix: Tensor) -> nn.GRUCell:
    """PyTorch's with the weights of ours: its z is 1 - u, and its reset gate comes after the matrix."""
    theirs = nn.GRUCell(matrix.shape[1], STATE, dtype=torch.float64)
    u, r, new = matrix.chunk(3)
    theirs.weight_ih.copy_(torch.cat((r, -u, new)))
    u, r = cell.hidden.weight.chunk(2)
    theirs.weight_hh.copy_(torch.cat((r, -u, cell.candidate.weight)))
    u, r, new = cell.word.bias.chunk(3)
    theirs.bias_ih.copy_(torch.cat((r, -u, new)))
    theirs.bias_hh.zero_()
    return theirs


@torch.no_grad()
def test_gru_that_resets_after_the_matrix_is_that_of_pytorch() -> None:
    cell = randomised(GRU(**SIZES, reset="after"))
    expected = pytorch_gru(cell, whole(cell))(X.flatten(0, 1), memory(cell)[0].flatten(0, 1))
    torch.testing.assert_close(step(cell)[1][0].flatten(0, 1), expected, **CLOSE)


@torch.no_grad()
def test_printed_gru_resets_the_input() -> None:
    cell = randomised(PrintedGRU(**SIZES))
    (h,) = memory(cell)
    recurrent, gates = h @ cell.hidden.weight.T, X @ whole(cell).T + cell.word.bias
    u = (gates[..., :STATE] + recurrent[..., :STATE]).sigmoid()
    r = (gates[..., STATE:] + recurrent[..., STATE:-STATE]).sigmoid()
    assert r.shape == X.shape
    new = (recurrent[..., -STATE:] + (r * X) @ cell.candidate.weight.T + cell.candidate.bias).tanh()
    torch.testing.assert_close(step(cell)[1][0], u * new + (1 - u) * h, **CLOSE)


@pytest.mark.parametrize("query", ["after", "before"])
@torch.no_grad()
def test_up_down_is_two_lstms_of_pytorch(query: Any) -> None:
    cell = randomised(UpDown(**SIZES, query=query))
    second = torch.cat((cell.second.word.weight, cell.second.context.weight), dim=1)
    theirs = [pytorch_lstm(cell.first, whole(cell.first)), pytorch_lstm(cell.second, second)]
    h2, c2, h1, c1 = (m.flatten(0, 1) for m in memory(cell))
    first = torch.cat((WORDS, SHOWN.expand(-1, N, -1)), dim=-1).flatten(0, 1)
    h1, c1 = theirs[0](torch.cat((first, h2), dim=1), (h1, c1))
    after = theirs[1](torch.cat((h1, FOUND.flatten(0, 1)), dim=1), (h2, c2))
    asked, found = step(cell)
    torch.testing.assert_close(asked.flatten(0, 1), h1 if query == "after" else h2, **CLOSE)
    for one, other in zip(found, (*after, h1, c1), strict=True):
        torch.testing.assert_close(one.flatten(0, 1), other, **CLOSE)


@pytest.mark.parametrize("query", ["after", "before"])
@torch.no_grad()
def test_conditional_gru_is_one_state_through_two(query: Any) -> None:
    cell = randomised(ConditionalGRU(**SIZES, query=query))
    (s,) = memory(cell)
    between = gru(cell.first, torch.cat((WORDS, SHOWN.expand(-1, N, -1)), dim=-1), s)
    word, gates, candidate = cell.second.word, cell.second.hidden.weight, cell.second.candidate.weight
    after = plain_gru(word.weight, word.bias, gates, candidate, FOUND, between)
    asked, found = step(cell)
    torch.testing.assert_close(asked, between if query == "after" else s, **CLOSE)
    torch.testing.assert_close(found[0], after, **CLOSE)


@torch.no_grad()
def test_conditional_gru_of_nematus_is_two_of_pytorch() -> None:
    cell = randomised(ConditionalGRU(**SIZES, reset="after"))
    first = torch.cat((cell.first.word.weight, cell.first.constant.weight), dim=1)
    read = torch.cat((WORDS, SHOWN.expand(-1, N, -1)), dim=-1).flatten(0, 1)
    between = pytorch_gru(cell.first, first)(read, memory(cell)[0].flatten(0, 1))
    after = pytorch_gru(cell.second, cell.second.word.weight)(FOUND.flatten(0, 1), between)
    asked, found = step(cell)
    torch.testing.assert_close(asked.flatten(0, 1), between, **CLOSE)
    torch.testing.assert_close(found[0].flatten(0, 1), after, **CLOSE)


def test_conditional_gru_needs_attention() -> None:
    with pytest.raises(ValueError, match="attention between its cells, and the model has none: set a score"):
        ConditionalGRU(WORD, IMAGE, 0, STATE)


@pytest.mark.parametrize("cell", [LSTM, GRU, PrintedGRU, UpDown, ConditionalGRU])
def test_recurrences_begin_orthogonal_and_forget_gates_open(cell: Any) -> None:
    torch.manual_seed(0)
    cell = cell(**SIZES)
    for parameter in cell.parameters():
        parameter.data.zero_()
    cell.initialise()
    blocks = [block for p in cell.parameters() if p.ndim == 2 and p.any() for block in p.split(STATE)]
    if isinstance(cell, PrintedGRU):  # between u's and the candidate's lie those of the input's gate
        blocks = [cell.hidden.weight[:STATE], cell.hidden.weight[-STATE:]]
    assert len(blocks) == {LSTM: 4, GRU: 3, PrintedGRU: 2, UpDown: 8, ConditionalGRU: 6}[type(cell)]
    for block in blocks:
        torch.testing.assert_close(block @ block.T, torch.eye(STATE), rtol=0, atol=1e-5)
    for name, parameter in cell.named_parameters():
        if name.endswith("word.bias") and len(parameter) == 4 * STATE:
            assert parameter.view(4, STATE).sum(dim=1).tolist() == [0, STATE, 0, 0]


def test_the_lstm_keeps_its_sum_in_single_precision() -> None:
    cell = LSTM(**SIZES).bfloat16()
    state = tuple(m.bfloat16() for m in memory(cell))
    hidden, total = cell(cell.words(WORDS.bfloat16()), FOUND.bfloat16(), state)
    assert (hidden.dtype, total.dtype) == (torch.bfloat16, torch.float32)
