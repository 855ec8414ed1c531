"""Checkpoint files: whole or not there, and read with distrust."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO

from captioning.errors import CaptioningError
from captioning.files import atomic_write
from captioning.runs import weights_file
from captioning.runs.checkpoint import load, read, sealed

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
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CaptioningError(f"cannot make the folder of {target}: {error.strerror}") from error
        keep = target.with_name(PREVIOUS) if target.name == "last.ckpt" else None
        with atomic_write(target, keep) as file:
            try:
                torch.save(sealed(checkpoint), file)
            except RuntimeError as error:  # into which torch's own writer turns what the file raises
                raise OSError(str(error).splitlines()[0]) from error

    def load_checkpoint(
        self, path: str | Path, map_location: Callable[..., Any] | None = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Reads `path` to the CPU; never anything but tensors and plain values.

        Raises:
            CaptioningError: as for `captioning.runs.checkpoint.read`.
        """
        return read(Path(path))


def keep_quantiles(path: Path, quantiles: Sequence[float]) -> None:
    """Writes a checkpoint, or an export of one, anew with the quantiles of the scores of its validation captions.

    Raises:
        CaptioningError: it cannot be read or written.
    """
    if weights_file.is_safetensors(path):
        export = load(path)
        weights_file.write(path, export.config, export.words, export.state, False, export.score, quantiles)
    else:
        saved = read(path)
        saved["captioning"]["quantiles"] = list(quantiles)
        CheckpointFiles().save_checkpoint(saved, path)
