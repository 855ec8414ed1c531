"""Gathers the captions that the processes of a run generate and scores them once.

BLEU and CIDEr are statistics of a corpus, so the captions themselves are gathered, not scores.
"""

from collections.abc import Sequence

import torch.distributed as dist
from torch import Tensor

from captioning.errors import CaptioningError
from captioning.machine import gathered
from captioning.metrics.scorer import Scorer, Scores


class CaptionScores:
    """The scores of all captions generated since the last reset, on all ranks.

    `captions` and `compute` are collective: every rank calls them, also one that had no update.

    Args:
        scorer: has the references; the positions given to `update` are positions in them.
    """

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer
        self._captions: dict[int, str] = {}

    def update(self, index: Tensor, captions: Sequence[str]) -> None:
        """Adds generated captions.

        Args:
            index: `[B]` positions of the images in the scorer's references.
            captions: B captions. Of several for one position the first counts; between ranks, that of the lowest rank.

        Raises:
            CaptioningError: there are not as many captions as positions.
        """
        if index.shape != (len(captions),):
            raise CaptioningError(
                f"index has the shape {list(index.shape)} for {len(captions)} captions: give one position per caption"
            )
        for position, caption in zip(index.tolist(), captions, strict=True):
            self._captions.setdefault(position, caption)

    def reset(self) -> None:
        """Forgets the captions."""
        self._captions = {}

    def captions(self) -> dict[int, str]:
        """The captions of all ranks: position -> caption, in ascending order, repeats dropped. Collective."""
        found: dict[int, str] = {}
        for captions in gathered(self._captions):
            found = captions | found
        return dict(sorted(found.items()))

    def compute(self) -> Scores:
        """Scores the captions of all ranks on rank 0 and gives every rank the result. Collective.

        Raises:
            CaptioningError: on every rank, if rank 0 could not score (see `Scorer.score`). Rank 0 raises what happened,
                whatever its type; the others quote it.
        """
        captions = self.captions()
        mine: Scores | str | None = None
        failure: Exception | None = None
        if not (dist.is_available() and dist.is_initialized()) or dist.get_rank() == 0:
            try:
                mine = self.scorer.score(captions)
            except Exception as error:
                # The other ranks wait for rank 0, so whatever went wrong must be told to them before it is raised.
                failure, mine = error, f"{type(error).__name__}: {error}"
        outcome = gathered(mine)[0]
        if failure is not None:
            raise failure
        if not isinstance(outcome, Scores):
            raise CaptioningError(f"rank 0 could not score the captions: {outcome}")
        return outcome
