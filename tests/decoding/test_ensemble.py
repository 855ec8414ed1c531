"""Averaged probabilities, written out."""

from functools import partial

import pytest
import torch
from toys import Search, photographs, pictures, show_attend_tell, table, transformer

from captioning.backbones.context import ContextSet
from captioning.decoding import Contexts, Ensemble, beam_search, diverse_beam_search, greedy, sample
from captioning.tokens import BOS


@pytest.mark.parametrize(
    "search", [greedy, partial(beam_search, length_penalty=0), partial(diverse_beam_search, length_penalty=0), sample]
)
def test_scores_are_those_of_the_mean_probabilities(search: Search) -> None:
    """A spatial transformer and two recurrent captioners, each with images of its own."""
    models = [transformer(), show_attend_tell(), show_attend_tell(8)]
    contexts = [photographs(4, seed) for seed in (0, 1, 2)]
    captions = search(Ensemble(models), Contexts(contexts), max_length=5)
    for i, best in enumerate(captions):
        for caption in (best, *best.alternatives):
            inputs = torch.tensor([BOS, *caption.tokens[:-1]]).view(1, 1, -1)
            maps, probabilities = [], []
            for model, context in zip(models, contexts, strict=True):
                with torch.no_grad():
                    output = model(ContextSet(context.vectors[i : i + 1], (1, 3)), inputs, need_weights=True)
                    probabilities.append(model.readout(output.hidden)[0, 0].softmax(-1))
                maps.append(output.attention[0, 0])
            mean = sum(probabilities) / 3
            total = sum(mean[t, token].log().item() for t, token in enumerate(caption.tokens))
            assert caption.score == pytest.approx(total, rel=1e-10)
            torch.testing.assert_close(caption.attention, sum(maps) / 3, rtol=0, atol=1e-10)


def test_two_that_disagree_by_hand() -> None:
    one, two = table(0, words=2, max_tokens=1, images=1), table(1, words=2, max_tokens=1, images=1)
    for model, probabilities in ((one, [0.7, 0.1, 0.2]), (two, [0.1, 0.6, 0.3])):
        model.logits[0, BOS] = -torch.inf
        model.logits[0, BOS, [4, 5, 2]] = torch.tensor(probabilities, dtype=torch.float64).log()
    context = pictures([0])
    (caption,) = greedy(Ensemble([one, two]), Contexts([context, context]), max_length=1)
    assert caption.tokens == [4]
    assert caption.score == pytest.approx(torch.tensor(0.4).log().item(), rel=1e-6)


def test_maps_of_other_sizes_are_left_out() -> None:
    narrow, none = table(2), table(2, attention=False)
    context = pictures([0, 1])
    wide = table(2)
    wide.maps = wide.maps[..., [0, 1]]
    for other in (none, wide):
        captions = beam_search(Ensemble([narrow, other]), Contexts([context, context]), max_length=4)
        assert all(caption.attention is None for caption in captions)


def test_every_member_needs_its_images() -> None:
    with pytest.raises(ValueError, match="argument 2"):
        greedy(Ensemble([table(0), table(1)]), Contexts([pictures([0])]))
