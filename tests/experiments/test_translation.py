"""Laws of systems that translate: of sentences in a batch, and of words that occur twice."""

import pytest
import torch
from models.captioners import build, captioner

from captioning.tokens import BOS, PAD
from experiments.two_languages.sentences import Words

D, S = 17, 11  # of `models.captioners`


def attended(model, *sentences):
    torch.manual_seed(3)
    backbone = Words(dim=D, max_size=13, max_source=S).double()
    ids = torch.tensor([sentence + [PAD] * (S - len(sentence)) for sentence in sentences])
    tokens = torch.tensor([[[BOS, 5, 9, 7]]]).expand(len(sentences), 1, 4)
    return model(backbone.context_of(ids), tokens, need_weights=True)


@pytest.mark.parametrize(
    "name, bag", [("gru_attention", True), ("rnn_search", False), ("transformer", False)]
)
def test_equal_words_are_told_apart_by_an_encoder_alone(name, bag):
    attention = attended(build(name), [4, 7, 9, 7]).attention
    assert torch.allclose(attention[..., 1], attention[..., 3]) == bag
    assert not torch.allclose(attention[..., 1], attention[..., 2])


def test_size_of_the_paper():
    """Source and target embeddings of 30,000 words; biases apart, of which the paper tells
    nothing.
    """
    with torch.device("meta"):
        model = captioner("rnn_search", 30_000, 620, (1, 50))
        own = [
            parameter.numel() for name, parameter in model.named_parameters() if "bias" not in name
        ]
        assert sum(own) + Words(dim=620, max_size=30_000).network.weight.numel() == 80_401_000
