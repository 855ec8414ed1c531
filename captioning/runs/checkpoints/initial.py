"""Weights that a run begins from: `init_from=CHECKPOINT`."""

import re
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict
from torch import nn

from captioning.config.registry import class_name, each_part
from captioning.config.types import PartConfig, given_path
from captioning.data.subwords import load_vocabulary
from captioning.data.vocabulary import Vocabulary
from captioning.data.words import Language
from captioning.errors import CaptioningError, quoted
from captioning.pretrained.allocation import AllocationLimit
from captioning.pretrained.library import tensor_shapes
from captioning.runs.checkpoints.checkpoint import load_checkpoint
from captioning.runs.checkpoints.digest import digest
from captioning.runs.checkpoints.networks import fill_network, with_checkpoint_context
from captioning.runs.settings import differing, each_setting, list_differences
from captioning.tokens import FROM_CHECKPOINT

IGNORED_DIFFERENCES = {
    # whether there is a bias is in the weights' names
    "model": ("dropout", "mode", "bias", "energy_bias", "path", "sha256", "freeze"),
    "backbone": (
        *("weights", "trainable", "checkpointing", "path", "whole", "regions"),
        *("size", "resize", "pixel_range", "dilation"),
    ),
}
"""Settings that may change between the training of weights and a run that begins from them."""


class PretrainedWeights:
    """Weights, vocabulary and backbone of the checkpoint `init_from`.

    The optimiser of the run is new.
    """

    def __init__(self, path: Path):
        self.path, self._saved = path, load_checkpoint(path)
        with with_checkpoint_context(path, "init_from"):
            self.vocabulary = load_vocabulary(self._saved.words)
        self.digest = digest([self._saved.words, self._saved.networks])

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
            name = saved.get("choices", {}).get("model")
            if not re.fullmatch(r"\w[\w-]*", name or ""):
                name = class_name(saved["model"])
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

    def check_architecture(self, backbone: PartConfig, model: PartConfig) -> None:
        """Refuse a run whose backbone or model has settings that the weights were not trained with.

        Settings that only one of them has are left to the names and shapes of the weights; null
        and false settings of a backbone are the same.
        """
        parts = {"backbone": backbone, "model": model}
        for name, ignored in IGNORED_DIFFERENCES.items():
            before = dict(each_setting(self._saved.config[name], name))
            now = dict(each_setting(parts[name], name))
            decisive = [
                key
                for key in before.keys() & now.keys()
                if key.rpartition(".")[2] not in ignored
                and (name == "model" or before[key] or now[key])
            ]
            both = differing(
                {key: quoted(before[key]) for key in decisive},
                {key: quoted(now[key]) for key in decisive},
                absent="",
            )
            if both:
                raise CaptioningError(
                    f"init_from={self.path} has another architecture: {list_differences(both)}. "
                    f"Set {name} as it was (without experiment= and {name}= it is taken from "
                    "there), or train from random weights (init_from=null)"
                )

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Refuse other words than the model knows, or the same in another order."""
        if vocabulary != self.vocabulary:
            known, shared = len(self.vocabulary.words), vocabulary.shared(self.vocabulary)
            raise CaptioningError(
                f"init_from={self.path} has another vocabulary ({known} {self.vocabulary.unit}) "
                f"than the training captions give ({len(vocabulary.words)}; {shared} are in both): "
                "set data.vocabulary=checkpoint to keep its words; others become unknown"
            )

    def fill(self, name: str, network: nn.Module) -> None:
        """Load the checkpoint's weights into `backbone` or `model`."""
        with with_checkpoint_context(self.path, "init_from"):
            fill_network(name, network, self._saved.state)


def model_limit(
    folder: str | None, initial: PretrainedWeights | None
) -> AbstractContextManager[AllocationLimit | None]:
    """The limit for a model that files describe: a checkpoint, or the `folder` of a library."""
    if initial:
        return AllocationLimit.for_file(initial._saved.shapes)
    if folder:
        return AllocationLimit.for_file(tensor_shapes(given_path(folder)))
    return nullcontext()
