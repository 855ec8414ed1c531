"""Which attention maps are faithful? `pointing.py [runs] [cache] [module ...]` prints a table.

Pointing scores of the references of the test split under teacher forcing, from each run's
`best.ckpt`: of the nouns with a box, the percentage at whose object the map of the step that says
them peaks; in brackets with each image replaced by the next one. `weights` is what panels show.

- `rollout`: Abnar and Zuidema, "Quantifying Attention Flow in Transformers", 2020.
- `gradient`, gradient x attention: Chefer, Gur, Wolf, "Generic Attention-model Explainability for
  Interpreting Bi-Modal and Encoder-Decoder Transformers", 2021, whose numbers of equations are
  given.

N captions of one image, C steps, L context vectors, K nouns or vectors after the encoder. For
propagated maps, B captions of T words each.
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, repeat
from pathlib import Path
from typing import Any

import torch
from throughput.naive import repeated
from torch import Tensor

from captioning.backbones.context import ContextSet
from captioning.data.batch import BatchIndex
from captioning.data.columns import data_digest
from captioning.data.dataset import CaptionDataset
from captioning.decoding.maps import reference_maps
from captioning.errors import CaptioningError
from captioning.features.build import FeatureStore
from captioning.files import markdown_table
from captioning.machine import get_device
from captioning.metrics.attention import PointingScore, on_full_image
from captioning.models.parts.layers import SelfAttention
from captioning.models.transformer import Transformer
from captioning.progress import progress_bar
from captioning.report.runs import Run, find_runs
from captioning.report.systems import group, mean, newest
from captioning.report.tables import format_value
from captioning.runs.checkpoints.networks import load_network
from captioning.runs.evaluation.data_set import read_splits
from captioning.runs.settings import relocate

KINDS = "weights", "rollout", "gradient"
GRADIENTS_AT_ONCE = 8
"""Words whose gradients are in memory at once; each has a gradient of every encoder weight."""


@dataclass(frozen=True)
class LayerWeights:
    """All attention weights of a pass over one caption of T words per image.

    There are K vectors after the encoder.
    """

    logits: Tensor  # `[B, T, V]`
    encoder: Sequence[Tensor]  # `[B, H, K, K + M]`, also of a prefix; the last M on memory
    text: Sequence[Tensor]  # `[B, H, T, T]`, of the decoder's self-attention
    inter: Sequence[Tensor]  # `[B, H, T, K]`
    # Maps weights over the K vectors to weights over the image's L vectors.
    to_input_grid: Callable[[Tensor], Tensor]
    # Of a prefix: the number of `encoder` below the vectors of each decoder layer; else all.
    below: Sequence[int] = ()


def layer_weights(model: Transformer, context: ContextSet, tokens: Tensor) -> LayerWeights:
    """Teacher forcing on one caption per image, `[B, T]`.

    With gradients enabled, weights have them, also those of a frozen model. The layers compute and
    show what they otherwise leave out, by hooks of PyTorch.
    """
    own, text = list[Tensor](), list[Tensor]()
    hooks = [model.positions.register_forward_hook(lambda *call: call[-1].requires_grad_())]
    for layer in model.decoder:
        hooks.append(layer.register_forward_hook(lambda *call: text.append(call[-1].text)))
    for part in model.modules():
        if isinstance(part, SelfAttention):  # the last of what it is given is `need_weights`
            hooks.append(part.register_forward_pre_hook(lambda _, given: (*given[:-1], True)))
            hooks.append(part.register_forward_hook(lambda *call: own.append(call[-1].weights)))
    try:
        state = model.start(context, 1)
        encoder = [*own]  # before those of words follow
        passed = model.read(state, tokens[:, None], len(model.decoder))
    finally:
        for hook in hooks:
            hook.remove()
    return LayerWeights(
        model.readout(passed.hidden[:, 0]),
        encoder,
        text,
        passed.inter,
        model.encoder.to_input_grid,
        range(len(encoder) - len(model.decoder), len(encoder)) if model.prefix else (),
    )


@torch.no_grad()
def pointing(
    run: Run, kinds: Sequence[str], cache: Path, modules: Sequence[str]
) -> Mapping[str, Sequence[float]]:
    """Return pointing scores by kind of map, on the images and on other images; empty without
    boxes.
    """
    config, vocabulary, network = load_network(
        run.folder / "checkpoints" / "best.ckpt", get_device("auto"), modules
    )
    data: dict[str, Any] = config["data"]
    if isinstance(config.get("cache"), str):
        data = relocate(data, config["cache"], str(cache))
    splits = read_splits(data, [network.backbone], cache, modules)
    if data_digest(splits) != run.provenance.data_digest:
        raise CaptioningError(f"{run.folder} was tested on other data than data.reader gives now")
    examples = splits["test"]
    if not isinstance(network.model, Transformer):
        kinds = [kind for kind in kinds if kind == "weights"]
    boxes = any(reference.nouns for example in examples for reference in example.references)
    if not (boxes and network.backbone.located and network.model.attends):
        return {}
    inputs = network.backbone.open_inputs(examples, FeatureStore(cache), "test")
    names = ("max_words", "max_pieces", "captions_per_image")
    sizes: dict[str, Any] = {name: data.get(name) for name in names}
    dataset = CaptionDataset(
        examples, inputs, vocabulary, **sizes, drop_uncaptioned=False, seed=run.seed
    )
    device = network.backbone.scale.device
    scores = {kind: [PointingScore().to(device) for _ in range(2)] for kind in kinds}
    for position in progress_bar(
        f"maps of {run.folder.name}", len(examples), "image", iterable=range(len(examples))
    ):
        nouns = on_full_image(
            dataset.chosen(position, epoch=0),
            network.backbone.transform.frame(examples[position].path),
        )
        if not any(nouns):  # `gradient` has nothing to ask for
            continue
        tokens = dataset[BatchIndex(0, [position])].tokens[0].to(device)
        steps = [
            [step for step, word in enumerate(vocabulary.word_numbers(ids)) if word in dict(row)]
            for ids, row in zip(tokens[:, 1:].tolist(), nouns, strict=False)
        ]
        for shift in range(2):
            seen = dataset.inputs.rows([(position + shift) % len(examples)]).to(device)
            context = network.backbone.context_of(seen)
            for kind in kinds:
                attention = _maps(kind, network.model, context, tokens, steps)[None]
                attention = reference_maps(attention, tokens[None, :, 1:], vocabulary.word_numbers)
                scores[kind][shift].update(attention, [nouns], context.grid)
    return {
        kind: [score.compute().item() for score in both]
        for kind, both in scores.items()
        if both[0].weight  # nouns that were judged
    }


def _maps(
    kind: str, model: Any, context: ContextSet, tokens: Tensor, steps: Sequence[Sequence[int]]
) -> Tensor:
    """Return maps `[N, C, L]` of captions `[N, C + 1]` of one image; `gradient` is zero but at
    `steps`, those of nouns.
    """
    if kind == "weights":
        weights: Tensor = model(context, tokens[None, :, :-1], need_weights=True).attention[0]
        return weights
    if kind == "rollout":
        return rollout(layer_weights(model, repeated(context, len(tokens)), tokens[:, :-1]))
    named = [(caption, step) for caption, row in enumerate(steps) for step in row]
    caption, step = torch.tensor(named, device=tokens.device).T
    maps = context.vectors.new_zeros(*tokens[:, 1:].shape, context.vectors.shape[1])
    images = repeated(context, len(named))
    maps[caption, step] = gradient(
        model, images, tokens[caption, :-1], step, tokens[caption, step + 1]
    )
    return maps


@torch.no_grad()
def rollout(weights: LayerWeights) -> Tensor:
    """Attention rollout: the share of each context vector in each position, `[B, T, L]`.

    Every layer passes on half of its input and half of the vectors attended to, heads averaged
    (section 3 of the paper; likewise between decoder and encoder (D)). The share of words is left
    out; rows sum to one.
    """
    layers = weights.encoder, weights.text, weights.inter
    encoder, text, inter = ([alpha.mean(dim=1) for alpha in part] for part in layers)
    images = _encoded(map(_on_image, encoder), inter[0], lambda before, added: (before + added) / 2)
    shares = torch.zeros_like(inter[0])
    for words, vectors, below in zip(text, inter, weights.below or repeat(-1), strict=False):
        shares = (shares + words @ shares) / 2
        shares = (shares + vectors @ images[below]) / 2
    return weights.to_input_grid(shares / shares.sum(dim=-1, keepdim=True))


def gradient(model: Any, context: ContextSet, tokens: Tensor, step: Tensor, word: Tensor) -> Tensor:
    """Gradient x attention: the relevance of each context vector to one word per caption, `[B, L]`.

    Captions `tokens` `[B, T]` begin with BOS; the position `step` `[B]` predicts the word `word`
    `[B]`. Rows sum to one or are zero. Weights are replaced by their contributions to the word's
    logit, A = mean over heads of max(0, dy/dA * A) (Eq. 5), and propagated through all layers (Eq.
    6, 7, and 8 and 9 for the image). (D) Eq. 10 without its factor for words: relevance of earlier
    words arrives by the self-attention of later layers.
    """
    parts = []
    for rows in torch.arange(len(tokens), device=tokens.device).split(GRADIENTS_AT_ONCE):
        mask = None if context.mask is None else context.mask[rows]
        part = replace(context, vectors=context.vectors[rows], mask=mask)
        parts.append(_gradient(model, part, tokens[rows], step[rows], word[rows]))
    return torch.cat(parts)


def _gradient(
    model: Any, context: ContextSet, tokens: Tensor, step: Tensor, word: Tensor
) -> Tensor:
    rows = torch.arange(len(tokens), device=tokens.device)
    with torch.enable_grad():
        vectors = context.vectors.detach().requires_grad_()
        weights = layer_weights(model, replace(context, vectors=vectors), tokens)
        alphas = [*weights.encoder, *weights.text, *weights.inter]
        slopes = torch.autograd.grad(
            weights.logits[rows, step, word].sum(), alphas, materialize_grads=True
        )
    gains = [
        (slope * alpha.detach()).clamp(min=0).mean(dim=1)
        for slope, alpha in zip(slopes, alphas, strict=True)
    ]
    layers = len(weights.inter)
    encoder, text, inter = gains[: -2 * layers], gains[-2 * layers : -layers], gains[-layers:]
    own, *images = _encoded(map(_on_image, encoder), inter[0], torch.add)
    images = [own, *(own + _to_one(image - own) for image in images)]  # Eq. 8, 9
    relevance = torch.zeros_like(inter[0])
    for words, vectors, below in zip(text, inter, weights.below or repeat(-1), strict=False):
        relevance = relevance + words @ relevance
        relevance = relevance + vectors @ images[below]
    return weights.to_input_grid(_to_one(relevance[rows, step]))


def _encoded(
    encoder: Iterable[Tensor], like: Tensor, join: Callable[[Tensor, Tensor], Tensor]
) -> list[Tensor]:
    """The share of each encoder input in each vector after 0, 1, .. layers.

    `[K, K]` or `[B, K, K]`.
    """
    image = torch.eye(like.shape[-1], dtype=like.dtype, device=like.device)
    return list(
        accumulate(encoder, lambda before, vectors: join(before, vectors @ before), initial=image)
    )


def _on_image(encoder: Tensor) -> Tensor:
    """Weights without those on memory, `[.., K, K + M]` to `[.., K, K]`."""
    return encoder[..., : encoder.shape[-2]]


def _to_one(rows: Tensor) -> Tensor:
    return rows / rows.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(rows.dtype).tiny)


def main(folder: str = "runs", cache: str = "cache", *modules: str) -> None:
    rows = []
    for system in group(newest(find_runs(Path(folder))[0])[0]):
        measurements = [pointing(run, KINDS, Path(cache), modules) for run in system.runs]
        cells = []
        for kind in KINDS:
            both = zip(*(m[kind] for m in measurements if kind in m), strict=True)
            printed = [format_value(mean(scores), "pointing") for scores in both]
            cells.append("{} ({})".format(*printed) if printed else "-")
        rows.append([system.full_label, *cells])
    print(markdown_table(["system", *KINDS], rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
