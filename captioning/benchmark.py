"""Measures speed on this machine: `python -m captioning.benchmark`.

Training in captions/s and as a share of the machine's own matrix-multiply peak, decoding in images/s. Peak and step
are timed in turn, so that what else the machine does falls on both.

B images, N captions per image, C prediction steps, L context vectors of D features.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import hydra
import torch
from hydra.utils import instantiate
from omegaconf import DictConfig
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from captioning.backbones.context import ContextSet
from captioning.command import CONF, start
from captioning.data.batch import Batch, collate
from captioning.decoding import FORBIDDEN, beam_search, greedy
from captioning.devices import has_bfloat16
from captioning.tokens import EOS
from captioning.training.objectives import Draws

DTYPES = {"32-true": torch.float32, "bf16-mixed": torch.bfloat16}
PEAK_SIZE = 2048
NO_END = (*FORBIDDEN, EOS)
"""Forbidden in decoding, so that every caption has the full length."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of repeated runs."""

    seconds: list[float]

    @property
    def median(self) -> float:
        """Seconds of the middle run."""
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """(slowest - fastest) / median."""
        return (max(self.seconds) - min(self.seconds)) / self.median


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="benchmark")
def main(config: DictConfig) -> None:
    """Prints one line per measurement."""
    cuda = config.device == "cuda" or (config.device == "auto" and torch.cuda.is_available())
    device = torch.device("cuda" if cuda else "cpu")
    torch.manual_seed(0)
    grid = tuple(config.context.grid)
    model = instantiate(config.model, vocab_size=config.vocab_size, d_context=config.context.features, grid=grid)
    model.to(device)
    batch = random_batch(config).to(device)
    where = torch.cuda.get_device_name() if cuda else f"CPU, {torch.get_num_threads()} threads"
    print(f"{where}; {sum(p.numel() for p in model.parameters()):,} parameters; median of {config.repeats} (spread)")
    for precision in config.precisions:
        if DTYPES[precision] is torch.bfloat16 and not has_bfloat16(device):
            print(f"training, {precision:<11} left out: this CPU has no bfloat16 instructions")
            continue
        print(f"training, {precision:<11}" + measure_training(config, model, batch, grid, precision))
    for name, search in (
        ("greedy", partial(greedy, max_length=config.beam.max_length, forbidden=NO_END)),
        (f"beam {config.beam.width}", partial(beam_search, **config.beam, forbidden=NO_END)),
    ):
        print(f"decoding, {name:<11}" + measure_decoding(config, model, batch, grid, search))


def random_batch(config: DictConfig) -> Batch:
    """Unit-scale features and captions of evenly drawn lengths and words."""
    shortest, longest = config.batch.words
    b, n = config.batch.images, config.batch.captions
    lengths = torch.randint(shortest, longest + 1, (b, n))
    captions = [[torch.randint(4, config.vocab_size, (int(k),)).tolist() for k in row] for row in lengths]
    positions = config.context.grid[0] * config.context.grid[1]
    return collate(range(b), torch.randn(b, positions, config.context.features), captions)


def measure_training(config: DictConfig, model: nn.Module, batch: Batch, grid: tuple[int, int], precision: str) -> str:
    """Forward, backward and optimiser step."""
    objective, optimizer = instantiate(config.objective), instantiate(config.optimizer)(model.parameters())
    model.train()
    device, draws = batch.tokens.device, Draws(0, 0, batch.index)

    def step() -> None:
        context = ContextSet(batch.inputs, grid)
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16-mixed"):
            loss = objective(model, context, batch.sources, batch.targets, batch.word_index, draws)
        (loss.total / len(batch.word_index)).backward()
        optimizer.step()
        optimizer.zero_grad()

    with FlopCounterMode(display=False) as counter:
        step()
    flops = counter.get_total_flops()
    matrix = torch.randn(PEAK_SIZE, PEAK_SIZE, device=device).to(DTYPES[precision])
    steps, peaks = timed((step, lambda: matrix @ matrix), config.repeats, device)
    peak = 2 * PEAK_SIZE**3 / peaks.median
    rate = flops / steps.median
    captions = config.batch.images * config.batch.captions / steps.median
    return (
        f"{captions:8.1f} captions/s ({steps.spread:.0%}), {rate / 1e9:,.0f} of {peak / 1e9:,.0f} GFLOP/s "
        f"= {rate / peak:.0%} of the matrix-multiply peak"
    )


@torch.no_grad()
def measure_decoding(
    config: DictConfig,
    model: nn.Module,
    batch: Batch,
    grid: tuple[int, int],
    search: Callable[[nn.Module, ContextSet], object],
) -> str:
    """Encoding and search, every caption to the full length."""
    model.eval()
    context = ContextSet(batch.inputs, grid)
    (timing,) = timed((lambda: search(model, context),), config.repeats, batch.tokens.device)
    return f"{config.batch.images / timing.median:8.1f} images/s ({timing.spread:.0%})"


def timed(actions: tuple[Callable[[], object], ...], repeats: int, device: torch.device) -> Iterator[Timing]:
    """Runs the actions in turn, after one warm-up each."""

    def seconds(action: Callable[[], object]) -> float:
        begin = time.perf_counter()
        action()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - begin

    rounds = [[seconds(action) for action in actions] for _ in range(repeats + 1)][1:]
    return iter(Timing(list(column)) for column in zip(*rounds, strict=True))


if __name__ == "__main__":
    start(main)
