"""The networks of a checkpoint, built from what it says of them and filled with what it holds."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from captioning.backbones import Backbone
from captioning.config.registry import build
from captioning.config.settings import without_weights
from captioning.data.vocabulary import Vocabulary
from captioning.errors import CaptioningError, quoted
from captioning.machine import has_bfloat16
from captioning.models.parts.numerics import lower
from captioning.models.protocol import Captioner
from captioning.runs.checkpoint import AllocationLimit, Checkpoint, fill_network, load

LARGEST_BACKBONE = 2**30
"""Numbers in a network of a library before it is cut; which it is comes from a closed list of names."""


class Network:
    """Backbone and model of one checkpoint, frozen and in evaluation mode.

    Attributes:
        quantiles: of the scores of its validation captions, by the checkpoint's own search.
    """

    def __init__(
        self,
        backbone: Backbone,
        model: Captioner,
        device: torch.device,
        title: str,
        quantiles: Sequence[float] = (),
    ) -> None:
        self.backbone, self.model, self._device, self._title = backbone, model, device, title
        self.quantiles = quantiles
        for network in (backbone, model):
            assert isinstance(network, nn.Module)
            network.to(device).eval().requires_grad_(False)

    def lower(self, vocab_size: int) -> None:
        """Has the model multiply in bfloat16, as `captioning.models.parts.numerics` says.

        Raises:
            CaptioningError: the device has no instructions for it.
        """
        if not has_bfloat16(self._device):
            raise CaptioningError(
                f"bfloat16=true is slower than bfloat16=false on this device ({self._device}), which has no "
                "instructions for it"
            )
        lower(cast(nn.Module, self.model), vocab_size)

    def __repr__(self) -> str:
        count = sum(p.numel() for network in (self.backbone, self.model) for p in cast(nn.Module, network).parameters())
        return f"{self._title}, {count:,} parameters"


def load_network(
    path: Path, device: torch.device, modules: Sequence[str]
) -> tuple[dict[str, Any], Vocabulary, Network]:
    """Configuration, vocabulary and networks of one checkpoint; its parts are ours, or of `modules`.

    Raises:
        CaptioningError: the checkpoint cannot be read, or does not fit this version.
    """
    saved = load(path)
    config = saved.config
    config["decoding"].pop("select", None)  # it was of that run
    config["backbone"] = without_weights(config["backbone"])  # the checkpoint holds them
    # Weights are drawn at random and then replaced: the caller's random numbers stay as they are.
    with naming(path), torch.random.fork_rng(devices=[]):
        vocabulary = Vocabulary(saved.words)
        with AllocationLimit(LARGEST_BACKBONE):
            backbone = build("backbone", config["backbone"], modules)
        # What initialises a network takes some times its size, and positions come on top.
        with AllocationLimit(8 * sum(tensor.numel() for tensor in saved.state.values()) + 2**24):
            model = build("model", config["model"], modules, vocab_size=len(vocabulary), **backbone.sizes)
    for name, network in (("backbone", backbone), ("model", model)):
        fill_network(path, name, network, saved.state)
    return config, vocabulary, Network(backbone, model, device, _title(saved), saved.quantiles)


def _title(saved: Checkpoint) -> str:
    """Such as `sat_soft on squeezenet1_1, val/CIDEr 54.3`."""
    choices, backbone = saved.config.get("choices"), saved.config["backbone"]
    chosen = choices.get("model") if isinstance(choices, dict) else None
    system = chosen or saved.config["model"]["_target_"].rpartition(".")[2]
    seen = backbone.get("name") or backbone["_target_"].rpartition(".")[2]
    return f"{quoted(system)} on {quoted(seen)}" + (f", {saved.score}" if saved.score else "")


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Says which checkpoint it is that cannot be built."""
    try:
        yield
    except CaptioningError as error:
        raise CaptioningError(f"checkpoint={path} does not fit this version of captioning: {error}") from error
