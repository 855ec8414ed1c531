"""Backbone in images/s: from JPEG files to features on disk."""

import io
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr
from pathlib import Path

import torch
from omegaconf import DictConfig

from captioning.backbones import Backbone
from captioning.benchmark.built import built_backbone, chosen_device
from captioning.benchmark.compare import Comparison, compare
from captioning.benchmark.material import photographs
from captioning.benchmark.measurement import Measurement
from captioning.benchmark.processes import isolated, peak_bytes
from captioning.benchmark.timing import Run
from captioning.features.build import build_features


def measure(config: DictConfig) -> Iterator[Measurement]:
    """A feature cache of photographs made for it; naively, one photograph after the other, a file for each."""
    number, (width, height) = config.photographs.number, config.photographs.size
    with tempfile.TemporaryDirectory() as folder:
        paths = photographs(Path(folder), number, width, height)
        found = isolated(_compared, config, paths)
        naive_peak = isolated(_naive_peak, config, paths)
    ours, naive = Run(number, found.ours), Run(number, found.naive)
    name = f"{_name(config.backbone)}, {number} files of {width} x {height}"
    note = "memory without that of the decoding processes"
    yield Measurement("backbone", name, "images", ours, naive, found.ceiling, found.peak, naive_peak, note)


def _name(backbone: DictConfig) -> str:
    """Of a library's network its name, of another one its class."""
    return str(backbone.get("name") or backbone._target_.rpartition(".")[2])


def _compared(config: DictConfig, paths: Sequence[Path]) -> Comparison:
    backbone = built_backbone(config)
    return compare(
        lambda: _build(backbone, paths),
        lambda: _one_by_one(backbone, paths),
        torch.float32,
        config.repeats,
        chosen_device(config),
    )


def _naive_peak(config: DictConfig, paths: Sequence[Path]) -> int | None:
    _one_by_one(built_backbone(config), paths)
    return peak_bytes(chosen_device(config))


def _build(backbone: Backbone, paths: Sequence[Path]) -> None:
    with tempfile.TemporaryDirectory() as folder, redirect_stderr(io.StringIO()):  # the progress bar
        build_features(backbone, paths, Path(folder))


def _one_by_one(backbone: Backbone, paths: Sequence[Path]) -> None:
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        for i, path in enumerate(paths):
            image = backbone.transform.read(path)[None].to(backbone.scale.device)
            torch.save(backbone(image)[0].half().cpu(), Path(folder) / f"{i}.pt")
