"""Training steps and decoding of the systems of Table 1 from features in memory: `python fast.py
FILE`.
"""

import gc
import multiprocessing
import sys
import time
from functools import partial
from typing import Any

import torch
from cases import Rows, at_once, in_turn, stage_arguments
from omegaconf import DictConfig

from experiments.throughput.material import composed, random_batch, training_step
from experiments.throughput.measure import Variants, count_flop, measure
from experiments.throughput.parts import decoding_variants, training_variants

PUBLISHED = {
    "systems": ["spatial_transformer", "sat_soft", "sat_hard"],
    "settings": [],
    "training": [
        ("bf16-mixed", 256),
        ("bf16-mixed", 64),
        ("bf16-mixed", 16),
        ("32-true", 64),
        ("tf32", 64),
    ],
    "compiled": [256],
    "decoding": [512, 64, 1],
    "repeats": 10,
}
"""Sizes of the benchmark: 196 x 512 features, 10,000 words, 5 captions an image."""
SMALL: dict[str, Any] = {
    "systems": ["sat_hard"],
    "settings": [
        "model.size=small",
        "vocab_size=50",
        "context.grid=[3,4]",
        "context.features=16",
        "batch.words=[3,6]",
        "model.dropout=0",
    ],
    "training": [("bf16-mixed", 3), ("tf32", 2)],
    "compiled": [3],
    "decoding": [2],
    "repeats": 2,
}
SECONDS = 30.0  # limit of a case
WIDTHS = {"greedy": 1, "beam 3": 3}
TURN = (
    multiprocessing.Lock()
)  # of compiled steps: compiled at the same time, timed one after the other


def cases_of(
    sizes: dict[str, Any], device: str
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The cases that are measured in turn, and those whose code is compiled first."""
    eager, compiled = [], []
    for system in sizes["systems"]:
        case = {
            "system": system,
            "settings": sizes["settings"],
            "device": device,
            "repeats": sizes["repeats"],
        }
        eager += [
            case | {"what": "training", "precision": p, "images": images}
            for p, images in sizes["training"]
        ]
        for what in WIDTHS:
            eager += [
                case | {"what": what, "precision": "bf16-mixed", "images": n}
                for n in sizes["decoding"]
            ]
        compiled += [
            case | {"what": "compiled", "precision": "bf16-mixed", "images": n}
            for n in sizes["compiled"]
        ]
    return eager, compiled


def measure_case(case: dict[str, Any]) -> dict[str, Any]:
    """The numbers of a case, in this process."""
    size = [f"device={case['device']}", f"batch.images={case['images']}"]
    config = composed(f"model={case['system']}", *size, *case["settings"])
    torch.set_float32_matmul_precision("high" if case["precision"] == "tf32" else "highest")
    precision = "bf16-mixed" if case["precision"] == "bf16-mixed" else "32-true"
    what, begin = case["what"], time.perf_counter()
    if what == "training":
        variants = training_variants(config, precision)
    elif what == "compiled":
        variants = compiled_variants(config)
    else:
        variants = decoding_variants(config, WIDTHS[what], case["images"], precision)
    seconds = time.perf_counter() - begin
    unit = "images" if what in WIDTHS else "captions"
    with TURN:
        measured = measure(case["system"], unit, lambda built=variants: built, case["repeats"])
    del variants
    gc.collect()
    if case["device"] == "cuda":
        torch.cuda.empty_cache()
    numbers = {
        "seconds": measured.ours.median,
        "spread": measured.ours.spread,
        f"{unit}/s": measured.ours.rate,
        "share of the peak": measured.share,
        "peak TFLOP/s": measured.peak / 1e12,
        "memory GB": measured.memory and measured.memory / 1e9,
        "naive/s": measured.naive and measured.naive.rate,
        "times naive": measured.ratio,
    }
    return numbers | ({"seconds to compile": seconds} if what == "compiled" else {})


def compiled_variants(config: DictConfig) -> Variants:
    """The step after it was compiled; its operations are those of the step that is not."""
    images, captions = config.batch.images, config.batch.captions
    batch = random_batch(config, images, captions).to(config.device)
    flop = count_flop(partial(training_step(config, "bf16-mixed"), batch, False))
    backend = "inductor" if config.device == "cuda" else "eager"  # a CPU's compiler takes minutes
    step = partial(training_step(config, "bf16-mixed", backend), batch, False)
    step()
    amounts = (images * captions, 0)
    return Variants(step, None, amounts, batch.inputs.device, torch.bfloat16, flop)


def method_of_processes(device: str) -> str | None:
    """`fork` where a forked process can use the device, which saves each its imports, or `spawn`;
    None: neither.
    """
    for method in ("fork", "spawn"):
        (result,) = in_turn(_probe, [{"device": device}], 60, time.monotonic() + 60, method)
        if "error" not in result:
            return method
    return None


def _probe(case: dict[str, Any]) -> dict[str, Any]:
    return {"sum": torch.ones(2, device=case["device"]).sum().item()}


def main() -> None:
    given = stage_arguments(__doc__, 120.0)
    deadline = time.monotonic() + given.seconds
    rows = Rows(given.file)
    eager, compiled = cases_of(PUBLISHED if given.size == "published" else SMALL, given.device)
    method = method_of_processes(given.device)
    if method is None:
        rows.add({"what": "probe", "error": f"device {given.device} cannot be used"})
        sys.exit(1)
    for row in in_turn(measure_case, eager, SECONDS, deadline, method):
        rows.add(without_settings(row))
    for row in at_once(measure_case, compiled, deadline, method):
        rows.add(without_settings(row))


def without_settings(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in ("settings", "repeats")}


if __name__ == "__main__":
    main()
