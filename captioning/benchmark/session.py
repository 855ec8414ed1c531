"""Check the settings of a benchmark, measure its parts, print and write the measurements as they come."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from annotated_types import Interval, Len, MinLen
from omegaconf import DictConfig, OmegaConf

from captioning.benchmark import data_parts, parts
from captioning.benchmark.measure import DTYPES, ceilings, isolated, machine
from captioning.benchmark.rows import Measurement, line, table
from captioning.config.registry import build, of_parts
from captioning.config.settings import check_table
from captioning.config.types import BatchSize, Count, Length, PathText, PixelSize, Width, Workers
from captioning.errors import CaptioningError
from captioning.files import write_json
from captioning.machine import device_called
from captioning.tokens import NAMES

PARTS: Mapping[str, Callable[[DictConfig], Iterator[Measurement]]] = {
    "startup": parts.startup,
    "training": parts.training,
    "decoding": parts.decoding,
    "backbone": parts.backbone,
    "cache": data_parts.cache,
    "scoring": parts.scoring,
    "coco": data_parts.coco,
}
_Number = Annotated[int, Interval(ge=1, le=10_000_000)]
_Side = Annotated[int, Interval(ge=1, le=512)]
SETTINGS: Mapping[str, Any] = {
    "parts": Annotated[list[Literal[*PARTS]], MinLen(1)],  # type: ignore[valid-type]
    "output": PathText | None,
    "device": Literal["auto", "cpu", "cuda"],
    "repeats": Count,
    "context.grid": Annotated[list[_Side], Len(2, 2)],
    "context.features": Width,
    "vocab_size": Annotated[int, Interval(ge=len(NAMES) + 1, le=1_000_000)],
    "data.max_words": Length,
    "data.num_workers": Workers,
    "batch.images": BatchSize,
    "batch.captions": Count,
    "batch.words": Annotated[list[Length], Len(2, 2)],
    "precisions": Annotated[list[Literal[*DTYPES]], MinLen(1)],  # type: ignore[valid-type]
    "search.widths": Annotated[list[Count], MinLen(1)],
    "search.batches": Annotated[list[BatchSize], MinLen(1)],
    "search.max_length": Length,
    "decoding.max_length": Length,
    **{f"memory.{name}": BatchSize for name in ("training_images", "images", "few_batches", "many_batches")},
    "memory.width": Count,
    "photographs.number": _Number,
    "photographs.size": Annotated[list[PixelSize], Len(2, 2)],
    "cache.images": _Number,
    "cache.steps": _Number,
    "scoring.captions": _Number,
    "scoring.references": Count,
    "coco.images": _Number,
    "coco.workers": Workers,
    "coco.batches": _Number,
}


def check(config: DictConfig) -> None:
    """Refuse settings that would fail after minutes."""
    check_table(SETTINGS, config)
    settings = of_parts(OmegaConf.to_container(config, resolve=True))  # type: ignore[arg-type]
    for part in ("backbone", "model", "objective"):
        build(part, {**settings[part], "_partial_": True}, None)
    build("optimizer", {**settings["optimizer"], "_partial_": False}, None, [torch.nn.Parameter(torch.zeros(1))])
    shortest, longest = config.batch.words
    if shortest > longest:
        raise CaptioningError(f"batch.words={config.batch.words} is not allowed; the fewest words come first")
    device_called(config.device)
    if config.output is not None and not Path(config.output).absolute().parent.is_dir():
        raise CaptioningError(f"output={config.output} cannot be written: its folder does not exist")


def measure(config: DictConfig) -> None:
    """Measure the parts that `config` names."""
    check(config)
    device = device_called(config.device)
    content: dict[str, Any] = {
        "settings": OmegaConf.to_container(config, resolve=True),
        "machine": machine(device),
        "ceilings": isolated(ceilings, device, config.repeats),
    }
    for title in ("machine", "ceilings"):
        print(f"{title}: " + "; ".join(f"{name} {_shown(value)}" for name, value in content[title].items()))
    measurements: list[Measurement] = []
    for name in config.parts:
        for measurement in PARTS[name](config):
            measurements.append(measurement)
            print(line(measurement), flush=True)
            if config.output is not None:  # after each, so that what took minutes is kept whatever comes
                content["measurements"] = [done.as_dict() for done in measurements]
                write_json(Path(config.output), content)
    print(f"\n{table(measurements)}")


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
