"""Scores of the captions of all processes, computed once."""

from collections.abc import Sequence

from torch import Tensor

from captioning.errors import CaptioningError
from captioning.machine import all_gather_object, gather_by_position, is_rank_zero
from captioning.metrics.scorer import Scorer, Scores


class CaptionScores:
    """Scores of all captions since the last reset, on all ranks.

    BLEU and CIDEr are those of a corpus.

    `captions` and `compute` are collective: every rank calls them, also one that had no update.
    """

    def __init__(self, scorer: Scorer):
        self.scorer = scorer
        self.reset()

    def start(self) -> None:
        """Start what the scores need, while captions are decoded."""
        if is_rank_zero():
            self.scorer.start()

    def reset(self) -> None:
        """Forget the captions."""
        self._captions: dict[int, Sequence[str]] = {}

    def update(self, index: Tensor, captions: Sequence[Sequence[str]]) -> None:
        """Add the captions of each image at positions `[B]`; those of the lowest rank count."""
        for position, texts in zip(index.tolist(), captions, strict=True):
            self._captions.setdefault(position, texts)

    def captions(self) -> dict[int, Sequence[str]]:
        """The captions of all ranks by position, in ascending order. Collective."""
        return gather_by_position(self._captions)

    def compute(self) -> Scores:
        """Score the captions of all ranks on rank 0 and give every rank the result. Collective."""
        captions = self.captions()
        try:
            mine = self.scorer.score(captions) if is_rank_zero() else None
        except Exception as error:
            all_gather_object(f"{type(error).__name__}: {error}")  # the other ranks wait to be told
            raise
        outcome = all_gather_object(mine)[0]
        if not isinstance(outcome, Scores):
            raise CaptioningError(f"rank 0 could not score the captions: {outcome}")
        return outcome
