"""A trained captioner, built again from its checkpoint alone.

B images, H rows and W columns of pixels, T words, L context vectors on a grid of (h, w).
"""

import itertools
from collections.abc import Callable, Iterable, Mapping
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
from captioning.decoding import Caption
from captioning.errors import CaptioningError
from captioning.models.outputs import Captioner
from captioning.signatures import check_settings
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
        attention: `[T, h, w]` on the CPU, where the model looked for each word; None for a model without attention.
    """

    caption: str
    score: float
    words: list[str] = field(repr=False)
    attention: Tensor | None = field(repr=False)


class TrainedCaptioner:
    """Backbone, model, vocabulary and search of a checkpoint, ready to caption photographs.

    Attributes:
        config: the resolved configuration of the run, with the decoding that is used here.
        vocabulary: words of the ids.
        backbone: images to context sets, with the weights and the feature scale of the run.
        model: the captioner, in evaluation mode.
        search: decodes context sets.
        device: where backbone and model are.
    """

    def __init__(
        self,
        config: DictConfig,
        vocabulary: Vocabulary,
        backbone: Backbone,
        model: Captioner,
        search: Callable[[Captioner, ContextSet], list[Caption]],
        device: torch.device,
    ) -> None:
        """Take built parts; `from_checkpoint` builds them."""
        self.config, self.vocabulary, self.search, self.device = config, vocabulary, search, device
        self.backbone, self.model = backbone, model
        for network in (backbone, model):
            assert isinstance(network, nn.Module)
            network.to(device).eval().requires_grad_(False)

    @classmethod
    def from_checkpoint(
        cls, path: str | Path, device: str | torch.device = "auto", decoding: Mapping[str, Any] | None = None
    ) -> "TrainedCaptioner":
        """Build the captioner that `captioning.run` has saved; no other file is read.

        Args:
            path: `checkpoints/best.ckpt` or `last.ckpt` of a run folder.
            device: `auto` (a GPU where there is one), `cpu`, `cuda`, `cuda:1`, ..., wherever it was trained.
            decoding: settings that replace those of the run, such as `{"width": 5}`; with a `_target_`, another search.

        Raises:
            CaptioningError: the file is missing, damaged, no checkpoint of `captioning.run`, holds code, or fits no
                network that this version builds; a setting or device that does not exist.
        """
        place = _device(device)
        saved = read(Path(path))
        config = OmegaConf.create(saved["captioning"]["config"])
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
        if decoding:
            config.decoding = dict(decoding) if "_target_" in decoding else {**config.decoding, **decoding}
            config.decoding._partial_ = True
            _check_decoding(config)
        return cls(config, vocabulary, backbone, model, build(path, config, "decoding"), place)

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
        pixels = map(self._read, [images] if isinstance(images, Photograph) else images)
        predictions = []
        while batch := list(itertools.islice(pixels, batch_size)):
            predictions += self.predict(torch.stack(batch))
        return predictions

    def _read(self, image: Photograph) -> Tensor:
        if not isinstance(image, Photograph):
            raise CaptioningError(f"cannot caption a {type(image).__name__}; give file names or Pillow images")
        return self.backbone.transform.read(image)

    @torch.no_grad()
    def predict(self, pixels: Tensor) -> list[Prediction]:
        """Caption a batch `[B, 3, H, W]` uint8 as `backbone.transform.read` gives them."""
        context = self.backbone.context(self.backbone(pixels.to(self.device)))
        return [self._prediction(caption) for caption in self.search(self.model, context)]

    def _prediction(self, caption: Caption) -> Prediction:
        words = [self.vocabulary.decode([token]) for token in caption.tokens if token != EOS]
        maps = caption.attention
        return Prediction(
            self.vocabulary.decode(caption.tokens),
            caption.score,
            words,
            None if maps is None else maps[: len(words)].unflatten(1, self.backbone.grid),
        )


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


def _check_decoding(config: DictConfig) -> None:
    """Refuses what search or model would only refuse at some photograph."""
    check_settings("decoding", OmegaConf.to_container(config.decoding))
    for name in ("width", "max_length"):
        if config.decoding.get(name, 1) < 1:
            raise CaptioningError(f"decoding.{name}={config.decoding[name]} is not allowed; it must be at least 1")
    longest, limit = config.decoding.get("max_length", 1), config.model.get("max_tokens")
    if limit is not None and longest > limit:
        raise CaptioningError(
            f"decoding.max_length={longest} is longer than the {limit} tokens that this model was built for "
            f"(model.max_tokens): set decoding.max_length={limit} or less"
        )
