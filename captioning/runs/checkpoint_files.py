"""Checkpoint files: whole or not there, and read with distrust."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO

from captioning.errors import CaptioningError
from captioning.runs.checkpoint import read, sealed

PREVIOUS = "previous.ckpt"
"""The `last.ckpt` before the present one."""


class CheckpointFiles(TorchCheckpointIO):
    """Writes a checkpoint beside its name and then gives it the name, so that no moment has half of one.

    Where `last.ckpt` is replaced, the one before it stays as `previous.ckpt`.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Writes `checkpoint` to `path`.

        Raises:
            CaptioningError: the disk is full, or the folder cannot be written to; what was at `path` is unharmed.
        """
        target = Path(path)
        part = target.with_name(f"{target.name}.part")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                with part.open("wb") as file:
                    torch.save(sealed(checkpoint), file)
                    file.flush()
                    os.fsync(file.fileno())
                if target.name == "last.ckpt" and target.exists():
                    target.replace(target.with_name(PREVIOUS))
                part.replace(target)
            finally:
                part.unlink(missing_ok=True)
        except (OSError, RuntimeError) as error:  # torch's own writer turns what the file raises into RuntimeError
            reason = error.strerror if isinstance(error, OSError) else str(error).splitlines()[0]
            raise CaptioningError(
                f"cannot save the checkpoint {target}: {reason}. Earlier checkpoints are unharmed: make room, and go "
                "on with resume=true"
            ) from error

    def load_checkpoint(
        self, path: str | Path, map_location: Callable[..., Any] | None = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Reads `path` to the CPU; never anything but tensors and plain values.

        Raises:
            CaptioningError: as for `captioning.runs.checkpoint.read`.
        """
        return read(Path(path))
