"""Check the settings of a benchmark, measure its parts, print and write the measurements as they come."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from annotated_types import MinLen
from omegaconf import DictConfig, OmegaConf

from captioning.benchmark import data_parts, parts
from captioning.benchmark.material import plain
from captioning.benchmark.measure import DTYPES, Measurement, ceilings, isolated, line, machine, table
from captioning.config.registry import build
from captioning.config.settings import check_table
from captioning.config.types import BatchSize, Count, PathText
from captioning.errors import CaptioningError
from captioning.files import write_json
from captioning.machine import device_called

PARTS: Mapping[str, Callable[[DictConfig], Iterator[Measurement]]] = {
    **{part.__name__: part for part in (parts.startup, parts.training, parts.decoding, parts.backbone)},
    **{part.__name__: part for part in (data_parts.cache, parts.scoring, data_parts.coco)},
}
SETTINGS: Mapping[str, Any] = {
    "parts": Annotated[list[Literal[*PARTS]], MinLen(1)],  # type: ignore[valid-type]
    "precisions": Annotated[list[Literal[*DTYPES]], MinLen(1)],  # type: ignore[valid-type]
    "search.widths": Annotated[list[Count], MinLen(1)],
    "search.batches": Annotated[list[BatchSize], MinLen(1)],
    "output": PathText | None,
    "repeats": Count,
}


def check(config: DictConfig) -> None:
    """Refuse settings that would fail after minutes."""
    check_table(SETTINGS, config)
    for part in ("backbone", "model", "objective"):
        build(part, {**plain(config)[part], "_partial_": True}, None)
    parameters = [torch.nn.Parameter(torch.zeros(1))]
    build("optimizer", {**plain(config)["optimizer"], "_partial_": False}, None, parameters)
    device_called(config.device)
    if config.output is not None and not Path(config.output).absolute().parent.is_dir():
        raise CaptioningError(f"output={config.output} cannot be written: its folder does not exist")


def measure(config: DictConfig) -> None:
    check(config)
    device = device_called(config.device)
    content: dict[str, Any] = {
        "settings": OmegaConf.to_container(config, resolve=True),
        "machine": machine(device),
        "ceilings": isolated(ceilings, device, config.repeats),
    }
    for title in ("machine", "ceilings"):
        shown = {name: f"{value:.4g}" if isinstance(value, float) else value for name, value in content[title].items()}
        print(f"{title}: " + "; ".join(f"{name} {value}" for name, value in shown.items()))
    measurements: list[Measurement] = []
    for name in config.parts:
        for measurement in PARTS[name](config):
            measurements.append(measurement)
            print(line(measurement), flush=True)
            if config.output is not None:  # after each, so that what took minutes is kept whatever comes
                content["measurements"] = [done.as_dict() for done in measurements]
                write_json(Path(config.output), content)
    print(f"\n{table(measurements)}")
