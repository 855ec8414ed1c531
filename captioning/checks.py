"""Combinations of settings that cannot work, refused before anything is computed."""

import warnings

import torch
from omegaconf import DictConfig

from captioning.errors import CaptioningError
from captioning.metrics.scorer import METRICS


def check(config: DictConfig) -> None:
    """Refuses what a run would only stumble over later.

    Raises:
        CaptioningError: names both settings and what to change.
    """
    _check_lengths(config)
    _check_monitor(config)
    _check_precision(config)


def _check_lengths(config: DictConfig) -> None:
    limit = config.model.get("max_tokens")
    if limit is None:
        return
    if config.data.max_words + 1 > limit:
        raise CaptioningError(
            f"data.max_words={config.data.max_words} makes inputs of {config.data.max_words + 1} tokens (BOS included), "
            f"and model.max_tokens={limit} reads no more than {limit}: set model.max_tokens={config.data.max_words + 1} "
            f"or data.max_words={limit - 1}"
        )
    if config.decoding.max_length > limit:
        raise CaptioningError(
            f"decoding.max_length={config.decoding.max_length} needs a model that reads as many tokens, and "
            f"model.max_tokens={limit}: set decoding.max_length={limit} or less"
        )


def _check_monitor(config: DictConfig) -> None:
    monitor = str(config.callbacks.checkpoint.monitor)
    chosen = list(config.metrics.val)
    known = [f"val/BLEU-{n}" for n in range(1, 5)] if "BLEU" in chosen else []
    known += [f"val/{name}" for name in METRICS if name in chosen and name != "BLEU"]
    if monitor not in known:
        raise CaptioningError(
            f"callbacks.checkpoint.monitor={monitor} is not computed with metrics.val={chosen}; "
            f"choose one of {', '.join(known)}, or add its metric"
        )


def _check_precision(config: DictConfig) -> None:
    precision = str(config.trainer.precision)
    accelerator = config.trainer.accelerator
    on_cpu = accelerator == "cpu" or (accelerator == "auto" and not torch.cuda.is_available())
    if on_cpu and precision.startswith("16"):
        raise CaptioningError(f"trainer.precision={precision} needs a GPU; on a CPU use 32-true or bf16-mixed")
    if on_cpu and precision.startswith("bf16") and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        warnings.warn(
            f"this CPU has no bfloat16 instructions: trainer.precision={precision} will run many times slower than "
            "32-true",
            stacklevel=2,
        )
