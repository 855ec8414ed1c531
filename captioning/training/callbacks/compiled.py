"""`torch.compile` for the networks that are trained."""

import os
import shutil
from typing import cast

import lightning as L
from torch import nn

from captioning.errors import CaptioningError
from captioning.training.module import CaptioningModule


class Compile(L.Callback):
    """Compiles what the loss is computed by: the model's forward pass, and the backbone's where it is trained.

    Decoding stays as it is. Batches of other sizes go through the same code, so that it is compiled once.
    """

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """In place: parameters keep their names.

        Raises:
            CaptioningError: there is no compiler.
        """
        assert isinstance(pl_module, CaptioningModule)
        compiler = os.environ.get("CXX", "g++")
        if pl_module.device.type == "cpu" and not shutil.which(compiler):
            raise CaptioningError(
                f"callbacks=compiled needs a C++ compiler, and there is no {compiler}: install g++, name another in "
                "the environment variable CXX, or leave callbacks=default"
            )
        cast(nn.Module, pl_module.model).compile(dynamic=True)
        if pl_module.backbone.trainable:
            pl_module.backbone.compile(dynamic=True)
