"""Captions that a checkpoint has still to write, for `captioning.evaluate`.

B images, L context vectors of D features, H rows and W columns of pixels.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from omegaconf import DictConfig

from captioning.captioner import TrainedCaptioner
from captioning.config.paths import checkpoint_path, given_path
from captioning.config.settings import settings_given
from captioning.data.dataset import Inputs
from captioning.data.example import photographs, reference_texts
from captioning.data.readers.captions import ImageId
from captioning.data.views import NAMED
from captioning.decoding import Caption
from captioning.decoding.confidence import quantiles_of, with_entropy
from captioning.features.inputs import inputs_of
from captioning.features.own import move_features
from captioning.metrics.wording import Said, of_model
from captioning.progress import counter
from captioning.runs.checkpoint_files import keep_quantiles
from captioning.runs.kept_attention import KeptCaption
from captioning.runs.results import file_record
from captioning.runs.software import device_name
from captioning.work.material import check_views, data_settings, material_of


class CheckpointCaptions:
    """Captions that a trained captioner has still to write, for a split of a data set or a folder of photographs.

    It writes them in 32-bit precision, whatever the run was trained and tested in, unless `bfloat16` is set.
    """

    def __init__(self, config: DictConfig) -> None:
        decoding = settings_given(config.decoding)
        self._bfloat16: bool = config.bfloat16
        self._calibrate: bool = config.calibrate
        self._files, self._views = decoding.get("ensemble", [config.checkpoint]), list(config.views)
        self._captioner = TrainedCaptioner.from_checkpoint(
            config.checkpoint, config.device, decoding, list(config.modules), config.bfloat16
        )
        self._captioner.search = with_entropy(self._captioner.search)
        self._cache = given_path(config.cache)
        check_views(self._captioner.networks, config)
        if config.features is not None:
            move_features([network.backbone for network in self._captioner.networks], given_path(config.features))
        data = data_settings(self._captioner.config, config)
        self._batch_size: int = data["eval_batch_size"]
        self._material = material_of(config, self._captioner, data)
        examples = self._material.examples
        names = photographs(examples, self._material.root)
        self.photographs = {example.image_id: name for example, name in zip(examples, names, strict=True)}
        self.kept: list[KeptCaption] = []
        self._keep = config.keep
        texts = reference_texts(examples)
        self.references = {example.image_id: text for example, text in zip(examples, texts, strict=True)}
        self.given: dict[str, Mapping[ImageId, str]] = {}

    def captions(self, view: str) -> Mapping[ImageId, Said]:
        """Decodes all photographs, changed as the view says; of the first view attention is kept.

        With `calibrate` the checkpoint keeps the quantiles of the captions' scores.
        """
        examples, captions, scores = self._material.examples, dict[ImageId, Said](), list[float]()
        inputs = self._inputs(view)
        keep = self._keep if view == self._views[0] else 0
        decoded = decode(self._captioner, inputs, len(examples), self._batch_size)
        for row, (example, caption) in enumerate(zip(examples, decoded, strict=True)):
            words = self._captioner.vocabulary.decode(caption.tokens)
            captions[example.image_id] = Said(words, caption.finished, caption.entropy)
            scores.append(caption.score)
            if row < keep:
                rows, pixels = [each.rows([row]) for each in inputs], [each.pixels for each in inputs]
                self.kept += self._captioner.kept(example.image_id, caption, rows, pixels)
        if self._calibrate:
            keep_quantiles(checkpoint_path(self._files[0]), quantiles_of(scores))
        return captions

    def _inputs(self, view: str) -> list[Inputs]:
        name = self._material.name if len(self._views) == 1 else f"{self._material.name}, {view}"
        seen = [network.backbone.viewed(NAMED[view]) for network in self._captioner.networks]
        return [inputs_of(self._material.examples, backbone, self._cache, name) for backbone in seen]

    def wording(self, captions: Sequence[Said]) -> dict[str, float]:
        """All that is known of how captions are worded."""
        return of_model(captions, self._material.training)

    def provenance(self) -> dict[str, Any]:
        """Checkpoint, photographs and decoding."""
        return {
            "checkpoint": file_record(self._files[0]),
            **({"ensemble": [file_record(file) for file in self._files]} if len(self._files) > 1 else {}),
            **self._material.provenance,
            "decoding": self._captioner.config["decoding"],
            "device": device_name(self._captioner.device),
            **({"bfloat16": True} if self._bfloat16 else {}),
        }


def decode(captioner: TrainedCaptioner, inputs: Sequence[Inputs], count: int, batch_size: int) -> Iterator[Caption]:
    """The captions of `count` images in order, `batch_size` at a time, from what each network reads of them."""
    with counter("captions", count, "image") as bar:
        for first in range(0, count, batch_size):
            rows = range(first, min(first + batch_size, count))
            captions = captioner.decode([each.rows(rows) for each in inputs], [each.pixels for each in inputs])
            yield from captions
            bar.update(len(rows))
