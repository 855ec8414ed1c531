"""Generated captions of all processes, scored once.

BLEU and CIDEr are statistics of a corpus, so the captions themselves are gathered, not scores.
"""

from collections.abc import Sequence

import torch.distributed as dist
from torch import Tensor

from captioning.errors import CaptioningError
from captioning.machine import gathered
from captioning.metrics.scorer import Scorer, Scores


class CaptionScores:
    """Scores of all captions generated since the last reset, on all ranks.

    `captions` and `compute` are collective: every rank calls them, also one that had no update.

    Args:
        scorer: has the references; the positions given to `update` are positions in them.
    """

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer
        self._captions: dict[int, str] = {}

    def update(self, index: Tensor, captions: Sequence[str]) -> None:
        """Add captions of the images at the positions `[B]`.

        Of several for one position the first counts; between ranks, that of the lowest rank.
        """
        for position, caption in zip(index.tolist(), captions, strict=True):
            self._captions.setdefault(position, caption)

    def reset(self) -> None:
        """Forget the captions."""
        self._captions = {}

    def captions(self) -> dict[int, str]:
        """The captions of all ranks: position -> caption, in ascending order, repeats dropped. Collective."""
        found: dict[int, str] = {}
        for captions in gathered(self._captions):
            found = captions | found
        return dict(sorted(found.items()))

    def compute(self) -> Scores:
        """Score the captions of all ranks on rank 0 and give every rank the result. Collective.

        Rank 0 raises whatever went wrong; the other ranks raise a `CaptioningError` that quotes it.
        """
        captions = self.captions()
        mine: Scores | str | None = None
        failure: Exception | None = None
        if not (dist.is_available() and dist.is_initialized()) or dist.get_rank() == 0:
            try:
                mine = self.scorer.score(captions)
            except Exception as error:  # the other ranks wait for rank 0, so they must be told before it is raised
                failure, mine = error, f"{type(error).__name__}: {error}"
        outcome = gathered(mine)[0]
        if failure is not None:
            raise failure
        if not isinstance(outcome, Scores):
            raise CaptioningError(f"rank 0 could not score the captions: {outcome}")
        return outcome
