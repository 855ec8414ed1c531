"""Decoding in images/s: from features to captions of the full length, encoding included."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from omegaconf import DictConfig

from captioning.backbones.context import ContextSet
from captioning.benchmark.built import built_model, chosen_device
from captioning.benchmark.compare import Comparison, compare, peak_after
from captioning.benchmark.material import random_batch
from captioning.benchmark.measurement import Measurement
from captioning.benchmark.naive import naive_beam
from captioning.benchmark.processes import isolated
from captioning.benchmark.timing import Run
from captioning.decoding import FORBIDDEN, beam_search, greedy
from captioning.tokens import EOS

NO_END = (*FORBIDDEN, EOS)
"""Never generated, so that every caption has the full length."""


def measure(config: DictConfig) -> Iterator[Measurement]:
    """Each width at each batch size, the naive search one image at a time; then memory by the number of batches."""
    for width in config.search.widths:
        naive_peak = isolated(_peak, config, width, 1, 1, naive=True)
        for images in config.search.batches:
            found = isolated(_compared, config, width, images)
            ours, naive = Run(images, found.ours), Run(1, found.naive)
            name = f"{_name(width)}, batch {images}"
            yield Measurement("decoding", name, "images", ours, naive, found.ceiling, found.peak, naive_peak)
    width, images, few, many = (config.memory[key] for key in ("width", "images", "few_batches", "many_batches"))
    peaks = {batches: isolated(_peak, config, width, images, batches, naive=False) for batches in (few, many)}
    before, after = peaks[few], peaks[many]
    note = f"after {many} batches; {before / 1e9:.2f} GB after {few}" if before else ""
    raw: dict[str, float | list[float] | None] = {f"peak after {n} batches": peak for n, peak in peaks.items()}
    yield Measurement("decoding", f"{_name(width)}, batch {images}, memory alone", peak=after, note=note, raw=raw)


def _name(width: int) -> str:
    return "greedy" if width == 1 else f"beam {width}"


def _compared(config: DictConfig, width: int, images: int) -> Comparison:
    ours = _action(config, width, images, naive=False)
    return compare(ours, _action(config, width, 1, naive=True), torch.float32, config.repeats, chosen_device(config))


def _peak(config: DictConfig, width: int, images: int, batches: int, naive: bool) -> int | None:
    return peak_after(_action(config, width, images, naive), chosen_device(config), batches)


def _action(config: DictConfig, width: int, images: int, naive: bool) -> Callable[[], object]:
    model = built_model(config).eval()
    vectors = random_batch(config, images, captions=1).inputs.to(chosen_device(config))
    context, length = ContextSet(vectors, tuple(config.context.grid)), config.search.max_length
    if naive:
        return partial(naive_beam, model, context, width, length, NO_END)  # type: ignore[arg-type]
    if width == 1:
        return partial(greedy, model, context, length, NO_END)  # type: ignore[arg-type]
    return partial(beam_search, model, context, width, length, forbidden=NO_END)  # type: ignore[arg-type]
