"""The precision of a run: as set, or for `auto` the one that suits the machine."""

import logging

import torch
from omegaconf import DictConfig

from captioning.errors import CaptioningError
from captioning.machine import has_bfloat16, is_first

AUTO = "auto"

log = logging.getLogger(__name__)


def check_precision(config: DictConfig) -> None:
    """Refuse an accelerator that is not there, and a precision that it or the optimiser cannot have."""
    precision, accelerator = str(config.trainer.precision), config.trainer.accelerator
    if accelerator in ("gpu", "cuda") and not torch.accelerator.is_available():
        raise CaptioningError(
            f"trainer.accelerator={accelerator}, and PyTorch finds no GPU here; use trainer=cpu or trainer=auto"
        )
    if _device(config.trainer).type == "cpu" and precision.startswith("16"):
        raise CaptioningError(f"trainer.precision={precision} needs a GPU; on a CPU use 32-true or bf16-mixed")
    if precision == "16-mixed" and config.trainer.gradient_clip_val and config.optimizer.get("fused"):
        raise CaptioningError(
            "trainer.precision=16-mixed scales the loss, and a fused optimizer hides the true gradients from "
            "trainer.gradient_clip_val: use bf16-mixed or optimizer.fused=false"
        )


def precision_of(trainer: DictConfig) -> str:
    """`trainer.precision`; of `auto` bf16-mixed where the device multiplies bfloat16 in hardware, else 32-true."""
    if trainer.precision != AUTO:
        return str(trainer.precision)
    return "bf16-mixed" if has_bfloat16(_device(trainer)) else "32-true"


def tell_precision(trainer: DictConfig, used: str) -> None:
    """Log what `auto` has become, and warn of slow bfloat16; the run in `used` may have begun on another machine."""
    if not is_first():
        return
    device = _device(trainer)
    fast, kind = has_bfloat16(device), "CPU" if device.type == "cpu" else "GPU"
    hardware = f"this {kind} {'multiplies' if fast else 'does not multiply'} bfloat16 in hardware"
    since = "with which this run began" if used != precision_of(trainer) else f"from trainer.precision={AUTO}"
    if used.startswith("bf16") and not fast:
        log.warning("%s: %s is many times slower than 32-true; a new run takes trainer.precision=auto", hardware, used)
    if trainer.precision == AUTO:
        log.info("precision: %s, %s; %s", used, since, hardware)


def _device(trainer: DictConfig) -> torch.device:
    elsewhere = trainer.accelerator != "cpu" and torch.accelerator.is_available()
    return (torch.accelerator.current_accelerator() if elsewhere else None) or torch.device("cpu")
