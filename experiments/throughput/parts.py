"""Training steps and decoding, from features in memory."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from captioning.backbones.context import ContextSet
from captioning.decoding import FORBIDDEN, beam_search, greedy
from captioning.errors import CaptioningError
from captioning.files import markdown_table, write_json
from captioning.machine import get_device, has_bfloat16
from captioning.tokens import EOS
from experiments.throughput import material
from experiments.throughput.measure import (
    DTYPES,
    Measurement,
    Variants,
    describe_machine,
    measure_alone,
)
from experiments.throughput.naive import naive_beam

NO_END = (*FORBIDDEN, EOS)  # never generated, so that every caption has the full length


def training(config: DictConfig) -> Iterator[Measurement]:
    """A step in each precision in which this machine is fast."""
    images, captions = config.batch.images, config.batch.captions
    for precision in config.precisions:
        if precision == "bf16-mixed" and not has_bfloat16(get_device(config.device)):
            print(f"training, {precision}: left out, as this CPU is slower in bfloat16")
            continue
        name = f"training, {precision}, {images} x {captions} captions"
        build = partial(training_variants, config, precision)
        yield measure_alone(name, "captions", build, config.repeats)


def training_variants(config: DictConfig, precision: str) -> Variants:
    device, step = get_device(config.device), material.training_step(config, precision)
    images, captions = config.batch.images, config.batch.captions
    batch = material.random_batch(config, images, captions).to(device)
    amounts = (images * captions, images * captions)
    ours, naive = partial(step, batch, False), partial(step, batch, True)
    return Variants(ours, naive, amounts, device, DTYPES[precision])


def decoding(config: DictConfig) -> Iterator[Measurement]:
    """Each width at each batch size; the naive search takes one image at a time."""
    for width in config.search.widths:
        search = "greedy" if width == 1 else f"beam {width}"
        for images in config.search.batches:
            build = partial(decoding_variants, config, width, images)
            name = f"decoding, {search}, {images} images"
            yield measure_alone(name, "images", build, config.repeats)


def decoding_variants(
    config: DictConfig, width: int, images: int, precision: str = "32-true"
) -> Variants:
    device, length = get_device(config.device), config.search.max_length
    model: Any = material.built_model(config).eval()
    vectors = material.random_batch(config, images, captions=1).inputs.to(device)
    context = ContextSet(vectors, tuple(config.context.grid))
    first = ContextSet(vectors[:1], tuple(config.context.grid))
    search: Callable[..., object] = greedy if width == 1 else partial(beam_search, width=width)
    autocast = partial(
        torch.autocast, device.type, torch.bfloat16, enabled=precision == "bf16-mixed"
    )

    def ours() -> None:
        with autocast():
            search(model, context, max_length=length, forbidden=NO_END)

    def naive() -> None:
        with autocast():
            naive_beam(model, first, width, length, NO_END)

    return Variants(ours, naive, (images, 1), device, DTYPES[precision])


PARTS = {"training": training, "decoding": decoding}


def run_benchmark(config: DictConfig) -> None:
    """Measure the parts one by one; print and write the measurements as they come."""
    device = get_device(config.device)
    output = None if config.output is None else Path(config.output)
    if output is not None and not output.absolute().parent.is_dir():
        raise CaptioningError(f"output={output} cannot be written: its folder does not exist")
    machine = describe_machine(device)
    print("; ".join(f"{name} {value}" for name, value in machine.items()))
    settings = OmegaConf.to_container(config, resolve=True)
    measurements: list[Measurement] = []
    for part in config.parts:
        for measurement in PARTS[part](config):
            measurements.append(measurement)
            print("; ".join(filter(None, measurement.cells().values())), flush=True)
            if output is not None:
                rows = [row.as_dict() for row in measurements]
                write_json(output, {"settings": settings, "machine": machine, "measurements": rows})
    if measurements:
        rows_of_cells = [tuple(row.cells().values()) for row in measurements]
        print(f"\n{markdown_table(tuple(measurements[0].cells()), rows_of_cells)}")
