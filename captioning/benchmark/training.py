"""Training in captions/s: forward, backward and optimiser step on features in memory.

B images, N captions per image.
"""

from collections.abc import Iterator
from functools import partial

from omegaconf import DictConfig

from captioning.benchmark.built import TrainingStep, chosen_device
from captioning.benchmark.ceilings import DTYPES
from captioning.benchmark.compare import Comparison, compare, peak_after
from captioning.benchmark.material import random_batch
from captioning.benchmark.measurement import Measurement
from captioning.benchmark.processes import isolated
from captioning.benchmark.timing import Run
from captioning.machine import has_bfloat16

NO_BFLOAT16 = "left out: this CPU has no bfloat16 instructions"


def measure(config: DictConfig) -> Iterator[Measurement]:
    """Each precision, then the memory of a large batch."""
    images, captions = config.batch.images, config.batch.captions
    for precision in config.precisions:
        name = f"{precision}, {images} x {captions} captions"
        if precision == "bf16-mixed" and not has_bfloat16(chosen_device(config)):
            yield Measurement("training", name, note=NO_BFLOAT16)
            continue
        found = isolated(_compared, config, precision)
        ours, naive = (Run(images * captions, seconds) for seconds in (found.ours, found.naive))
        naive_peak = isolated(_peak, config, precision, images, naive=True)
        yield Measurement("training", name, "captions", ours, naive, found.ceiling, found.peak, naive_peak)
    largest, precision = config.memory.training_images, config.precisions[0]
    peak = isolated(_peak, config, precision, largest, naive=False)
    yield Measurement("training", f"{precision}, {largest} x {captions} captions, memory alone", peak=peak)


def _compared(config: DictConfig, precision: str) -> Comparison:
    device, step = chosen_device(config), TrainingStep.built(config, precision)
    batch = random_batch(config, config.batch.images, config.batch.captions).to(device)
    return compare(partial(step, batch), partial(step, batch, naive=True), DTYPES[precision], config.repeats, device)


def _peak(config: DictConfig, precision: str, images: int, naive: bool) -> int | None:
    device, step = chosen_device(config), TrainingStep.built(config, precision)
    return peak_after(partial(step, random_batch(config, images, config.batch.captions).to(device), naive), device)
