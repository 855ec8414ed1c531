"""How undecided a model was before each token of a caption.

B images, T tokens, V words.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from captioning.backbones.context import ContextSet
from captioning.decoding.caption import Caption
from captioning.models.protocol import Captioner
from captioning.tokens import BOS, PAD

Search = Callable[[Captioner, ContextSet], list[Caption]]


def measured(search: Search) -> Search:
    """The same search, whose captions also have their `entropy`."""

    def decode(model: Captioner, context: ContextSet) -> list[Caption]:
        captions = search(model, context)
        found = entropies(model, context, [caption.tokens for caption in captions])
        return [replace(caption, entropy=each) for caption, each in zip(captions, found, strict=True)]

    return decode


@torch.no_grad()
def entropies(model: Captioner, context: ContextSet, captions: Sequence[Sequence[int]]) -> list[list[float]]:
    """The entropy in nats of the model's distribution over all V ids before each token of B captions.

    One pass of teacher forcing after any search: filters and forbidden ids, which belong to the search, play no part.

    Args:
        model: of which the captions are, or an ensemble, of whose mean probabilities it is.
        context: of the B images.
        captions: the T tokens of each, without BOS, EOS included.
    """
    read = [torch.tensor([BOS, *tokens[:-1]]) for tokens in captions]
    inputs = pad_sequence(read, batch_first=True, padding_value=PAD)[:, None].to(context.vectors.device)
    logits: Tensor = model.readout(model(context, inputs).hidden)[:, 0]  # [B, T, V]
    probabilities = logits.to(torch.promote_types(logits.dtype, torch.float32)).softmax(dim=-1)
    found = torch.special.entr(probabilities).sum(dim=-1).tolist()
    return [row[: len(tokens)] for row, tokens in zip(found, captions, strict=True)]
