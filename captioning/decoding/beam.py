"""Batched beam search, and diverse beam search.

B images, G groups of K hypotheses per image, k of them open before a step, n captions kept, V
words, T tokens so far.
"""

from collections.abc import Sequence
from typing import NamedTuple, Self

import torch
from torch import Tensor

from captioning.backbones.context import ContextSet
from captioning.decoding.caption import GeneratedCaption, best_first
from captioning.decoding.filters import AnyFilter
from captioning.decoding.ranking import Ranking
from captioning.decoding.steps import all_ended, log_probs, to_captions
from captioning.models.parts.numerics import index_select_hypotheses
from captioning.models.protocol import Captioner
from captioning.tokens import BOS, EOS

HypothesisState = tuple[Tensor, Tensor, Sequence[Tensor]]
"""A step: the token of each hypothesis and the row of the previous step that it extends, `[B, N]`
each, and the maps `Step.maps` of that choice.
"""


@torch.no_grad()
def search(
    model: Captioner,
    context: ContextSet,
    width: int,
    groups: int,
    diversity: float,
    ranking: Ranking,
    forbidden: Sequence[int],
    filters: AnyFilter | None,
) -> list[GeneratedCaption]:
    """Beam search in groups of `width` hypotheses each; see `diverse_beam_search`."""
    state = model.start(context, 1)
    tokens = torch.full((len(context.vectors), 1), BOS, device=context.vectors.device)
    history = tokens.new_empty(*tokens.shape, 0)
    beams = [_Beam(tokens, width, ranking) for _ in range(groups)]
    past = []
    for length in range(1, ranking.max_length + 1):
        step = model.step(tokens, state)
        left = ranking.max_length - length + 1
        words = log_probs(step.logits, forbidden, filters, history, left)
        parents, tokens = _advance_groups(beams, words, diversity, length)
        past.append((tokens, parents, step.maps))
        if length == ranking.max_length:
            for number, beam in enumerate(beams):
                beam.cut(number * tokens.shape[1] // groups)
            break
        if all_ended(torch.stack([beam.done for beam in beams]), length):
            break
        state = step.state.reorder(parents)
        if filters is not None:
            rows = parents[..., None].expand(-1, -1, history.shape[-1])
            history = torch.cat([history.gather(1, rows), tokens[..., None]], dim=-1)

    captions = to_captions(*_traced(past, _Kept.joined([beam.kept for beam in beams])))
    return [best_first(_distinct(group, ranking.n_best)) for group in captions]


def _advance_groups(
    beams: Sequence["_Beam"], words: Tensor, diversity: float, length: int
) -> tuple[Tensor, Tensor]:
    """Extend the hypotheses of every group to `length` tokens.

    A word loses `diversity` for each time that an earlier group chose it at this step. `words` are
    log-probabilities `[B, N, V]` of the hypotheses of all groups, which are concatenated; before
    the first word they share one. Returns the rows that are extended, and the tokens.
    """
    k = words.shape[1] if length == 1 else words.shape[1] // len(beams)
    counts = torch.zeros_like(words[:, 0])  # how often earlier groups chose a word, [B, V]
    parents, tokens = [], []
    for number, beam in enumerate(beams):
        first = 0 if length == 1 else number * k
        own = words[:, first : first + k]
        ranked = own - diversity * counts[:, None] if diversity else own
        rows, chosen = beam.advance(own, ranked, first, length)
        if diversity:
            searched = ~beam.done[:, None]
            counts.scatter_add_(1, chosen, searched.to(counts.dtype).expand_as(chosen))
        parents.append(rows)
        tokens.append(chosen)
    return torch.cat(parents, dim=1), torch.cat(tokens, dim=1)


def _distinct(captions: list[GeneratedCaption], n: int) -> list[GeneratedCaption]:
    """Drop equal captions, and those of minus infinity.

    The best of a group of `n` stays nevertheless.
    """
    kept = [
        caption for i, caption in enumerate(captions) if i % n == 0 or caption.score > -torch.inf
    ]
    return list({tuple(caption.tokens): caption for caption in reversed(kept)}.values())[::-1]


class _Kept(NamedTuple):
    """The best captions so far, `[B, n]` each, or those of several groups."""

    score: Tensor  # minus infinity: none
    row: Tensor  # of its last step; where EOS ends it, of the step before
    length: Tensor
    cut: Tensor  # not ended by EOS

    @classmethod
    def joined(cls, several: Sequence[Self]) -> Self:
        """Side by side."""
        return cls(*(torch.cat(columns, dim=1) for columns in zip(*several, strict=True)))


def _traced(
    past: Sequence[HypothesisState], kept: _Kept
) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
    """Trace captions back.

    Returns tokens `[B, n, T]`, lengths and scores `[B, n]`, and maps `[B, n, T, L]`.

    What follows the end of a caption has no meaning.

    Example:
        One image, K = n = 2, T = 3, without maps. At each step, the tokens of the hypotheses and
        the rows of the step before that they continue:

            step       1       2       3
            tokens   [5, 6]  [7, 8]  [9, 4]
            parents  [0, 0]  [0, 0]  [1, 0]

        The first caption was ended by EOS at step 3, after row 1 of step 2, token 8, which
        continues row 0 of step 1, token 5. The second was cut at step 3, in row 0, token 9, which
        continues row 1 of step 2 as well:

        >>> steps = ([5, 6], [0, 0]), ([7, 8], [0, 0]), ([9, 4], [1, 0])
        >>> past = [(torch.tensor([own]), torch.tensor([rows]), ()) for own, rows in steps]
        >>> rows, length = torch.tensor([[1, 0]]), torch.tensor([[3, 3]])
        >>> kept = _Kept(torch.zeros(1, 2), rows, length, torch.tensor([[False, True]]))
        >>> _traced(past, kept)[0].tolist()  # EOS is 2
        [[[5, 8, 2], [5, 8, 9]]]
    """
    row, tokens, maps = kept.row, [], []
    for step, (chosen, parents, shown) in reversed(list(enumerate(past, start=1))):
        continues = (step < kept.length) | ((step == kept.length) & kept.cut)
        # rows that ended before exist in every later step, since hypotheses never become fewer
        tokens.append(chosen.gather(1, row).where(continues, EOS))
        row = parents.gather(1, row).where(continues, row)
        maps.append(index_select_hypotheses(shown, row))
    joined = [torch.stack(steps[::-1], dim=2) for steps in zip(*maps, strict=True)]
    return torch.stack(tokens[::-1], dim=2), kept.length, kept.score, joined


class _Beam:
    """The open hypotheses of one group for all images, and the best captions so far.

    Hypotheses have the rows of the model's state, in which the groups are concatenated.
    """

    def __init__(self, first: Tensor, width: int, ranking: Ranking):
        """Begin with one hypothesis per image, of the tokens `first` `[B, 1]`."""
        self.width, self.ranking = width, ranking
        # Log-probabilities, [B, k].
        self.open = torch.zeros_like(first, dtype=torch.float64)
        self.done = torch.zeros_like(first[:, 0], dtype=torch.bool)
        self._ended = torch.zeros_like(first[:, 0])
        none = first.new_zeros(len(first), ranking.n_best)
        self.kept = _Kept(
            torch.full_like(none, -torch.inf, dtype=torch.float64), none, none, none.bool()
        )

    def advance(
        self, words: Tensor, ranked: Tensor, first: int, length: int
    ) -> tuple[Tensor, Tensor]:
        """Extend the hypotheses to `length` tokens with the best continuations.

        `words` are their log-probabilities, `ranked` the values they are ranked by, `[B, k, V]`
        each. Returns the rows of the extended hypotheses (counted from `first`) and their tokens,
        `[B, K]` or fewer.
        """
        # At most K continuations end, so the best 2K include K open ones, all among the best 2K of
        # each hypothesis.
        gains, tokens = ranked.topk(min(2 * self.width, ranked.shape[-1]), dim=-1)
        scores = (self.open[:, :, None] + gains).flatten(1)
        top, choice = scores.topk(min(2 * self.width, scores.shape[1]), dim=1)
        origin, tokens = choice // gains.shape[-1], tokens.flatten(1).gather(1, choice)
        if ranked is not words:
            own = words[torch.arange(len(words), device=words.device)[:, None], origin, tokens]
            top = self.open.gather(1, origin) + own
        ends = tokens == EOS
        ended = top[:, : self.width].masked_fill(~ends[:, : self.width], -torch.inf)
        self._take(ended, origin[:, : self.width] + first, length, cut=False)

        order = ends.byte().argsort(dim=1, stable=True)[:, : self.width]
        self.open = top.masked_fill(ends, -torch.inf).gather(1, order)
        # at the last step open hypotheses are cut and always compete
        if length < self.ranking.max_length:
            if self.ranking.early_stopping:
                self.done |= self._ended >= self.width
            best = self.open.amax(1)
            bounds = torch.stack([best / each for each in self.ranking.divisors_to_come(length)])
            self.done |= bounds.amax(0) <= self.kept.score[:, -1]
        return origin.gather(1, order) + first, tokens.gather(1, order)

    def cut(self, first: int) -> None:
        """Let the open hypotheses, from row `first` on, compete unfinished."""
        rows = torch.arange(self.open.shape[1], device=self.open.device).expand_as(self.open)
        self._take(self.open, rows + first, self.ranking.max_length, cut=True)

    def _take(self, scores: Tensor, rows: Tensor, length: int, cut: bool) -> None:
        """Keep the best n of the previous and the new captions, `[B, K]`.

        Minus infinity marks none.

        Example:
            One image, n = K = 2, scores divided by lengths. A caption of 2 tokens is kept, and one
            of 3 tokens ends, with log-probabilities -2 and -1.8:

            >>> ranking = Ranking(5, 1.0, "length", n_best=2, early_stopping=False)
            >>> beam = _Beam(torch.tensor([[1]]), 2, ranking)
            >>> beam._take(torch.tensor([[-2.0, -torch.inf]]), torch.tensor([[4, 0]]), 2, cut=False)
            >>> beam.kept.score.tolist(), beam.kept.row.tolist()
            ([[-1.0, -inf]], [[4, 0]])

            The scores [-1, -inf] and [-0.6, -inf] are sorted in the order [2, 0]:

            >>> beam._take(torch.tensor([[-1.8, -torch.inf]]), torch.tensor([[1, 0]]), 3, cut=False)
            >>> [[round(x, 3) for x in row] for row in beam.kept.score.tolist()]
            [[-0.6, -1.0]]
            >>> beam.kept.row.tolist(), beam.kept.length.tolist()
            ([[1, 4]], [[3, 2]])
        """
        # Finished searches keep their result while those of other images in the batch continue.
        scores = scores.masked_fill(self.done[:, None], -torch.inf)
        self._ended += (scores > -torch.inf).sum(1)
        new = _Kept(
            scores / self.ranking.divisor(length),
            rows,
            torch.full_like(rows, length),
            torch.full_like(rows, cut, dtype=torch.bool),
        )
        every = _Kept.joined([self.kept, new])
        order = every.score.argsort(dim=1, descending=True, stable=True)[:, : self.ranking.n_best]
        self.kept = _Kept(*(column.gather(1, order) for column in every))
