"""A trained captioner, built from its checkpoint alone.

B images of C channels, H rows and W columns of pixels, T words, L context vectors on a grid of (h,
w).
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from PIL import Image
from pydantic import SkipValidation
from torch import Tensor

from captioning.backbones.context import ContextSet, as_maps
from captioning.config.registry import modules_of
from captioning.config.types import BatchSize, Config, validated
from captioning.data.images import Source
from captioning.data.vocabulary import Vocabulary
from captioning.decoding import GeneratedCaption
from captioning.decoding.ensemble import Ensemble, EnsembleContext
from captioning.decoding.maps import all_maps, caption_maps, word_maps
from captioning.decoding.ranking import confidence
from captioning.errors import CaptioningError
from captioning.machine import get_device
from captioning.models.protocol import Captioner
from captioning.pretrained.library import is_untrained
from captioning.pretrained.named import PRETRAINED, checkpoint_path
from captioning.runs.checkpoints.networks import Network, load_network, with_checkpoint_context
from captioning.runs.evaluation.attention_file import AttentionRecord
from captioning.runs.evaluation.searches import (
    DEFAULT_FILTERS,
    build_search,
    check_own,
    same_search,
)

Given = Source | np.ndarray
"""A file, or an image in memory: of Pillow, or of NumPy as `[H, W]` or `[H, W, 3]` uint8, RGB."""
Sources = Given | tuple[Given, ...]
"""The image of an example, or several for a captioner that reads several."""


@dataclass(frozen=True)
class Prediction:
    """Caption of an image.

    Attributes:
        caption: the words, joined as their language is written.
        score: by which the search ranked it: the log-probability of the caption with its end,
            length-normalised if the search is.
        confidence: share of the validation captions with a lower score, 0 to 1; None if the
            checkpoint has not kept their scores, and for another search than its own.
        words: the T words.
        attention: `[T, h, w]` on the CPU, where the model looked for each word, for one of several
            pieces their mean; None for a model without attention or an ensemble of different grids.
        alternatives: further captions, if the search gives several.
        decoded: output of the search.
    """

    caption: str
    score: float
    confidence: float | None
    words: list[str] = field(repr=False)
    attention: Tensor | None = field(repr=False)
    alternatives: list["Prediction"] = field(repr=False)
    decoded: GeneratedCaption = field(repr=False)


@dataclass(eq=False, repr=False)
class TrainedCaptioner:
    """Networks, vocabulary and search of a checkpoint, or of an ensemble of several.

    `from_checkpoint` builds them.

    Attributes:
        config: the resolved configuration of the (first) run, plain values, with the decoding in
            use.
        vocabulary: words of the ids.
        networks: one, or the members of the ensemble.
        search: decodes context sets.
        device: of the networks.
        quantiles: of the scores of the validation captions by this search, if known.
    """

    config: Config
    vocabulary: Vocabulary
    networks: Sequence[Network]
    search: Callable[[Captioner, ContextSet], list[GeneratedCaption]]
    device: torch.device
    quantiles: Sequence[float] = ()

    @property
    def first(self) -> Network:
        """The only network, or that of an ensemble whose settings count."""
        return self.networks[0]

    def __repr__(self) -> str:
        members = " + ".join(map(repr, self.networks))
        known = f"{len(self.vocabulary.words)} {self.vocabulary.unit}"
        return f"TrainedCaptioner({members}; {known}; {self.device})"

    @classmethod
    @validated
    def from_checkpoint(
        cls,
        path: str | Path | None,
        device: str | torch.device = "auto",
        decoding: Mapping[str, Any] | None = None,
        modules: Sequence[str] = (),
        bfloat16: bool = False,
    ) -> Self:
        """Build the captioner of a checkpoint; no other file is read.

        A checkpoint is data: it names parts of this package and of `modules`, and nothing else is
        imported or called.

        Args:
            path: `checkpoints/best.ckpt` or `last.ckpt` of a run folder, or an export of it, also
                as `URL#sha256=HEX` or `hf:USER/NAME`; or `transformers:FOLDER`, a captioner of that
                library. None is the bundled captioner, or the first member of an ensemble.
            device: `auto` (a GPU if there is one), `cpu`, `cuda`, `cuda:1`, ...
            decoding: settings that replace those of the run, such as `{"width": 5}`; with a
                `_target_`, another search. `ensemble` is a list of checkpoints over one vocabulary
                whose probabilities are averaged; `path` must be among them, and the first one's
                settings are the ensemble's.
            modules: your own modules whose models, filters or searches the checkpoint uses, such as
                `["show_tell"]`.
            bfloat16: multiply most matrices in bfloat16, which is faster on devices with
                instructions for it; about one caption in some tens changes.

        Raises:
            CaptioningError: the checkpoint is damaged, holds code, does not fit this version, or
                names a part of another module; a setting or device does not exist.
        """
        torch_device = get_device(device)
        decoding = dict(decoding or {})
        if is_untrained(path):
            if bfloat16:
                raise CaptioningError(f"checkpoint={path} has its own precision: bfloat16=false")
            from captioning.runs.checkpoints.library import load_library

            return cls(*load_library(str(path), torch_device, decoding))
        paths = _members(path, decoding.pop("ensemble", None))
        loaded = [load_network(member, torch_device, modules) for member in paths]
        config, vocabulary, _ = loaded[0]
        networks = [network for _, _, network in loaded]
        for other, (_, words, _) in zip(paths, loaded, strict=True):
            if words != vocabulary:
                raise CaptioningError(
                    f"decoding.ensemble: {other} has another vocabulary ({len(words.words)} "
                    f"{words.unit}) than {paths[0]} ({len(vocabulary.words)}; "
                    f"{words.shared(vocabulary)} are in both); the probabilities of different "
                    f"{words.unit} cannot be averaged. Use runs of one data set with the same "
                    "data.vocabulary"
                )
        if bfloat16:
            for network in networks:
                network.to_bfloat16(len(vocabulary))
        own = config["decoding"]
        if decoding:
            config["decoding"] = _with_settings(own, decoding)
        with nullcontext() if decoding else with_checkpoint_context(paths[0]):
            check_own(config["decoding"], decoding)
            named = [*modules, *modules_of(decoding)]  # by the caller, not by the checkpoint
            longest = config["model"].get("max_tokens")
            search = build_search(config["decoding"], vocabulary, longest, named)
        quantiles = networks[0].quantiles if same_search(own, config["decoding"]) else ()
        if len(paths) > 1:
            config["decoding"]["ensemble"] = list(map(str, paths))  # for the record
            quantiles = ()
        return cls(config, vocabulary, networks, search, torch_device, quantiles)

    @validated
    def caption(
        self, images: SkipValidation[Given | Iterable[Sources]], batch_size: BatchSize = 16
    ) -> list[Prediction]:
        """Caption files or images in memory of any size, in order, `batch_size` at a time.

        A captioner of several images gets a list of tuples, `[("front.png", "side.png")]`.
        """
        # an array [B, H, W, 3] is several
        alone = isinstance(images, Given) and getattr(images, "ndim", 0) < 4
        pixels = map(self.preprocess, [images] if alone else images)  # type: ignore[arg-type]
        predictions = []
        while batch := list(itertools.islice(pixels, batch_size)):
            predictions += self.caption_tensors(batch)
        return predictions

    def preprocess(self, image: Sources) -> tuple[Tensor, ...]:
        """Read an example for each network: `[C, H, W]` uint8.

        C is 3 colours, or 4 channels if padded; of several images `[V, 4, H, W]`.
        """
        given = image if isinstance(image, tuple) else (image,)
        sources = tuple(map(_readable, given))
        return tuple(network.backbone.read(sources) for network in self.networks)

    def caption_tensors(self, examples: Sequence[tuple[Tensor, ...]]) -> list[Prediction]:
        """Caption B examples as `preprocess` gives them."""
        images = [torch.stack(pixels) for pixels in zip(*examples, strict=True)]
        return [self._prediction(caption) for caption in self.decode(images)]

    @torch.no_grad()
    def _contexts(self, inputs: Sequence[Tensor]) -> list[ContextSet]:
        return [
            network.backbone.context_of(rows.to(self.device))
            for network, rows in zip(self.networks, inputs, strict=True)
        ]

    def decode(self, inputs: Sequence[Tensor]) -> list[GeneratedCaption]:
        """Decode B images from each network's inputs, images or features as in `context_of`."""
        contexts = self._contexts(inputs)
        if len(contexts) == 1:
            return self.search(self.first.model, contexts[0])
        return self.search(Ensemble([n.model for n in self.networks]), EnsembleContext(contexts))  # type: ignore[arg-type]

    def attention_maps(self, image: tuple[Tensor, ...], words: Sequence[str]) -> dict[str, Tensor]:
        """Return maps `[T, h, w]` of each layer and head, for T >= 1 words.

        Their names are such as `inter 1 5`.
        """
        if len(self.networks) > 1:
            raise CaptioningError(
                "the layers and heads of an ensemble are those of its members: load one checkpoint"
            )
        (context,) = self._contexts([image[0][None]])
        ids = self.vocabulary.encode(words)
        numbers = self.vocabulary.word_numbers(ids)
        maps = caption_maps(self.first.model, context, ids)
        return {name: word_maps(m, numbers) for name, m in maps.items()}

    def attention_record(
        self, image_id: int | str, caption: GeneratedCaption, inputs: Sequence[Tensor]
    ) -> list[AttentionRecord]:
        """The caption of an image with all its maps; empty without attention."""
        model = self.first.model if len(self.networks) == 1 else None
        numbers = self.vocabulary.word_numbers(caption.tokens)
        maps = all_maps(model, self._contexts(inputs)[0], caption, numbers)
        words = tuple(self.vocabulary.each_word(caption.tokens))
        return [AttentionRecord(image_id, words, maps)] if maps else []

    def _prediction(self, caption: GeneratedCaption) -> Prediction:
        words, maps = self.vocabulary.each_word(caption.tokens), caption.attention
        if maps is not None:
            numbers = self.vocabulary.word_numbers(caption.tokens)
            maps = word_maps(maps[: len(numbers)], numbers)
            maps = as_maps(maps, self.first.backbone.grid)
        return Prediction(
            caption=self.vocabulary.decode(caption.tokens),
            score=caption.score,
            confidence=confidence(caption.score, self.quantiles),
            words=words,
            attention=maps,
            alternatives=[self._prediction(other) for other in caption.alternatives],
            decoded=caption,
        )


