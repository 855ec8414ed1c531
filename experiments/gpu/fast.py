"""Training steps and decoding of the systems of Table 1 from features in memory: `python fast.py
FILE`.
"""

import argparse
import gc
import multiprocessing
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from cases import Rows, at_once, in_turn
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from captioning.backbones.context import ContextSet
from captioning.benchmark.material import built_model, random_batch, training_step
from captioning.benchmark.measure import DTYPES, Measurement, Variants, flop, measured
from captioning.benchmark.naive import naive_beam
from captioning.benchmark.parts import NO_END
from captioning.config.registry import CONF
from captioning.decoding import beam_search, greedy

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
"""Sizes of `conf/benchmark.yaml`: 196 x 512 features, 10,000 words, 5 captions an image."""
SMALL: dict[str, Any] = {
    "systems": ["spatial_transformer", "sat_hard"],
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


def measure(case: dict[str, Any]) -> dict[str, Any]:
    """The numbers of a case, in this process."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        size = [
            f"device={case['device']}",
            f"model={case['system']}",
            f"batch.images={case['images']}",
        ]
        config = compose("benchmark", [*size, *case["settings"]])
    compiled, decodes = case["what"] == "compiled", case["what"] in WIDTHS
    torch.set_float32_matmul_precision("high" if case["precision"] == "tf32" else "highest")
    images = case["images"]
    amount = images if decodes else images * config.batch.captions
    if compiled:
        build = partial(_compiled, config)
    else:
        build = (
            partial(_decoding, config, WIDTHS[case["what"]])
            if decodes
            else partial(_training, config, case)
        )
    begin = time.perf_counter()
    variants = build()
    seconds = time.perf_counter() - begin
    row = Measurement(case["what"], case["system"], "images" if decodes else "captions")
    with TURN:
        found = measured(row, variants, (amount, 1 if decodes else amount), case["repeats"])
    del variants
    gc.collect()
    if case["device"] == "cuda":
        torch.cuda.empty_cache()
    assert found.ours is not None
    assert found.ceiling is not None
    numbers = {
        "seconds": found.ours.median,
        "spread": found.ours.spread,
        f"{found.unit}/s": found.ours.rate,
        "share of the peak": found.share,
        "peak TFLOP/s": found.ceiling.per_second / 1e12,
        "memory GB": None if found.peak is None else found.peak / 1e9,
        "naive/s": found.naive and found.naive.rate,
        "times naive": found.ratio,
        "naive memory GB": None if found.naive_peak is None else found.naive_peak / 1e9,
    }
    return numbers | ({"seconds to compile": seconds} if compiled else {})


def _training(config: DictConfig, case: dict[str, Any]) -> Variants:
    precision = (
        "bf16-mixed" if case["precision"] == "bf16-mixed" else "32-true"
    )  # TF32 is a mode of the latter
    batch = random_batch(config, config.batch.images, config.batch.captions).to(config.device)
    step = training_step(config, precision)
    return Variants(
        partial(step, batch, False),
        partial(step, batch, True),
        batch.inputs.device,
        DTYPES[precision],
    )


def _compiled(config: DictConfig) -> Variants:
    """The step after it was compiled; its floating-point operations are those of the step that is
    not.
    """
    batch = random_batch(config, config.batch.images, config.batch.captions).to(config.device)
    step = partial(training_step(config, "bf16-mixed"), batch, False)
    work = flop(step)
    backend = "inductor" if config.device == "cuda" else "eager"  # a CPU's compiler takes minutes
    step = partial(training_step(config, "bf16-mixed", backend), batch, False)
    step()
    return Variants(step, None, batch.inputs.device, torch.bfloat16, work)


def _decoding(config: DictConfig, width: int) -> Variants:
    """A search over features in memory, without an end of a caption, so that each has the full
    length.
    """
    model, length = built_model(config).eval(), config.search.max_length
    vectors, grid = (
        random_batch(config, config.batch.images, 1).inputs.to(config.device),
        tuple(config.context.grid),
    )
    search = greedy if width == 1 else partial(beam_search, width=width)
    every, one = ContextSet(vectors, grid), ContextSet(vectors[:1], grid)

    def ours() -> None:
        with torch.autocast(config.device, torch.bfloat16):  # as in a run's validation
            search(model, every, max_length=length, forbidden=NO_END)

    def naive() -> None:
        with torch.autocast(config.device, torch.bfloat16):
            naive_beam(model, one, width, length, NO_END)

    return Variants(ours, naive, vectors.device, torch.bfloat16)


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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--size", choices=["published", "small"], default="published")
    parser.add_argument("--seconds", type=float, default=120.0)
    given = parser.parse_args()
    deadline = time.monotonic() + given.seconds
    rows = Rows(given.file)
    eager, compiled = cases_of(PUBLISHED if given.size == "published" else SMALL, given.device)
    method = method_of_processes(given.device)
    if method is None:
        rows.add({"what": "probe", "error": f"device {given.device} cannot be used"})
        sys.exit(1)
    for row in in_turn(measure, eager, SECONDS, deadline, method):
        rows.add(without_settings(row))
    for row in at_once(measure, compiled, deadline, method):
        rows.add(without_settings(row))


def without_settings(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in ("settings", "repeats")}


if __name__ == "__main__":
    main()
