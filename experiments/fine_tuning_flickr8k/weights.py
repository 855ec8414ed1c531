"""Weights from checkpoints: a fine-tuned backbone for backbone.weights, or an average.

    python weights.py backbone CHECKPOINT FILE
    python weights.py mean CHECKPOINT CHECKPOINT ... FILE

The average of checkpoints of one run is a soup (Wortsman et al. 2022); FILE has the configuration
of the first.
"""

import sys
from pathlib import Path

import torch

from captioning.runs.checkpoints.checkpoint import load_checkpoint, write_safetensors

PREFIX = "backbone.network.extractor."


def backbone(checkpoint: Path, file: Path) -> None:
    state = load_checkpoint(checkpoint).state
    torch.save(
        {name.removeprefix(PREFIX): t for name, t in state.items() if name.startswith(PREFIX)}, file
    )


def mean(*paths: Path) -> None:
    *checkpoints, file = paths
    first, *others = (load_checkpoint(path) for path in checkpoints)
    state = {
        name: torch.stack([tensor, *(other.state[name] for other in others)]).mean(0)
        if tensor.is_floating_point()
        else tensor
        for name, tensor in first.networks.items()
    }
    write_safetensors(file, first.config, first.words, state)


if __name__ == "__main__":
    {"backbone": backbone, "mean": mean}[sys.argv[1]](*map(Path, sys.argv[2:]))
