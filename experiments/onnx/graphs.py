"""Export a captioner as a folder of three graphs of `torch.export`.

They caption images without this package.

B images of C channels, H rows and W columns of pixels, L context vectors of D features, N
hypotheses of T words per image, V words.

| graph | from | to |
|---|---|---|
| backbone | images `[B, C, H, W]` uint8 | vectors `[B, L, D]`; mask `[B, L]` if partial |
| start | these | log-probabilities of the first word `[B, 1, V]`, attention `[B, 1, L]`, state |
| step | tokens `[B, N]`, state | log-probabilities of the next word, attention, next state |

Start reads BOS too, because only then the state has its final form: before, there may be no past.
Models without attention have no such output.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from math import prod
from typing import Any

import torch
from pydantic import TypeAdapter
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.utils._pytree import TreeSpec, keystr, tree_flatten_with_path, tree_unflatten

from captioning.backbones.base import Backbone, check_one_image
from captioning.backbones.context import ContextSet
from captioning.captioner import TrainedCaptioner
from captioning.config.registry import settings_of
from captioning.decoding import FORBIDDEN, Filters, beam_search
from captioning.errors import CaptioningError, quoted
from captioning.files import FORMATS
from captioning.models.parts.recurrent_encoder import RecurrentEncoder
from captioning.models.protocol import Captioner, Step
from captioning.runs.evaluation.searches import DEFAULT_FILTERS
from captioning.tokens import BOS, NAMES

SIZES = {"batch": 2, "hypotheses": 3, "time": 2, "locations": 0}
"""Sizes of the example tensors (locations beyond those of the grid); other sizes are free if the
model allows them.
"""
Axes = Mapping[int, str]
GREEDY = "captioning.decoding.greedy"
BEAM = "captioning.decoding.beam_search"
AS_BEAM = {"width": 1, "length_penalty": 0.0, "early_stopping": True}
"""Greedy decoding as a beam search, the runner's only one."""
PREPROCESSING = ("size", "resize", "interpolation", "pixel_range", "mean", "std")


@dataclass(frozen=True)
class Graph:
    """A program, and its inputs and outputs in order with their axes of free size."""

    program: ExportedProgram
    inputs: Mapping[str, Axes]
    outputs: Mapping[str, Axes]


def captioner_graphs(captioner: TrainedCaptioner) -> tuple[dict[str, Graph], dict[str, Any]]:
    """The graphs of a captioner of one checkpoint, on the CPU, and the content of `captioner.json`
    for the program that runs them.
    """
    network, config = captioner.first, captioner.config
    backbone = network.backbone
    check_one_image([backbone], "a graph")
    decoding = search_of(config["decoding"], captioner)
    if getattr(getattr(network.model, "attention", None), "mode", None) == "sample":
        raise CaptioningError(
            "this model draws locations (model.attention.mode=sample), and graphs cannot draw"
        )
    pieces = captioner.vocabulary.pieces
    if any("\ufffd" in text for text in pieces[len(NAMES) :]):
        raise CaptioningError(
            "graphs cannot write letters of several pieces, as of this tokenizer of bytes"
        )
    traced = graphs(backbone, network.model)
    return traced, {
        "vocabulary": pieces or [*NAMES, *captioner.vocabulary.words],
        "between": "" if pieces else " ",
        "no_space_pattern": captioner.vocabulary.language.no_space_pattern,
        "decoding": decoding,
        "settings": setting_schemas(),
        "language": captioner.vocabulary.language.code,
        "quantiles": list(captioner.quantiles),
        "longest": config["model"].get("max_tokens"),
        "grid": backbone.grid,
        "preprocessing": {
            **{name: getattr(backbone.transform, name) for name in PREPROCESSING},
            "formats": FORMATS,
        },
        "of_hypotheses": [
            name for name in traced["step"].inputs if name != "tokens" and not of_image(name)
        ],
        "graphs": {
            name: {"inputs": graph.inputs, "outputs": graph.outputs}
            for name, graph in traced.items()
        },
    }


