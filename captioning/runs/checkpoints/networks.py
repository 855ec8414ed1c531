"""Build the networks of a checkpoint, or begin a run from its weights."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from omegaconf import DictConfig, OmegaConf, open_dict
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from captioning.backbones.base import Backbone
from captioning.config.explain import explain
from captioning.config.registry import (
    build,
    each_part,
    strip_extra_keys,
    without_weights,
)
from captioning.config.types import Config
from captioning.data.subwords import load_vocabulary
from captioning.data.vocabulary import Vocabulary
from captioning.data.words import Language
from captioning.errors import CaptioningError, quoted
from captioning.machine import has_bfloat16
from captioning.models.parts.numerics import to_bfloat16
from captioning.models.protocol import Captioner
from captioning.runs.checkpoints.checkpoint import Checkpoint, digest, load
from captioning.runs.folders.source import use_source
from captioning.runs.settings import each_setting, list_differences
from captioning.tokens import FROM_CHECKPOINT

MAX_BACKBONE = 2**30
"""Numbers in a network of a library before it is cut; its name comes from a closed list."""
FACTORIES = {
    "empty",
    "empty_strided",
    "zeros",
    "ones",
    "full",
    "arange",
    "linspace",
    "eye",
    "rand",
    "randn",
}
"""PyTorch operations that allocate a size given as a number."""
IGNORED_DIFFERENCES = {
    # whether there is a bias is in the weights' names
    "model": ("dropout", "mode", "bias", "energy_bias", "path", "sha256", "freeze"),
    "backbone": (
        *("weights", "trainable", "checkpointing", "path", "regions"),
        *("size", "resize", "pixel_range", "dilation"),
    ),
}
"""Settings that may change between the training of weights and a run that begins from them."""


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
    ) -> None:
        self.backbone, self.model, self._device, self.title = backbone, model, device, title
        self.quantiles = quantiles
        both = nn.ModuleList([backbone, cast(nn.Module, model)])
        both.to(device).eval().requires_grad_(False)
        self._size = sum(parameter.numel() for parameter in both.parameters())

    def to_bfloat16(self, vocab_size: int) -> None:
        """Multiply the model's matrices in bfloat16 (`captioning.models.parts.numerics`)."""
        if not has_bfloat16(self._device):
            raise CaptioningError(
                f"bfloat16=true is slower than bfloat16=false on this device ({self._device})"
            )
        to_bfloat16(cast(nn.Module, self.model), vocab_size)

    def __repr__(self) -> str:
        return f"{self.title}, {self._size:,} parameters"


def load_network(
    path: Path, device: torch.device, modules: Sequence[str]
) -> tuple[Config, Vocabulary, Network]:
    """Configuration, vocabulary and networks of a checkpoint with parts of ours or `modules`."""
    saved = load(path)
    use_source(path.absolute().parent.parent, modules)
    config = strip_extra_keys(saved.config)
    config["backbone"] = without_weights(config["backbone"])  # they are in the checkpoint
    # Weights are drawn at random and then replaced: the caller's random numbers stay as they are.
    with with_checkpoint_context(path), torch.random.fork_rng(devices=[]):
        vocabulary = load_vocabulary(saved.words, Language.of(config["data"], modules))
        with AllocationLimit.of("backbone", saved):
            backbone = build("backbone", Backbone, config["backbone"], modules)
        with AllocationLimit.of("model", saved):
            model = build(
                "model",
                Captioner,
                config["model"],
                modules,
                vocab_size=len(vocabulary),
                **backbone.sizes,
            )
        for name, network in (("backbone", backbone), ("model", model)):
            _fill(name, network, saved.state)
    return config, vocabulary, Network(backbone, model, device, _title(saved), saved.quantiles)


def _title(saved: Checkpoint) -> str:
    """Such as `sat_soft on squeezenet1_1, val/CIDEr 54.3`."""
    choices, backbone = saved.config.get("choices"), saved.config["backbone"]
    chosen = choices.get("model") if isinstance(choices, dict) else None
    system = chosen or saved.config["model"]["_target_"].rpartition(".")[2]
    seen = backbone.get("name") or backbone["_target_"].rpartition(".")[2]
    return f"{quoted(system)} on {quoted(seen)}" + (f", {saved.score}" if saved.score else "")


@contextmanager
def with_checkpoint_context(path: Path, key: str = "checkpoint") -> Iterator[None]:
    """Name the checkpoint in errors of building it and of loading its weights."""
    try:
        yield
    except (CaptioningError, RuntimeError) as error:
        reason = explain(error) if isinstance(error, CaptioningError) else quoted(error)
        raise CaptioningError(f"{key}={path} does not fit: {reason}") from error


