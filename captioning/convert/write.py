"""Write a converted captioner as a checkpoint, if its weights fit the networks of its settings."""

from pathlib import Path

from captioning.config.schemas.parts import strip_extra_keys
from captioning.config.types import Config
from captioning.convert.source import Converted
from captioning.data.subwords import load_vocabulary
from captioning.runs.checkpoints.checkpoint import captioner_section, write_checkpoint
from captioning.runs.checkpoints.networks import (
    build_networks,
    fill_network,
    with_checkpoint_context,
)


def write_captioner(path: Path, settings: Config, converted: Converted, weights: Path) -> int:
    """Write the checkpoint of `weights` and return the number of its parameters.

    Raises:
        CaptioningError: the weights are not exactly those of the networks.
    """
    parts, state = strip_extra_keys(settings), converted.state
    vocabulary = load_vocabulary(converted.words)
    shapes = [tensor.shape for tensor in state.values()]
    with with_checkpoint_context(weights, "weights"):
        backbone, model = build_networks(parts, len(vocabulary), shapes)
        # the factor to unit scale is 1, and old files do not count batches
        given = {
            f"backbone.{name}": tensor
            for name, tensor in backbone.state_dict().items()
            if name.endswith(("num_batches_tracked", "scale"))
        }
        state = given | state
        fill_network("backbone", backbone, state)
        fill_network("model", model, state)
    path.parent.mkdir()
    section = captioner_section(settings, vocabulary.saved)
    write_checkpoint(path, {"captioning": section, "state_dict": state})
    return sum(parameter.numel() for parameter in [*backbone.parameters(), *model.parameters()])