def search_of(decoding: Mapping[str, Any], captioner: TrainedCaptioner) -> dict[str, Any]:
    """The settings of the runner's search, those of its filters among them."""
    search, filters = decoding["_target_"], decoding.get("filters") or {}
    filter_class = filters.get("_target_", DEFAULT_FILTERS)
    if search not in (GREEDY, BEAM) or filter_class != DEFAULT_FILTERS:
        raise CaptioningError(
            "exported graphs are decoded by greedy or beam search with the usual filters, and this "
            f"run decodes by {quoted(search)} with {quoted(filter_class)}: add decoding=greedy or "
            "decoding=beam"
        )
    if captioner.vocabulary.pieces and filters.get("prefix"):
        raise CaptioningError(
            "exported graphs cannot divide a prefix into pieces of words: set "
            "decoding.filters.prefix=[]"
        )
    given: dict[str, Any] = {"never": decoding.get("forbidden", FORBIDDEN)}
    beam = decoding if search == BEAM else {**decoding, **AS_BEAM}
    for name, setting in settings_of(beam_search).items():
        given[name] = beam.get(name, setting.default)
    built = captioner.search.keywords.get("filters") or Filters()  # type: ignore[attr-defined]
    return given | {name: getattr(built, name) for name in settings_of(Filters)}


def setting_schemas() -> dict[str, Any]:
    """JSON Schema of each setting of the runner's search, by which it judges values."""
    declared = settings_of(beam_search) | settings_of(Filters)
    schemas = {name: TypeAdapter(each.hint).json_schema() for name, each in declared.items()}
    return schemas | {"never": {"type": "array", "items": {"type": "integer"}}}


class _Traced(nn.Module):
    """A function of tensors, and the network whose weights it reads."""

    def __init__(self, network: Any, run: Callable[..., Iterable[Tensor]]):
        super().__init__()
        self.network, self.run = network, run

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.run(*tensors))


def graphs(backbone: Backbone, model: Captioner) -> dict[str, Graph]:
    """The three graphs of frozen networks in evaluation mode on the CPU."""
    channels, size = 4 if backbone.partial else 3, backbone.size
    images = torch.zeros(2, channels, size, size, dtype=torch.uint8)
    axes: dict[str, Axes] = {name: {0: "batch"} for name in ("images", "vectors", "mask")}

    def embed(images: Tensor) -> list[Tensor]:
        context = backbone.context_of(images)
        return [context.vectors] if context.mask is None else [context.vectors, context.mask]

    first = _exported(backbone, embed, {"images": images}, list(_vectors(backbone, SIZES)), axes)
    return {"backbone": first, **decoder_graphs(backbone, model)}


@torch.no_grad()
def decoder_graphs(backbone: Backbone, model: Captioner) -> dict[str, Graph]:
    """Start and step alone, for the context sets of `backbone`."""
    if isinstance(getattr(model, "encoder", None), RecurrentEncoder):
        raise CaptioningError("graphs cannot hold a recurrent encoder, whose batch would be fixed")
    step, state = _captioned(backbone, model, SIZES)
    axes = _axes(backbone, model)
    tensors = leaves(state)
    own = [name for name in tensors if not of_image(name)]

    def outputs(step: Step, names: Iterable[str]) -> list[Tensor]:
        after = leaves(step.state)
        return [*_shown(step).values(), *(after[name] for name in names)]

    def start(vectors: Tensor, mask: Tensor | None = None) -> list[Tensor]:
        return outputs(_first(model, ContextSet(vectors, backbone.grid, mask)), tensors)

    def advance(tokens: Tensor, *given: Tensor) -> list[Tensor]:
        before = rebuilt(state, dict(zip(tensors, given, strict=True)))
        return outputs(model.step(tokens, before), own)

    given = {"tokens": torch.full((SIZES["batch"], SIZES["hypotheses"]), BOS)}
    # copies, because torch.export reads one of two inputs that are the same tensor
    given |= {name: tensor.clone() for name, tensor in tensors.items()}
    begun = [*_shown(step), *tensors]
    return {
        "start": _exported(model, start, _vectors(backbone, SIZES), begun, axes),
        "step": _exported(model, advance, given, [*_shown(step), *own], axes),
    }


def _first(model: Captioner, context: ContextSet) -> Step:
    tokens = torch.full((context.vectors.shape[0], 1), BOS)
    return model.step(tokens, model.start(context, 1))


def _shown(step: Step) -> dict[str, Tensor]:
    shown = {"log_probs": step.logits.float().log_softmax(-1)}
    return shown if step.attention is None else shown | {"attention": step.attention}


