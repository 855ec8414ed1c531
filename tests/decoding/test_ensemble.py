"""Averaged probabilities, written out."""

from functools import partial

import pytest
import torch
from models.captioners import GRID, D, L
from models.tensors import close, normal
from toys import every, parallel, pictures, table, talkative

from captioning.backbones.context import ContextSet
from captioning.decoding import (
    beam_search,
    diverse_beam_search,
    greedy,
    sample,
)
from captioning.decoding.ensemble import Ensemble, EnsembleContext


@pytest.mark.parametrize(
    "search",
    [
        greedy,
        partial(beam_search, length_penalty=0),
        partial(diverse_beam_search, length_penalty=0),
        sample,
    ],
)
def test_scores_are_those_of_the_mean_probabilities(search):
    """A spatial transformer and two recurrent captioners, each with images of its own."""
    models = [talkative(name, i) for i, name in enumerate(("prefix", "sat_soft", "sat_soft"))]
    contexts = [ContextSet(normal(4, L, D, seed=seed), GRID) for seed in (1, 2, 3)]
    for i, caption in every(search(Ensemble(models), EnsembleContext(contexts), max_length=5)):
        alone = [parallel(m, c, i, caption.tokens) for m, c in zip(models, contexts, strict=True)]
        chosen = (
            torch.tensor([log_probs for log_probs, _ in alone], dtype=torch.float64)
            .exp()
            .mean(dim=0)
            .log()
        )
        assert caption.score == pytest.approx(chosen.sum().item(), rel=1e-10)
        close(caption.attention, sum(maps for _, maps in alone) / 3, 1e-10)


def test_maps_of_other_sizes_are_left_out():
    narrow, none, wide = table(2), table(2, attention=False), table(2)
    wide.maps = wide.maps[..., [0, 1]]
    for other in (none, wide):
        captions = beam_search(
            Ensemble([narrow, other]), EnsembleContext([pictures([0, 1])] * 2), max_length=4
        )
        assert all(caption.attention is None for caption in captions)


def test_every_member_needs_its_images():
    with pytest.raises(ValueError, match="argument 2"):
        greedy(Ensemble([table(0), table(1)]), EnsembleContext([pictures([0])]))
