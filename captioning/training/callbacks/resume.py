"""Checkpoints for exact resume: their files, and when they are saved."""

import math
import signal
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import torch
from lightning import Callback, LightningModule, Trainer
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO

from captioning.config.settings import Settings
from captioning.config.types import PositiveInt, UserPath, validated
from captioning.errors import CaptioningError, Stopped
from captioning.files import writing
from captioning.machine import all_gather_object, on_signal
from captioning.runs.checkpoints.checkpoint import Content, read_checkpoint, write_checkpoint
from captioning.runs.folders.folder import in_sweep, resume_command
from captioning.runs.folders.record import record_progress
from captioning.runs.settings import relocate
from captioning.training.loggers.metrics_file import MetricsFile

SHARED = ("seed", "data", "backbone", "model", "objective", "optimizer", "schedule")
"""Settings that all processes of a run must share."""
ASK_EVERY = 20
"""Batches between two checks for signals among processes, which synchronise them."""


class CheckpointFiles(TorchCheckpointIO):
    """Checkpoints with a digest, of tensors and plain values.

    `previous.ckpt` is the `last.ckpt` before the present.
    """

    def save_checkpoint(self, checkpoint: Content, path: str | Path, *_: Any, **__: Any) -> None:
        target = Path(path)
        with writing(target):
            target.parent.mkdir(exist_ok=True)  # in a run folder that still has this name
        before = target.with_name("previous.ckpt") if target.name == "last.ckpt" else None
        write_checkpoint(target, checkpoint, keep=before)

    def load_checkpoint(self, path: str | Path, *_: Any, **__: Any) -> Content:
        return read_checkpoint(Path(path))