def _captioned(backbone: Backbone, model: Captioner, sizes: Mapping[str, int]) -> tuple[Step, Any]:
    """An example of a step, and the state after it."""
    context = ContextSet(grid=backbone.grid, **_vectors(backbone, sizes))
    step = _first(model, context)
    tokens = torch.full((sizes["batch"], sizes["hypotheses"]), BOS)
    state = step.state.reorder(torch.zeros_like(tokens))
    for _ in range(1, sizes["time"]):
        step = model.step(tokens, state)
        state = step.state
    return step, state


def _vectors(backbone: Backbone, sizes: Mapping[str, int]) -> dict[str, Tensor]:
    """Example inputs of start."""
    size = sizes["batch"], prod(backbone.grid) + sizes["locations"]
    vectors = {"vectors": torch.zeros(*size, backbone.dim)}
    return vectors | ({"mask": torch.ones(size, dtype=torch.bool)} if backbone.partial else {})


def _axes(backbone: Backbone, model: Captioner) -> dict[str, Axes]:
    """The axes of every tensor that grow with one of `SIZES`, found by trying."""

    def shapes(sizes: Mapping[str, int]) -> tuple[dict[str, torch.Size], Any]:
        step, state = _captioned(backbone, model, sizes)
        tensors = _vectors(backbone, sizes) | _shown(step) | leaves(state)
        return {name: tensor.shape for name, tensor in tensors.items()}, rebuilt(state, {})

    usual, form = shapes(SIZES)
    axes: dict[str, dict[int, str]] = {name: {} for name in usual}
    for axis in SIZES:
        try:
            longer, other = shapes({**SIZES, axis: SIZES[axis] + 1})
        except (ValueError, RuntimeError):
            if axis != "locations":  # some models are built for a fixed number of them
                raise
            continue
        if other != form:  # a number that is no tensor would stay as it is
            continue
        for name, shape in usual.items():
            axes[name] |= {i: axis for i, size in enumerate(shape) if longer[name][i] != size}
    return {**axes, "tokens": {0: "batch", 1: "hypotheses"}}


def _exported(
    network: Any,
    run: Callable[..., Iterable[Tensor]],
    inputs: Mapping[str, Tensor],
    outputs: Sequence[str],
    axes: Mapping[str, Axes],
) -> Graph:
    # With different names torch demands what holds for the example alone. Time and locations have
    # bounds to find: those of a language model's positions.
    bounded = "time", "locations"
    sizes: dict[str, Any] = {axis: Dim.DYNAMIC if axis in bounded else Dim(axis) for axis in SIZES}
    # torch takes an axis of length 1 for fixed
    free = [
        {i: sizes[axis] for i, axis in axes[name].items() if x.shape[i] > 1}
        for name, x in inputs.items()
    ]
    with torch.no_grad():
        program = torch.export.export(
            _Traced(network, run),
            tuple(inputs.values()),
            dynamic_shapes={"tensors": tuple(free)},
            strict=False,
        )
    return Graph(
        program, {name: axes[name] for name in inputs}, {name: axes[name] for name in outputs}
    )


def leaves(state: Any) -> dict[str, Tensor]:
    """The tensors of a decode state by their place in it, such as `image.layers.0.key`."""
    return {name: leaf for name, leaf in _flat(state)[0] if isinstance(leaf, Tensor)}


def rebuilt(state: Any, tensors: Mapping[str, Any]) -> Any:
    """The same state with other tensors, named as by `leaves`; None for those that are missing."""
    flat, form = _flat(state)
    return tree_unflatten(
        [tensors.get(n) if isinstance(leaf, Tensor) else leaf for n, leaf in flat], form
    )


def _flat(state: Any) -> tuple[list[tuple[str, Any]], TreeSpec]:
    """Yield the tensors in nested dataclasses, tuples, lists and dicts by name."""
    while True:
        flat, form = tree_flatten_with_path(state)
        unknown = {type(leaf) for _, leaf in flat if is_dataclass(leaf)}
        if not unknown:
            return [(".".join(re.findall(r"\w+", keystr(path))), leaf) for path, leaf in flat], form
        for kind in unknown:
            torch.export.register_dataclass(kind)


def of_image(name: str) -> bool:
    """Tell whether a leaf belongs to the image and is stored once for its hypotheses."""
    return name.startswith("image.")
