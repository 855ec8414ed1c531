"""What a run begins from: weights, vocabulary and backbone of another run's checkpoint (`init_from`).

The optimiser is new, and so is all else that training moves: what the checkpoint was trained for may be another loss.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from captioning.config.registry import defaults
from captioning.config.settings import each_setting
from captioning.data.vocabulary import Vocabulary
from captioning.errors import CaptioningError, quoted
from captioning.runs.checkpoint import fill_network, load
from captioning.runs.digest import digest

CAN_DIFFER = {
    "model": ("dropout", "choice", "bias", "energy_bias"),  # whether there is a bias is in the weights' names
    "backbone": ("weights", "trainable", "checkpointing", "size", "resize", "dilation", "path", "regions"),
}
"""Settings of networks, and of their parts, that are not of the architecture which weights were trained in."""
NAMED = 3
"""Settings that an error shows."""


class InitialWeights:
    """The checkpoint that `init_from` names.

    Attributes:
        path: of the checkpoint.
        vocabulary: the words that its model knows.
        digest: of weights and words.
    """

    def __init__(self, path: Path) -> None:
        """Reads it.

        Raises:
            CaptioningError: as for `captioning.runs.checkpoint.load`.
        """
        try:
            self._saved = load(path)
            self.vocabulary = Vocabulary(self._saved.words)
        except CaptioningError as error:
            raise CaptioningError(f"init_from: {error}") from error
        self.path, self.digest = path, digest([self._saved.words, self._saved.networks])

    def check_architecture(self, config: Mapping[str, Any]) -> None:
        """Refuses a backbone or a model, of a run's plain settings, whose settings are not those that the weights had.

        A setting that the checkpoint lacks is what its part takes when it is left out. What only the checkpoint has is
        left to the weights' names and sizes; a backbone's settings that are null and false mean the same.

        Raises:
            CaptioningError: names the settings that differ.
        """
        for name in CAN_DIFFER:
            self._check_architecture(name, config[name])

    def _check_architecture(self, name: str, given: Mapping[str, Any]) -> None:
        unsaid = defaults(name, given)
        before, now = (unsaid | dict(each_setting(settings, name)) for settings in (self._saved.config[name], given))
        differing = [
            f"{key}={quoted(now[key])} (it has {quoted(before[key])})"
            for key in sorted(before.keys() & now.keys())
            if before[key] != now[key] and (name == "model" or before[key] or now[key])
            if key.rpartition(".")[2] not in CAN_DIFFER[name]
        ]
        if differing:
            more = ", ..." if len(differing) > NAMED else ""
            raise CaptioningError(
                f"init_from={self.path} is of another architecture: {', '.join(differing[:NAMED])}{more}. Give its "
                f"{name}'s settings, or train from random weights (init_from=null)"
            )

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Refuses other words than the model knows, or the same in another order.

        Raises:
            CaptioningError: says how many there are.
        """
        if vocabulary != self.vocabulary:
            shared = len(set(vocabulary.words) & set(self.vocabulary.words))
            raise CaptioningError(
                f"init_from={self.path} has another vocabulary ({len(self.vocabulary.words)} words) than the training "
                f"captions give ({len(vocabulary.words)}; {shared} are in both): set data.vocabulary=checkpoint to "
                "keep its words; others become unknown"
            )

    def fill(self, name: str, network: nn.Module) -> None:
        """Gives `backbone` or `model` the checkpoint's weights.

        Raises:
            CaptioningError: they are of another network.
        """
        try:
            fill_network(self.path, name, network, self._saved.state)
        except CaptioningError as error:
            problems = str(error).partition("captioning: ")[2]
            raise CaptioningError(f"init_from={self.path} has another {name}: {problems}") from error
