"""Weights, vocabulary and configuration alone."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from captioning.errors import CaptioningError, quoted
from captioning.runs.checkpoint import load
from captioning.runs.weights_file import write


def export_weights(checkpoint: Path, output: Path, half: bool = False) -> None:
    """Writes what stands wherever a checkpoint does, but for resuming: a file of safetensors.

    Args:
        checkpoint: of a run, or another export.
        output: the file.
        half: as in `halved`.

    Raises:
        CaptioningError: the checkpoint cannot be read, or the file cannot be written.
    """
    saved = load(checkpoint)
    write(output, saved.config, saved.words, halved(saved.networks) if half else saved.networks)


def halved(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights in half precision, from which networks take them back into single precision to compute.

    Biases, and the scales and statistics of normalisations, stay as they are: they are few, and squares among them can
    be too small for it.

    Raises:
        CaptioningError: a number is too large for it.
    """
    matrices = {name: t.half() for name, t in state.items() if t.is_floating_point() and t.dim() > 1}
    for name, tensor in matrices.items():
        if not tensor.isfinite().all():
            raise CaptioningError(
                f"half=true is not possible: the weights {quoted(name)} have numbers beyond "
                f"{torch.finfo(torch.half).max:,.0f}, the largest of half precision; leave half=false"
            )
    return {**state, **matrices}
