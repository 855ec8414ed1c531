"""Gathers the captions that the ranks of a run generate and scores them once, as a torchmetrics metric.

B is the number of captions in an update, P the number of their UTF-8 bytes. BLEU and CIDEr are statistics of a corpus,
so the captions themselves are gathered, not scores. They travel as tensors, which is what torchmetrics synchronises.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from captioning.errors import CaptioningError
from captioning.metrics.scorer import Scorer, Scores


class CaptionScores(Metric):
    """The scores of all captions generated since the last reset, on all ranks.

    `captions` and `compute` are collective: every rank calls them, also one that had no update. At the end of an epoch:

        captions = metric.captions()    # gathered, the same on all ranks: rank 0 writes them to disk
        scores = metric.compute()       # scored on rank 0, the same on all ranks
        metric.reset()

    Args:
        scorer: has the references; the positions given to `update` are positions in them.
    """

    is_differentiable = False
    higher_is_better = True

    positions: list[Tensor]
    lengths: list[Tensor]
    characters: list[Tensor]

    def __init__(self, scorer: Scorer) -> None:
        super().__init__()
        self.scorer = scorer
        self.add_state("positions", default=[], dist_reduce_fx="cat")
        self.add_state("lengths", default=[], dist_reduce_fx="cat")
        self.add_state("characters", default=[], dist_reduce_fx="cat")

    def _wrap_compute(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        # torchmetrics' wrapper warns on a rank without an update, and refuses a frozen dataclass as a result. All else
        # that it does is to synchronise, which `captions` does.
        return compute

    def forward(self, *args: Any, **kwargs: Any) -> None:
        """Updates only: a batch has no scores of its own."""
        self.update(*args, **kwargs)

    def update(self, index: Tensor, captions: Sequence[str]) -> None:
        """Adds generated captions.

        Args:
            index: [B] positions of the images in the scorer's references.
            captions: B captions. Of several for one position the first counts; between ranks, that of the lowest rank.

        Raises:
            CaptioningError: there are not as many captions as positions.
        """
        if index.shape != (len(captions),):
            raise CaptioningError(
                f"index has the shape {list(index.shape)} for {len(captions)} captions: give one position per caption"
            )
        # Any Python string must come back as it was, also one with a lone surrogate.
        encoded = [caption.encode("utf-8", errors="surrogatepass") for caption in captions]
        self.positions.append(index.to(self.device, torch.int64))  # [B]
        self.lengths.append(torch.tensor([len(text) for text in encoded], dtype=torch.int64, device=self.device))  # [B]
        self.characters.append(torch.tensor(list(b"".join(encoded)), dtype=torch.uint8, device=self.device))  # [P]

    def sync(self, *args: Any, **kwargs: Any) -> None:
        """Synchronises the states as torchmetrics does, also where this rank had no update.

        There torchmetrics would send an empty float tensor, and ranks that exchange different types fail or hang.
        """
        if isinstance(self.positions, list) and not self.positions:
            for state, dtype in (
                (self.positions, torch.int64),
                (self.lengths, torch.int64),
                (self.characters, torch.uint8),
            ):
                state.append(torch.empty(0, dtype=dtype, device=self.device))
        super().sync(*args, **kwargs)

    def captions(self) -> dict[int, str]:
        """The captions of all ranks: position -> caption, in ascending order, repeats dropped.

        Collective, except within a `sync_context`, where the states are those of all ranks already.
        """
        to_sync = not self._is_synced
        with self.sync_context(should_sync=to_sync, should_unsync=to_sync):
            positions = dim_zero_cat(self.positions).tolist()
            lengths = dim_zero_cat(self.lengths).tolist()
            characters = bytes(dim_zero_cat(self.characters).tolist())
        gathered: dict[int, str] = {}
        start = 0
        for position, length in zip(positions, lengths, strict=True):
            gathered.setdefault(position, characters[start : start + length].decode("utf-8", errors="surrogatepass"))
            start += length
        return dict(sorted(gathered.items()))

    def compute(self) -> Scores:
        """Scores the captions of all ranks on rank 0 and gives every rank the result. Collective.

        Raises:
            CaptioningError: on every rank, if rank 0 could not score (see `Scorer.score`). Rank 0 raises what happened,
                whatever its type; the others quote it.
        """
        captions = self.captions()
        if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            return self.scorer.score(captions)
        outcome: list[Scores | str | None] = [None]
        failure: Exception | None = None
        if torch.distributed.get_rank() == 0:
            try:
                outcome[0] = self.scorer.score(captions)
            except Exception as error:
                # The other ranks wait for rank 0, so whatever went wrong must be told to them before it is raised.
                failure = error
                outcome[0] = f"{type(error).__name__}: {error}"
        torch.distributed.broadcast_object_list(outcome, src=0)
        if failure is not None:
            raise failure
        if not isinstance(outcome[0], Scores):
            raise CaptioningError(f"rank 0 could not score the captions: {outcome[0]}")
        return outcome[0]