def _fill(name: str, network: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Load the tensors of `state` under `name`, which must be exactly those of the network."""
    prefix = f"{name}."
    own = {key.removeprefix(prefix): t for key, t in state.items() if key.startswith(prefix)}
    network.load_state_dict(own)


class AllocationLimit(TorchDispatchMode):
    """Refuse to allocate tensors of more than `numbers` numbers in all.

    A configuration comes with the file, and may describe an embedding of terabytes.
    """

    def __init__(self, numbers: int) -> None:
        super().__init__()
        self.left = numbers

    @classmethod
    def of(cls, name: str, saved: Checkpoint) -> "AllocationLimit":
        """The limit for the `backbone` or `model` of a checkpoint."""
        if name == "backbone":
            return cls(MAX_BACKBONE)
        # Initialising a network takes some times its size, and there are tables of positions.
        return cls(8 * sum(tensor.numel() for tensor in saved.state.values()) + 2**24)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # or PyTorch imports its compiler for a second, and compiles nothing

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func.overloadpacket.__name__ in FACTORIES:
            sizes = args[0] if args and isinstance(args[0], list | tuple) else args
            self.left -= math.prod(size for size in sizes if isinstance(size, int))
            if self.left < 0:
                raise ValueError(
                    "the configuration describes far more than the weights of the file"
                )
        return func(*args, **(kwargs or {}))


class PretrainedWeights:
    """Weights, vocabulary and backbone of the checkpoint `init_from`.

    The optimiser of the run is new.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._saved = path, load(path)
        with with_checkpoint_context(path, "init_from"):
            self.vocabulary = load_vocabulary(self._saved.words)
        self.digest = digest([self._saved.words, self._saved.networks])

    def limit(self, name: str) -> AllocationLimit:
        """The limit to build `backbone` or `model` in, which a checkpoint may choose."""
        return AllocationLimit.of(name, self._saved)

    def complete(self, config: DictConfig, given: Sequence[str]) -> None:
        """Set what the command leaves open as in the checkpoint.

        That is backbone, model, objective and words.

        Args:
            config: of the run.
            given: settings and groups of the command line. An experiment leaves nothing open.
        """
        if "experiment" in given:
            return
        saved = self._saved.config
        for group in ("backbone", "model", "objective"):
            chosen = any(key == group or key.startswith(f"{group}/") for key in given)
            # self-critical training is a second stage, never the one that a run has without being
            # asked
            second = "SelfCritical" in str(saved.get(group))
            if group in saved and not chosen and not second:
                self._take(config, group, given)
        if "model" not in given:
            name = (saved.get("choices") or {}).get("model")
            known = isinstance(name, str) and re.fullmatch(r"\w[\w-]*", name)
            name = name if known else saved["model"]["_target_"].rpartition(".")[2]
            OmegaConf.update(config, "choices.model", name, force_add=True)
        if any(key.startswith("data.vocabulary") for key in given):
            return
        Language.of(saved["data"], ()).split("a word")
        config.data.vocabulary = FROM_CHECKPOINT
        settings = dict(each_setting(saved))
        keys = ["data.language", "data.tokens", "decoding.filters.forbidden"]
        for key in [*keys, "data.max_pieces"] if self.vocabulary.pieces else keys:
            if key not in given and settings.get(key):
                OmegaConf.update(config, key, self._plain(settings[key]))

    def _take(self, config: DictConfig, group: str, given: Sequence[str]) -> None:
        """Replace `group` by that of the checkpoint, below what the command line sets in it."""
        node = self._plain(self._saved.config[group])
        for _, part in each_part(group, node):
            if not str(part["_target_"]).startswith("captioning."):
                raise CaptioningError(
                    f"the {group} of init_from={self.path} has {quoted(part['_target_'])}, which "
                    f"is no part of captioning: set {group}=NAME as it was trained"
                )
        if "max_words" in node:  # of this run's captions, in the baseline of REINFORCE
            node["max_words"] = "${data.max_pieces}"
        own = {key: OmegaConf.select(config, key) for key in given if key.startswith(f"{group}.")}
        with open_dict(config):
            config[group] = node
            for key, value in own.items():
                OmegaConf.update(config, key, value)

    def _plain(self, node: Any) -> Any:
        """Refuse interpolations.

        The file may come from a stranger, who would read the user's variables.
        """
        if any("${" in str(value) for _, value in each_setting(node)):
            raise CaptioningError(f"init_from={self.path} has settings that are no plain values")
        return node

    def check_architecture(self, config: Config) -> None:
        """Refuse a run whose backbone or model has settings that the weights were not trained with.

        Settings that only one of them has are left to the names and shapes of the weights; null
        and false settings of a backbone are the same.
        """
        for name, ignored in IGNORED_DIFFERENCES.items():
            before = dict(each_setting(self._saved.config[name], name))
            now = dict(each_setting(config[name], name))
            decisive = [
                key
                for key in before.keys() & now.keys()
                if key.rpartition(".")[2] not in ignored
                and (name == "model" or before[key] or now[key])
            ]
            differing = list_differences(
                {key: quoted(before[key]) for key in decisive},
                {key: quoted(now[key]) for key in decisive},
            )
            if differing:
                raise CaptioningError(
                    f"init_from={self.path} has another architecture: {differing}. Set {name} as "
                    f"it was (without experiment= and {name}= it is taken from there), or train "
                    "from random weights (init_from=null)"
                )

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Refuse other words than the model knows, or the same in another order."""
        if vocabulary != self.vocabulary:
            known, shared = len(self.vocabulary.words), vocabulary.shared(self.vocabulary)
            raise CaptioningError(
                f"init_from={self.path} has another vocabulary ({known} {self.vocabulary.unit}) "
                "than the training "
                f"captions give ({len(vocabulary.words)}; {shared} are in both): set "
                "data.vocabulary=checkpoint to keep its words; others become unknown"
            )

    def fill(self, name: str, network: nn.Module) -> None:
        """Load the checkpoint's weights into `backbone` or `model`."""
        with with_checkpoint_context(self.path, "init_from"):
            _fill(name, network, self._saved.state)
