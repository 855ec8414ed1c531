"""Batched beam search.

B images, K beams per image, V words, L context vectors.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from captioning.backbones.context import ContextSet
from captioning.decoding.caption import FORBIDDEN, Caption
from captioning.decoding.log_probs import log_probs
from captioning.models.outputs import Captioner
from captioning.tokens import BOS, EOS


@torch.no_grad()
def beam_search(
    model: Captioner,
    context: ContextSet,
    width: int = 3,
    max_length: int = 15,
    length_penalty: float = 0.0,
    forbidden: Sequence[int] = FORBIDDEN,
) -> list[Caption]:
    """The best caption that a beam of `width` hypotheses per image finds.

    At each step the hypotheses' continuations are ranked together. An EOS among the best `width` ends its hypothesis;
    the beam is filled up with open ones. The search of an image ends with `width` ended captions, or when no open
    hypothesis can still beat the best ended one. A caption cut at `max_length` competes by its score.

    Args:
        model: anything with `start` and `step`; what belongs to an image is computed once for its beams.
        context: B images.
        width: K. One is greedy decoding.
        max_length: the largest number of generated tokens, EOS included.
        length_penalty: captions are ranked by their log-probability divided by (number of tokens, EOS included) to
            this power: 0 ranks by probability, 1 by the average per token.
        forbidden: token ids that are never generated.

    Returns:
        B captions, the best of each image.
    """
    if width < 1 or max_length < 1:
        raise ValueError(f"width is {width} and max_length is {max_length}; both must be at least 1")
    b, device = context.vectors.shape[0], context.vectors.device
    state = model.start(context, 1)
    tokens = torch.full((b, 1), BOS, device=device)
    open_scores = torch.zeros(b, 1, dtype=torch.float64, device=device)
    best = _Best(b, device)
    trace = _Trace()

    for length in range(1, max_length + 1):
        step = model.step(tokens, state)
        # There are at most K continuations by EOS, so the best 2K hold K open ones; and they are among the best 2K of
        # each hypothesis, so that only those are added up.
        gains, words = log_probs(step.logits, forbidden).topk(min(2 * width, step.logits.shape[-1]), dim=-1)
        scores = (open_scores[:, :, None] + gains).flatten(1)
        top, choice = scores.topk(min(2 * width, scores.shape[1]), dim=1)
        origin, words = choice // gains.shape[-1], words.flatten(1).gather(1, choice)
        ends = words == EOS
        best.update(top[:, :width].masked_fill(~ends[:, :width], -torch.inf), origin, length, length_penalty)

        order = ends.to(torch.uint8).argsort(dim=1, stable=True)[:, :width]
        open_scores = top.masked_fill(ends, -torch.inf).gather(1, order)
        parents, tokens = origin.gather(1, order), words.gather(1, order)
        trace.add(tokens, parents, step.attention)

        # What an open hypothesis can reach at most: no further loss, at the length that flatters it most.
        bound = open_scores[:, 0] / min(length + 1, max_length) ** length_penalty
        bound = torch.maximum(bound, open_scores[:, 0] / max_length**length_penalty)
        best.done |= bound <= best.score
        if length < max_length:  # at the last step open hypotheses are cut and compete, however many have ended
            best.done |= best.ended >= width
        if best.done.all():
            break
        if length < max_length:
            state = step.state.reorder(parents)

    # An image that is not done was cut: its first open hypothesis, at the maximum length, beats all ended ones.
    score = torch.where(best.done, best.score, open_scores[:, 0] / max_length**length_penalty).tolist()
    done, beams, lengths = best.done.tolist(), best.beam.tolist(), best.length.tolist()
    captions = []
    trace = trace.cpu()
    for i in range(b):
        found = trace.read(i, beams[i], lengths[i] - 1, EOS) if done[i] else trace.read(i, 0, max_length, None)
        captions.append(Caption(found[0], score[i], found[1]))
    return captions


class _Best:
    """The best ended caption of each image so far, all `[B]`."""

    def __init__(self, b: int, device: torch.device) -> None:
        self.score = torch.full((b,), -torch.inf, dtype=torch.float64, device=device)
        self.beam = torch.zeros(b, dtype=torch.long, device=device)
        self.length = torch.zeros(b, dtype=torch.long, device=device)
        self.ended = torch.zeros(b, dtype=torch.long, device=device)
        self.done = torch.zeros(b, dtype=torch.bool, device=device)

    def update(self, scores: Tensor, beams: Tensor, length: int, length_penalty: float) -> None:
        """Takes in captions that end with `length` tokens: `scores` `[B, K]`, minus infinity where none ends."""
        # What is done stays as it is, whatever longer searches of other images in the batch come by.
        scores = scores.masked_fill(self.done[:, None], -torch.inf)
        score, rank = (scores / length**length_penalty).max(dim=1)
        better = score > self.score
        self.ended += (scores > -torch.inf).sum(dim=1)
        self.score = torch.where(better, score, self.score)
        self.beam = torch.where(better, beams.gather(1, rank[:, None]).squeeze(1), self.beam)
        self.length = self.length.masked_fill(better, length)


@dataclass(slots=True)
class _Trace:
    """Back-pointers of the search: captions are read from them at the end, so that no step copies whole captions."""

    tokens: list[Tensor] = field(default_factory=list)  # [B, K] a step: the token that each beam chose
    parents: list[Tensor] = field(default_factory=list)  # [B, K] a step: the beam that it went on from
    attention: list[Tensor] = field(default_factory=list)  # [B, K, L] a step: the map of each beam before its choice

    def add(self, tokens: Tensor, parents: Tensor, attention: Tensor | None) -> None:
        """Records one step."""
        self.tokens.append(tokens)
        self.parents.append(parents)
        if attention is not None:
            self.attention.append(attention)

    def cpu(self) -> "_Trace":
        """A copy to read from."""
        return _Trace(*([x.cpu() for x in xs] for xs in (self.tokens, self.parents, self.attention)))

    def read(self, b: int, beam: int, steps: int, last: int | None) -> tuple[list[int], Tensor | None]:
        """What image `b` had generated at `beam` after `steps` steps, then `last` if given, and its maps `[T, L]`."""
        tokens = [] if last is None else [last]
        beams = [] if last is None else [beam]
        for t in reversed(range(steps)):
            tokens.append(int(self.tokens[t][b, beam]))
            beam = int(self.parents[t][b, beam])
            beams.append(beam)
        maps = [self.attention[t][b, row] for t, row in enumerate(reversed(beams))] if self.attention else []
        return tokens[::-1], torch.stack(maps) if maps else None
