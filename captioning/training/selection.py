"""Choose the weights and the width of the beam on the validation split, after training."""

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from lightning import LightningDataModule, Trainer
from lightning.pytorch.callbacks import ProgressBar

from captioning.errors import CaptioningError
from captioning.runs.checkpoints.checkpoint import read_checkpoint, write_checkpoint
from captioning.training.callbacks.resume import ResumePoints
from captioning.training.module import CaptioningModule

log = logging.getLogger(__name__)


def select(
    trainer: Trainer,
    module: CaptioningModule,
    data: LightningDataModule,
    widths: Sequence[int] | None,
    test: bool,
    earlier: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Load the best weights, and choose the best (first) of several beam widths.

    Returns `best`, the validation score of the weights (None without validation), and `widths`, the
    score of each. For a trial that was trained before and is only tested now, this is `earlier`.
    """
    checkpoint: Any = trainer.checkpoint_callback
    if widths or test:
        load_best(module, trainer)
    if earlier:
        for width, score in earlier.get("widths", {}).items():
            if score == earlier["best"]:
                use_width(module, int(width))
                break
        return dict(earlier)
    if not widths:
        best = checkpoint.best_model_score
        return {"best": None if best is None else float(best)}
    log.info("choosing the beam width on validation: %s", ", ".join(map(str, widths)))
    scores, quantiles, search = {}, {}, module.search
    every, trainer.loggers, loggers = trainer.callbacks, [], trainer.loggers  # type: ignore[attr-defined]
    # other callbacks would count these validations as part of training
    trainer.callbacks = [c for c in every if isinstance(c, ProgressBar | ResumePoints)]  # type: ignore[attr-defined]
    for width in widths:
        module.search = partial(search, width=width)  # type: ignore[call-arg]
        trainer.validate(module, data, verbose=False)
        scores[width] = module.latest["val"].corpus[checkpoint.monitor.removeprefix("val/")]
        quantiles[width] = module.quantiles
    trainer.callbacks, trainer.loggers, module.search = every, loggers, search  # type: ignore[attr-defined]
    chosen = (max if checkpoint.mode == "max" else min)(widths, key=scores.__getitem__)
    use_width(module, chosen)
    if trainer.is_global_zero:
        tried = ", ".join(f"{width}: {value:.1f}" for width, value in scores.items())
        log.info("beam width %d has the best %s (%s)", chosen, checkpoint.monitor, tried)
        path = Path(checkpoint.best_model_path)
        saved = read_checkpoint(path)
        saved["captioning"]["config"]["decoding"]["width"] = chosen
        saved["captioning"]["quantiles"] = quantiles[chosen]
        write_checkpoint(path, saved)
    trainer.strategy.barrier()
    return {"best": scores[chosen], "widths": scores}


def load_best(module: CaptioningModule, trainer: Trainer) -> None:
    """Load the weights of the best checkpoint."""
    # trainer.test(ckpt_path="best") would also restore callbacks: the stopwatch to the time of that
    # checkpoint, and averaged weights to those that training continues from
    path = trainer.strategy.broadcast(trainer.checkpoint_callback.best_model_path)  # type: ignore[union-attr]
    if not path:
        raise CaptioningError(
            "no validation took place, so there is no best checkpoint to test: set test=false"
        )
    module.load_state_dict(read_checkpoint(Path(path))["state_dict"])


def use_width(module: CaptioningModule, width: int) -> None:
    """Set the beam width of the module and of its checkpoints."""
    module.search = partial(module.search, width=width)  # type: ignore[call-arg]
    module.stored.plain["decoding"]["width"] = width
