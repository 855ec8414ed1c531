"""Where a run's numbers come from."""

import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import lightning as L
import torch

from captioning.training.callbacks.stopwatch import Stopwatch
from captioning.training.module import CaptioningModule

PACKAGES = ("captioning", "torch", "torchvision", "lightning", "torchmetrics", "pycocoevalcap")


def provenance(trainer: L.Trainer) -> dict[str, Any]:
    """The origin of the run that `trainer` tests, its decoding and its times."""
    stopwatch = next((c for c in trainer.callbacks if isinstance(c, Stopwatch)), None)  # type: ignore[attr-defined]
    module = trainer.lightning_module
    assert isinstance(module, CaptioningModule)
    return origin(trainer) | {
        "decoding": module.config["decoding"],
        "seconds_trained": stopwatch and stopwatch.trained,
        "seconds_to_best": stopwatch and stopwatch.to_best,
    }


def origin(trainer: L.Trainer) -> dict[str, Any]:
    """What is known before the first step: commit, versions, data digest, tokenizer, sizes and device."""
    module = trainer.lightning_module
    return software() | {
        "data_digest": trainer.datamodule.digest(),  # type: ignore[attr-defined]
        "parameters": {
            "trainable": sum(p.numel() for p in module.parameters() if p.requires_grad),
            "frozen": sum(p.numel() for p in module.parameters() if not p.requires_grad),
        },
        "device": device_name(trainer.strategy.root_device),
        "precision": trainer.precision,
        "processes": trainer.world_size,
    }


def software() -> dict[str, Any]:
    """What any score depends on: commit, versions and tokenizer."""
    return {
        "commit": commit(),
        "versions": {"python": platform.python_version()} | {name: version(name) for name in PACKAGES},
        "tokenizer": "PTB (Stanford CoreNLP 3.4.1, as in pycocoevalcap)",
    }


def commit() -> str | None:
    """The git commit of this package, with `+` where the working tree differs; None outside a checkout."""

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(Path(__file__).parent), *arguments], check=True, capture_output=True, text=True
        ).stdout.strip()

    try:
        # a wheel installed below somebody else's checkout is not of that checkout
        git("ls-files", "--error-unmatch", __file__)
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def device_name(device: torch.device) -> str:
    """The GPU's, or the processor's with the number of threads."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads"
