"""Measurements one after the other, printed and written as they come."""

from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from captioning.benchmark.built import chosen_device
from captioning.benchmark.ceilings import ceilings, machine
from captioning.benchmark.figures import line, table
from captioning.benchmark.measurement import Measurement
from captioning.benchmark.parts import PARTS, check
from captioning.benchmark.processes import isolated
from captioning.files import write_json


def measure(config: DictConfig) -> None:
    """Measures the parts that `config` names.

    Raises:
        CaptioningError: as for `captioning.benchmark.parts.check`.
    """
    check(config)
    device = chosen_device(config)
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