def _readable(source: Given) -> Source:
    """A source that backbones read; an array becomes an image of Pillow."""
    if isinstance(source, Source):
        return source
    try:
        return Image.fromarray(source)
    except (AttributeError, TypeError, ValueError) as error:
        raise CaptioningError(
            f"cannot caption a {type(source).__name__}; give file names, Pillow images or arrays "
            "[H, W, 3] of uint8"
        ) from error


def _members(path: str | Path | None, ensemble: Sequence[str | Path] | None) -> list[Path]:
    if ensemble is None:
        return [checkpoint_path(PRETRAINED if path is None else path)]
    if isinstance(ensemble, str | Path) or not ensemble or any(map(is_untrained, ensemble)):
        raise CaptioningError(
            f"decoding.ensemble={ensemble} is not allowed; it must be a list of checkpoints that "
            "were trained here, because others tell no probabilities to average"
        )
    members = [checkpoint_path(member) for member in ensemble]
    if path is not None and checkpoint_path(path) not in members:
        raise CaptioningError(
            f"checkpoint={path} is not in decoding.ensemble=[{', '.join(map(str, members))}]: "
            "leave it out, or name it in both"
        )
    return members


def _with_settings(saved: Config, given: Config) -> Config:
    if "_target_" in given:
        # captions are as long as the run's, whatever the search; one's own may know no such limit
        ours = given["_target_"].startswith("captioning.") and "max_length" in saved
        return {**({"max_length": saved["max_length"]} if ours else {}), **given, "_partial_": True}
    filters = dict(given.get("filters") or {})
    if "_target_" not in filters:
        filters = {"_target_": DEFAULT_FILTERS, **(saved.get("filters") or {}), **filters}
    return {**saved, **given, "filters": filters, "_partial_": True}
