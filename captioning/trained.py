"""A trained captioner, built again from its checkpoint alone.

B images, H rows and W columns of pixels, T words, L context vectors on a grid of (h, w).
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from PIL import Image
from torch import Tensor, nn

from captioning.backbones import Backbone, ContextSet
from captioning.checkpoint import build, fill, read
from captioning.data.vocabulary import Vocabulary
from captioning.decoding import Caption, Contexts, Ensemble
from captioning.errors import CaptioningError
from captioning.models.protocol import Captioner
from captioning.searches import USUAL_FILTERS, check_decoding, search_settings
from captioning.tokens import EOS

Photograph = str | Path | Image.Image
"""A file or an image in memory."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a trained captioner says of one photograph.

    Attributes:
        caption: the words, joined by spaces.
        score: what the search ranked by: the log-probability of the caption, its end included, length-normalised where
            the search is.
        words: the T words.
        attention: `[T, h, w]` on the CPU, where the model looked for each word; None for a model without attention, and
            where those of an ensemble look at different grids.
        alternatives: further captions, where the search gives several.
    """

    caption: str
    score: float
    words: list[str] = field(repr=False)
    attention: Tensor | None = field(repr=False)
    alternatives: list["Prediction"] = field(default_factory=list, repr=False)


class Network:
    """Backbone and model of one checkpoint, frozen and in evaluation mode."""

    def __init__(self, backbone: Backbone, model: Captioner, device: torch.device) -> None:
        self.backbone, self.model = backbone, model
        for network in (backbone, model):
            assert isinstance(network, nn.Module)
            network.to(device).eval().requires_grad_(False)


class TrainedCaptioner:
    """Networks, vocabulary and search of one checkpoint, or of an ensemble of several, ready to caption photographs.

    Attributes:
        config: the resolved configuration of the (first) run, with the decoding that is used here.
        vocabulary: words of the ids.
        networks: one, or the members of the ensemble.
        search: decodes context sets.
        device: where the networks are.
    """

    def __init__(
        self,
        config: DictConfig,
        vocabulary: Vocabulary,
        networks: Sequence[Network],
        search: Callable[[Captioner, ContextSet], list[Caption]],
        device: torch.device,
    ) -> None:
        """Take built parts; `from_checkpoint` builds them."""
        self.config, self.vocabulary, self.search, self.device = config, vocabulary, search, device
        self.networks = tuple(networks)

    @classmethod
    def from_checkpoint(
        cls,
        path: str | Path | None,
        device: str | torch.device = "auto",
        decoding: Mapping[str, Any] | None = None,
    ) -> "TrainedCaptioner":
        """Build the captioner that `captioning.run` has saved; no other file is read.

        Args:
            path: `checkpoints/best.ckpt` or `last.ckpt` of a run folder. It may be None with an ensemble.
            device: `auto` (a GPU where there is one), `cpu`, `cuda`, `cuda:1`, ..., wherever it was trained.
            decoding: settings that replace those of the run, such as `{"width": 5}`; with a `_target_`, another search.
                `ensemble` is a list of checkpoints over one vocabulary whose probabilities are averaged; `path` must
                be among them, and the first one's settings are the ensemble's.

        Raises:
            CaptioningError: the file is missing, damaged, no checkpoint of `captioning.run`, holds code, or fits no
                network that this version builds; a setting or device that does not exist; an ensemble of different
                vocabularies.
        """
        place = _device(device)
        decoding = dict(decoding or {})
        paths = _members(path, decoding.pop("ensemble", None))
        config, vocabulary, network = _load(paths[0], place)
        networks = [network]
        for other in paths[1:]:
            _, words, network = _load(other, place)
            if words != vocabulary:
                shared = len(set(words.words) & set(vocabulary.words))
                raise CaptioningError(
                    f"decoding.ensemble: {other} has another vocabulary ({len(words.words)} words) than {paths[0]} "
                    f"({len(vocabulary.words)}; {shared} are in both); the probabilities of different words cannot be "
                    "averaged. Use runs of one data set with the same data.vocabulary"
                )
            networks.append(network)
        if decoding:
            _set_decoding(config, decoding)
        with_words = config.copy()
        with_words.decoding = search_settings(config.decoding, vocabulary)
        search = build(paths[0], with_words, "decoding")
        if len(paths) > 1:
            config.decoding.ensemble = list(map(str, paths))  # for the record
        return cls(config, vocabulary, networks, search, place)

    def caption(self, images: Photograph | Iterable[Photograph], batch_size: int = 16) -> list[Prediction]:
        """Caption photographs of any size, in order.

        Args:
            images: files or Pillow images, or a single one.
            batch_size: how many are decoded at a time.

        Raises:
            CaptioningError: a file is missing or no image, or something else came.
        """
        if batch_size < 1:
            raise CaptioningError(f"batch_size={batch_size} is not allowed; it must be at least 1")
        pixels = map(self.read, [images] if isinstance(images, Photograph) else images)
        predictions = []
        while batch := list(itertools.islice(pixels, batch_size)):
            predictions += self.predict(batch)
        return predictions

    def read(self, image: Photograph) -> tuple[Tensor, ...]:
        """A photograph as each network sees it, `[3, H, W]` uint8.

        Raises:
            CaptioningError: it cannot be read.
        """
        if not isinstance(image, Photograph):
            raise CaptioningError(f"cannot caption a {type(image).__name__}; give file names or Pillow images")
        return tuple(network.backbone.transform.read(image) for network in self.networks)

    def predict(self, photographs: Sequence[tuple[Tensor, ...]]) -> list[Prediction]:
        """Caption B photographs as `read` gives them."""
        captions = self.decode([torch.stack(pixels) for pixels in zip(*photographs, strict=True)])
        return [self._prediction(caption) for caption in captions]

    @torch.no_grad()
    def decode(self, inputs: Sequence[Tensor]) -> list[Caption]:
        """Captions of B images from what each network reads of them: `[B, 3, H, W]` pixels or `[B, L, D]` features."""
        contexts = []
        for network, rows in zip(self.networks, inputs, strict=True):
            features = network.backbone(rows.to(self.device)) if rows.ndim == 4 else rows.to(self.device)
            contexts.append(network.backbone.context(features))
        if len(contexts) == 1:
            return self.search(self.networks[0].model, contexts[0])
        return self.search(Ensemble([n.model for n in self.networks]), Contexts(contexts))  # type: ignore[arg-type]

    def _prediction(self, caption: Caption) -> Prediction:
        words = [self.vocabulary.decode([token]) for token in caption.tokens if token != EOS]
        maps = caption.attention
        return Prediction(
            self.vocabulary.decode(caption.tokens),
            caption.score,
            words,
            None if maps is None else maps[: len(words)].unflatten(1, self.networks[0].backbone.grid),
            [self._prediction(other) for other in caption.alternatives],
        )


def _members(path: str | Path | None, ensemble: Sequence[str | Path] | None) -> list[Path]:
    """The checkpoints to load."""
    if ensemble is None:
        if path is None:
            raise CaptioningError("checkpoint is not set: add checkpoint=FILE, or decoding.ensemble=[FILE,FILE]")
        return [Path(path)]
    if isinstance(ensemble, str | Path) or not ensemble:
        raise CaptioningError(f"decoding.ensemble={ensemble} is not allowed; it must be a list of checkpoints")
    members = [Path(str(member)).expanduser() for member in ensemble]
    if path is not None and Path(path) not in members:
        raise CaptioningError(
            f"checkpoint={path} is not in decoding.ensemble=[{', '.join(map(str, members))}]: leave checkpoint out, or "
            "name it in both"
        )
    return members


def _load(path: Path, device: torch.device) -> tuple[DictConfig, Vocabulary, Network]:
    """Configuration, vocabulary and networks of one checkpoint."""
    saved = read(path)
    config = OmegaConf.create(saved["captioning"]["config"])
    config.decoding.pop("select", None)  # it was of that run
    if "weights" in config.backbone:
        config.backbone.weights = None  # the checkpoint holds them; neither a file nor a download is needed
    vocabulary = Vocabulary(saved["captioning"]["words"])
    # Weights are drawn at random and then replaced: the caller's random numbers stay as they are.
    with torch.random.fork_rng(devices=[]):
        backbone = build(path, config, "backbone")
        sizes = {"vocab_size": len(vocabulary), "d_context": backbone.dim, "grid": backbone.grid}
        model = build(path, config, "model", **sizes)
    for name, network in (("backbone", backbone), ("model", model)):
        fill(path, name, network, saved["state_dict"])
    return config, vocabulary, Network(backbone, model, device)


def _set_decoding(config: DictConfig, decoding: Mapping[str, Any]) -> None:
    """Puts settings in the place of the run's."""
    if "_target_" in decoding:
        config.decoding = decoding
    else:
        filters = dict(decoding.get("filters") or {})
        if "_target_" not in filters:
            filters = {"_target_": USUAL_FILTERS, **(config.decoding.get("filters") or {}), **filters}
        config.decoding = {**config.decoding, **decoding, "filters": filters}
    config.decoding._partial_ = True
    check_decoding(config)


def _device(name: str | torch.device) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # no such device in PyTorch; none in this machine
        reason = str(error).splitlines()[0]
        raise CaptioningError(f"device={name} cannot be used: {reason}; allowed: auto, cpu, or a GPU's cuda") from error
    return device
