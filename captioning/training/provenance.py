"""Where a run's numbers come from."""

from typing import Any

import lightning as L

from captioning.runs.software import device_name, software
from captioning.training.callbacks.stopwatch import Stopwatch
from captioning.training.module import CaptioningModule


def provenance(trainer: L.Trainer) -> dict[str, Any]:
    """The origin of the run that `trainer` tests, its decoding and its times."""
    stopwatch = next((c for c in trainer.callbacks if isinstance(c, Stopwatch)), None)  # type: ignore[attr-defined]
    module = trainer.lightning_module
    assert isinstance(module, CaptioningModule)
    return origin(trainer) | {
        "decoding": module.config["decoding"],
        **module.objective.origin(),
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
