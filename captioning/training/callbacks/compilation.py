"""Training with `torch.compile`."""

import os
import shutil
from typing import Any, Literal

import torch
from lightning import Callback, Trainer

from captioning.config.types import validated
from captioning.errors import CaptioningError

LENGTHS = 64
"""Lengths of captions that a recurrent decoder is compiled for; longer training captions are rare.
"""


class Compile(Callback):
    """Compile the training forward passes, in place: the model and a trainable backbone.

    Decoding is not compiled. Shapes are dynamic, so that batches of other sizes do not recompile; a
    recurrent decoder is one graph of all its steps, compiled for each length of captions.

    Args:
        mode: of `torch.compile`; `reduce-overhead` replays the kernels of a step as a CUDA graph,
            for each size of batches.
    """

    @validated
    def __init__(self, mode: Literal["default", "reduce-overhead", "max-autotune"] = "default"):
        self.mode = mode

    def on_fit_start(self, trainer: Trainer, pl_module: Any) -> None:
        compiler = os.environ.get("CXX", "g++")
        if pl_module.device.type == "cpu" and not shutil.which(compiler):
            raise CaptioningError(
                f"callbacks=compiled needs a C++ compiler, and there is no {compiler}: install "
                "g++, set the environment variable CXX to another compiler, or use "
                "callbacks=default"
            )
        # beyond the limit PyTorch would stop compiling
        torch._dynamo.config.recompile_limit = max(LENGTHS, torch._dynamo.config.recompile_limit)
        pl_module.model.compile(dynamic=True, mode=self.mode)
        if pl_module.backbone.trainable:
            pl_module.backbone.compile(dynamic=True, mode=self.mode)
