"""Weights, vocabulary and configuration alone."""

from pathlib import Path

from captioning.runs.checkpoint import load
from captioning.runs.weights_file import write


def export_weights(checkpoint: Path, output: Path) -> None:
    """Writes what stands wherever a checkpoint does, but for resuming: a file of safetensors.

    Raises:
        CaptioningError: the checkpoint cannot be read, or the file cannot be written.
    """
    saved = load(checkpoint)
    write(output, saved.config, saved.words, saved.state)
