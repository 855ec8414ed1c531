"""Check the settings of a benchmark, measure its parts, print and write the measurements as they come."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from annotated_types import MinLen
from omegaconf import DictConfig, OmegaConf

from captioning.benchmark import data_parts, parts
from captioning.benchmark.measure import DTYPES, Measurement, ceilings, isolated, line, machine, table
from captioning.config.registry import build, of_parts
from captioning.config.settings import check_table
from captioning.config.types import BatchSize, Count, PathText
from captioning.errors import CaptioningError
from captioning.files import write_json
from captioning.machine import device_called

PARTS: Mapping[str, Callable[[DictConfig], Iterator[Measurement]]] = {
    "startup": parts.startup,
    "training": parts.training,
    "decoding": parts.decoding,
    "backbone": parts.backbone,
    "cache": data_parts.cache,
    "scoring": parts.scoring,
    "coco": data_parts.coco,
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
    settings = of_parts(OmegaConf.to_container(config, resolve=True))  # type: ignore[arg-type]
    for part in ("backbone", "model", "objective"):
        build(part, {**settings[part], "_partial_": True}, None)
    build("optimizer", {**settings["optimizer"], "_partial_": False}, None, [torch.nn.Parameter(torch.zeros(1))])
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
