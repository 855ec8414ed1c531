"""Pointing scores of each kind of attention map, measured from checkpoints.

N captions of one image, C steps, L context vectors, K nouns.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from captioning.backbones.context import ContextSet
from captioning.config.explain import explain, is_expected
from captioning.data.batch import BatchIndex
from captioning.data.dataset import CaptionDataset
from captioning.data.example import Box, data_digest
from captioning.decoding.maps import gradient, reference_maps, rollout
from captioning.errors import CaptioningError
from captioning.features.build import FeatureStore
from captioning.files import markdown_table
from captioning.machine import get_device
from captioning.metrics.attention import PointingScore, on_full_image
from captioning.models.protocol import LayeredCaptioner
from captioning.progress import progress_bar
from captioning.report.runs import Run
from captioning.report.systems import System, mean
from captioning.report.tables import format_value
from captioning.runs.checkpoints.networks import load_network
from captioning.runs.evaluation.data_set import read_splits
from captioning.runs.settings import relocate

Nouns = Sequence[Sequence[tuple[int, Box]]]
EXPLANATION = (
    "Pointing score of the references of the test split under teacher forcing: of the nouns with a "
    "box, the percentage "
    "at whose object the map of the step that says them peaks; in brackets with each image "
    "replaced by the next one. "
    "`weights` is what panels show, `rollout` follows attention through all layers (Abnar and "
    "Zuidema 2020), and "
    "`gradient` weighs it by what the word gains from it (Chefer et al. 2021):"
)


def pointing_table(
    systems: Sequence[System], kinds: Sequence[str], cache: Path, modules: Sequence[str]
) -> tuple[str, list[str]]:
    """Return a table of systems with attention and boxes, if any, and a line per skipped system."""
    rows, left_out = [], []
    for system in systems:
        try:
            measurements = [pointing(run, kinds, cache, modules) for run in system.runs]
        except Exception as error:
            if not is_expected(error):
                raise
            left_out.append(f"maps of {system.full_label}: {explain(error)}")
            continue
        if any(measurements):
            cells = []
            for kind in kinds:
                both = zip(*(m[kind] for m in measurements if kind in m), strict=True)
                printed = [format_value("pointing", mean(scores)) for scores in both]
                cells.append("{} ({})".format(*printed) if printed else "-")
            rows.append([system.full_label, *cells])
    table = markdown_table(["system", *kinds], rows)
    return f"\n{EXPLANATION}\n\n{table}\n" if rows else "", left_out


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
    if not isinstance(network.model, LayeredCaptioner):
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
            context = network.backbone.context_of(seen, dataset.inputs.pixels)
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
        return rollout(model.layer_weights(context.repeat_interleave(len(tokens)), tokens[:, :-1]))
    named = [(caption, step) for caption, row in enumerate(steps) for step in row]
    caption, step = torch.tensor(named, device=tokens.device).T
    maps = context.vectors.new_zeros(*tokens[:, 1:].shape, context.vectors.shape[1])
    images = context.repeat_interleave(len(named))
    maps[caption, step] = gradient(
        model, images, tokens[caption, :-1], step, tokens[caption, step + 1]
    )
    return maps
