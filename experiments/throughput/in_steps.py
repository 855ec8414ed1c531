"""A training step that runs a frozen backbone, next to one that reads the backbone's cache.

python -m experiments.throughput.in_steps OUTPUT SETTING ...    settings of `benchmark.yaml`
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from captioning.backbones.base import Backbone
from captioning.config.registry import build
from captioning.data.dataset import Inputs
from captioning.features.build import FeatureStore
from captioning.files import write_json
from experiments.gpu.coco import photographs
from experiments.throughput.material import composed, plain, random_batch, training_step
from experiments.throughput.measure import describe_machine

BACKBONES = ("squeezenet1_1", "bundled")
IMAGES, WIDTH, HEIGHT, REPEATS = 64, 500, 375, 7
CPU = torch.device("cpu")


def seconds_of(name: str, settings: list[str], folder: Path) -> dict[str, list[float]]:
    """CPU seconds of each step and of its parts, in turn, in one process."""
    config = composed(f"backbone={name}", "device=cpu", *settings)
    if name != "bundled":
        config.backbone.weights = None
    backbone = build("backbone", Backbone, plain(config)["backbone"], None)
    config.context = {"grid": list(backbone.grid), "features": backbone.dim}
    paths = photographs(folder, IMAGES, WIDTH, HEIGHT)
    cached = FeatureStore(folder).computed(backbone, paths, name)
    uncached = FeatureStore(folder, in_steps=True).computed(backbone, paths, name)
    cached.fit_scale(backbone)
    step, size = training_step(config, "32-true"), config.batch.images
    batch = random_batch(config, size, config.batch.captions)
    rows = torch.randperm(IMAGES, generator=torch.Generator().manual_seed(0))[:size].tolist()
    images = uncached.rows(rows)

    def trained(inputs: Inputs) -> Callable[[], object]:
        def train() -> None:
            vectors = backbone.context_of(inputs.rows(rows)).vectors
            step(replace(batch, inputs=vectors), False)

        return train

    actions = {
        "step with the cache": trained(cached),
        "step with the backbone": trained(uncached),
        "reading the files": lambda: uncached.rows(rows),
        "the backbone": lambda: backbone(images),
    }
    seconds: dict[str, list[float]] = {what: [] for what in actions}
    for _ in range(1 + REPEATS):  # the first is to warm up
        for what, action in actions.items():
            begin = time.process_time()  # other programs take the cores, too
            action()
            seconds[what].append(round(time.process_time() - begin, 4))
    return {what: values[1:] for what, values in seconds.items()}


def main(output: Path, settings: list[str]) -> None:
    size = composed(*settings).batch.images
    measured = []
    for name in BACKBONES:
        with tempfile.TemporaryDirectory() as folder:
            seconds = seconds_of(name, settings, Path(folder))
        measured.append({"backbone": name, "seconds": seconds})
        about = {"machine": describe_machine(CPU), "settings": settings, "images": size}
        write_json(output, {**about, "measured": measured})
        for what, values in seconds.items():
            middle = statistics.median(values)
            spread = (max(values) - min(values)) / middle
            rate = f"{size / middle:.3g} images a CPU second"
            print(f"{name}: {what}: {middle:.3f} s ({spread:.0%}), {rate}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