class ResumePoints(Callback):
    """Save `last.ckpt`, from which `resume=true` continues to the same result, bit for bit.

    It is saved between two batches, where weights, optimiser, schedule, averages and the
    objective's state are consistent and no gradient is pending: every `every_n_steps` optimiser
    steps, before the last batch of an epoch (so that an interrupted validation costs one step) and
    at the end. SIGTERM and Ctrl-C save and stop the run; a second signal stops it at once. A
    non-finite loss or weights stop the run and are never saved.

    It must be the first callback: after resuming, later callbacks repeat their actions at the start
    of a batch.
    """

    _saved = 0
    _signal: int | None = None
    _finished = _saving = False

    @validated
    def __init__(self, folder: UserPath, every_n_steps: PositiveInt):
        self.path, self.every_n_steps = folder / "last.ckpt", every_n_steps
        self._signals = ExitStack()

    def state_dict(self) -> dict[str, bool]:
        return {"finished": self._finished}  # only the test is left

    def load_state_dict(self, state_dict: dict[str, bool]) -> None:
        self._finished = state_dict["finished"]

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: Content
    ) -> None:
        self._saved = checkpoint["global_step"]
        # the best checkpoint is in this folder, even if the run has moved
        here = str(self.path.parent.resolve())
        for name, state in checkpoint["callbacks"].items():
            if name.startswith("ModelCheckpoint"):
                before, best = state["dirpath"], state["best_k_models"]
                moved = relocate(state, before, here)
                moved["best_k_models"] = {relocate(p, before, here): best[p] for p in best}
                checkpoint["callbacks"][name] = moved

    def on_fit_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Skip a finished training; remove values logged after the checkpoint."""
        if trainer.world_size > 1:
            self._check_settings(pl_module.stored)
        trainer.should_stop = self._finished
        for logger in trainer.loggers:
            if isinstance(logger, MetricsFile):
                logger.keep(before=self._saved)

    def on_train_start(self, trainer: Trainer, *_: Any) -> None:
        # Lightning's own handler of SIGTERM, which does not save, is in place by now.
        self._signals.enter_context(on_signal(partial(setattr, self, "_signal")))

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        # If saved directly after a validation, Lightning would repeat it on resuming.
        pending = batch_idx % trainer.accumulate_grad_batches
        if pending or batch_idx % (trainer.val_check_batch or 1) == 0:
            return
        last = batch_idx + trainer.accumulate_grad_batches >= trainer.num_training_batches
        stop = self._asked_to_stop(trainer, batch_idx)
        steps = trainer.global_step - self._saved
        if steps >= self.every_n_steps or (steps and (stop or last)):
            self._save(trainer)
        if stop:
            self._stop(trainer)

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        # only where the loss is read anyway
        logged = trainer.global_step % trainer.log_every_n_steps == 0  # type: ignore[attr-defined]
        if logged and not math.isfinite(trainer.callback_metrics["train/nll"]):
            self._refuse(trainer, "loss")

    def on_validation_start(self, trainer: Trainer, *_: Any) -> None:
        if trainer.state.fn == "fit":
            self._check_weights(trainer)
        else:
            self._signals.enter_context(on_signal(self._end))

    def on_validation_end(self, trainer: Trainer, *_: Any) -> None:
        if trainer.state.fn != "fit":
            self._signals.close()

    on_test_start, on_test_end = on_validation_start, on_validation_end  # type: ignore[assignment]

    def on_validation_batch_start(self, trainer: Trainer, *_: Any) -> None:
        # several processes may have different numbers of batches, so they stop after validation
        if self._signal and trainer.world_size == 1:
            self._stop(trainer)

    def on_train_end(self, trainer: Trainer, *_: Any) -> None:
        self._finished = True
        self._save(trainer)
        self._signals.close()
        if self._signal:
            self._stop(trainer)

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        self._signals.close()

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: Content
    ) -> None:
        # Count the batch about to start as not begun; Lightning's own bookkeeping would train it
        # twice.
        if self._saving and not self._finished:
            progress = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
            for counts in (progress["total"], progress["current"]):
                counts |= dict.fromkeys(("ready", "started", "processed"), counts["completed"])
            progress["is_last_batch"] = False

    def _save(self, trainer: Trainer) -> None:
        self._check_weights(trainer)
        self._saving = True
        trainer.save_checkpoint(self.path)
        self._saving, self._saved = False, trainer.global_step
        folder = Path(trainer.default_root_dir)
        record_progress(folder, self._saved, trainer.estimated_stepping_batches)

    def _check_weights(self, trainer: Trainer) -> None:
        norms = torch._foreach_norm([p.detach() for p in trainer.lightning_module.parameters()])
        if not torch.stack(norms).isfinite().all():
            self._refuse(trainer, "weights")

    def _refuse(self, trainer: Trainer, what: str) -> NoReturn:
        raise CaptioningError(
            f"not finite after {trainer.global_step} steps: the {what}. Checkpoints in "
            f"{self.path.parent} are from before. Start again with a lower optimizer.lr, a longer "
            "schedule.warmup_steps or trainer.gradient_clip_val=1.0"
        )

    def _check_settings(self, stored: Settings) -> None:
        own = {name: stored.plain.get(name) for name in SHARED} | {"step": self._saved}
        others = all_gather_object(own)
        if differing := [name for name in own if any(one[name] != own[name] for one in others)]:
            raise CaptioningError(
                f"the processes of this run differ in {', '.join(differing)}: they were started "
                f"with different settings, or see different files in {self.path.parent}, which "
                "must be a folder that all of them share"
            )

    def _asked_to_stop(self, trainer: Trainer, batch_idx: int) -> bool:
        if trainer.world_size == 1:
            return self._signal is not None
        if batch_idx % (ASK_EVERY * trainer.accumulate_grad_batches):
            return False
        return trainer.strategy.reduce_boolean_decision(self._signal is not None, all=False)

    def _stop(self, trainer: Trainer) -> NoReturn:
        number = self._signal or signal.SIGTERM  # that of another process
        self._end(number, f"{trainer.global_step} steps, and {self.path} has {self._saved} of them")

    def _end(self, number: int, after: str = "training, which is complete") -> NoReturn:
        again = "give the same command"
        if not in_sweep():
            again = resume_command(str(self.path.parent.parent))
        name = signal.Signals(number).name
        raise Stopped(f"\nstopped by {name} after {after}.\nTo continue: {again}", number)
