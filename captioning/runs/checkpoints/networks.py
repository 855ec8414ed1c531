"""Build the networks of a checkpoint."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from captioning.backbones.base import Backbone
from captioning.config.explain import explain
from captioning.config.registry import build, class_name, without_weights
from captioning.config.schemas.parts import strip_extra_keys
from captioning.config.types import Config
from captioning.data.subwords import load_vocabulary
from captioning.data.vocabulary import Vocabulary
from captioning.data.words import Language
from captioning.errors import CaptioningError, misfit, quoted
from captioning.machine import has_bfloat16
from captioning.models.parts.numerics import to_bfloat16
from captioning.models.protocol import Captioner
from captioning.pretrained.allocation import AllocationLimit
from captioning.pretrained.library import UNTRAINED
from captioning.runs.checkpoints.checkpoint import Checkpoint, load_checkpoint
from captioning.runs.folders.source import use_source


class Network:
    """Backbone and model of one checkpoint, frozen and in evaluation mode.

    `quantiles` are of the scores of its validation captions, by the checkpoint's own search.
    """

    def __init__(
        self,
        backbone: Backbone,
        model: Captioner,
        device: torch.device,
        title: str,
        quantiles: Sequence[float] = (),
    ):
        self.backbone, self.model, self._device, self.title = backbone, model, device, title
        self.quantiles = quantiles
        both = nn.ModuleList([backbone, model])
        both.to(device).eval().requires_grad_(False)
        self._size = sum(parameter.numel() for parameter in both.parameters())

    def to_bfloat16(self, vocab_size: int) -> None:
        """Multiply the model's matrices in bfloat16 (`captioning.models.parts.numerics`)."""
        if not has_bfloat16(self._device):
            raise CaptioningError(
                f"bfloat16=true is slower than bfloat16=false on this device ({self._device})"
            )
        to_bfloat16(self.model, vocab_size)

    def __repr__(self) -> str:
        return f"{self.title}, {self._size:,} parameters"


class DecodedText(Vocabulary):
    """Ids of a captioner that was not trained here, whose text is split at blanks."""

    def __init__(self, text_of: Callable[[list[int]], str]):
        super().__init__([])
        self._text_of = text_of

    def words_of(self, ids: Iterable[int]) -> list[str]:
        return self._text_of(list(ids)).split()

    each_word = words_of


def load_network(
    path: Path, device: torch.device, modules: Sequence[str]
) -> tuple[Config, Vocabulary, Network]:
    """Configuration, vocabulary and networks of a checkpoint with parts of ours or `modules`."""
    saved = load_checkpoint(path)
    use_source(path.absolute().parent.parent, modules)
    config = strip_extra_keys(saved.config)
    config["backbone"] = without_weights(config["backbone"])  # they are in the checkpoint
    # Weights are drawn at random and then replaced: the caller's random numbers stay as they are.
    with with_checkpoint_context(path), torch.random.fork_rng(devices=[]):
        vocabulary = load_vocabulary(saved.words, Language.of(config["data"], modules))
        backbone, model = build_networks(config, len(vocabulary), saved.shapes, modules)
        for name, network in (("backbone", backbone), ("model", model)):
            fill_network(name, network, saved.state)
    return config, vocabulary, Network(backbone, model, device, _title(saved), saved.quantiles)


def build_networks(
    config: Config, vocab_size: int, shapes: Sequence[torch.Size], modules: Sequence[str] = ()
) -> tuple[Backbone, Captioner]:
    """Backbone and model of settings, the latter no larger than fits weights of these `shapes`."""
    with AllocationLimit():
        backbone = build("backbone", Backbone, config["backbone"], modules)
    with AllocationLimit.for_file(shapes):
        sizes = {**backbone.sizes, "vocab_size": vocab_size}
        return backbone, build("model", Captioner, config["model"], modules, **sizes)


def _title(saved: Checkpoint) -> str:
    """Such as `sat_soft on squeezenet1_1, val/CIDEr 54.3`."""
    backbone, chosen = saved.config["backbone"], saved.config.get("choices", {}).get("model")
    system = chosen or class_name(saved.config["model"])
    seen = backbone.get("name") or class_name(backbone)
    if source := saved.config.get("source"):  # of `captioning convert`
        title = saved.config["model"].get("title") or system
        return f"{quoted(title)} of {quoted(source.get('repository'))}, {UNTRAINED}"
    return f"{quoted(system)} on {quoted(seen)}" + (f", {saved.score}" if saved.score else "")


@contextmanager
def with_checkpoint_context(path: Path, key: str = "checkpoint") -> Iterator[None]:
    """Name the checkpoint in errors of building it and of loading its weights."""
    try:
        yield
    except (CaptioningError, RuntimeError) as error:
        if misfit(error):
            raise CaptioningError(explain(error)) from error
        reason = explain(error) if isinstance(error, CaptioningError) else quoted(error)
        raise CaptioningError(f"{key}={path} does not fit: {reason}") from error


def fill_network(name: str, network: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Load the tensors of `state` under `name`, which must be exactly those of the network."""
    prefix = f"{name}."
    own = {key.removeprefix(prefix): t for key, t in state.items() if key.startswith(prefix)}
    network.load_state_dict(own)
