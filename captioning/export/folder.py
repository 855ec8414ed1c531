"""Export a folder of graphs that captions photographs without this package."""

import inspect
import shutil
import warnings
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from captioning.captioner import TrainedCaptioner
from captioning.config.searches import USUAL_FILTERS, with_words
from captioning.decoding import FORBIDDEN, Filters, beam_search
from captioning.errors import CaptioningError, quoted
from captioning.export import runner
from captioning.export.graphs import SIZES, graphs, of_image
from captioning.files import write_json
from captioning.tokens import NAMES

SEARCHES: Mapping[str, dict[str, Any]] = {
    "captioning.decoding.greedy": {"width": 1},
    "captioning.decoding.beam_search": {},
}
"""The searches of the runner, as settings of a beam."""
USUAL: dict[str, Any] = {
    name: inspect.signature(beam_search).parameters[name].default
    for name in ("width", "max_length", "length_penalty", "normalisation", "n_best")
}


def export_graphs(captioner: TrainedCaptioner, output: Path, form: str, int8: bool) -> None:
    """Write the graphs of a captioner of one checkpoint, on the CPU, to a folder.

    `form` is `onnx`, which adds the program that runs it, or `torch`; `int8` quantises the last layer of `onnx`.
    """
    network, config = captioner.networks[0], captioner.config
    backbone, transform, longest = network.backbone, network.backbone.transform, config["model"].get("max_tokens")
    decoding = _decoding(config["decoding"], captioner)
    if getattr(getattr(network.model, "attention", None), "choice", None) == "sample":
        raise CaptioningError("this model draws locations (model.attention.choice=sample), and graphs cannot draw")
    if longest is not None and longest <= SIZES["time"]:
        raise CaptioningError(f"model.max_tokens={longest}: graphs are traced with {SIZES['time'] + 1} tokens")
    traced = graphs(backbone, network.model)
    about = {
        "version": runner.VERSION,
        "vocabulary": [*NAMES, *captioner.vocabulary.words],
        "decoding": decoding,
        "quantiles": list(captioner.quantiles),
        "longest": longest,
        "grid": backbone.grid,
        "preprocessing": {n: getattr(transform, n) for n in ("size", "resize", "interpolation", "mean", "std")},
        "of_hypotheses": [name for name in traced["step"].inputs if name != "tokens" and not of_image(name)],
        "graphs": {name: {"inputs": graph.inputs, "outputs": graph.outputs} for name, graph in traced.items()},
    }
    output.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=output, prefix=".part-") as temporary, warnings.catch_warnings():
        part = Path(temporary)
        if form == "onnx":
            from captioning.export.onnx import write_onnx  # here, because these packages are an extra

            write_onnx(traced, part, int8)
            shutil.copyfile(runner.__file__, part / "run.py")
        else:
            # about the backbone's weights, which are complete, in their own memory format
            warnings.filterwarnings("ignore", "No complete tensor found", UserWarning)
            for name, graph in traced.items():
                torch.export.save(graph.program, part / f"{name}.pt2")
        write_json(part / "captioner.json", about)
        for file in sorted(part.iterdir()):
            file.replace(output / file.name)


def _decoding(decoding: Mapping[str, Any], captioner: TrainedCaptioner) -> dict[str, Any]:
    """The settings of the runner's search, with ids for words."""
    settings = captioner.vocabulary.with_ids(with_words(decoding))
    filters = {"_target_": USUAL_FILTERS, **(settings.get("filters") or {})}
    if settings["_target_"] not in SEARCHES or filters.pop("_target_") != USUAL_FILTERS:
        raise CaptioningError(
            f"exported graphs are decoded by greedy or beam search with the usual filters, and this run decodes by "
            f"{quoted(settings['_target_'])}: add decoding=greedy or decoding=beam"
        )
    given = {name: settings[name] for name in USUAL if name in settings}
    words = asdict(Filters()) | filters | {"never": settings.get("forbidden", FORBIDDEN)}
    return USUAL | given | SEARCHES[settings["_target_"]] | words
