"""Captions of a data set that a checkpoint has still to write, for `captioning.evaluate`.

B images, L context vectors of D features, H rows and W columns of pixels.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from omegaconf import DictConfig, OmegaConf

from captioning.borders.progress import counter
from captioning.config.composed import settings_given
from captioning.config.early import FROM_CHECKPOINT
from captioning.config.paths import checkpoint_path, given_path
from captioning.config.settings import merged, relocate
from captioning.config.signatures import check_call, check_value
from captioning.data.caption_files import ImageId
from captioning.data.example import Splits, digest, photographs, reference_texts
from captioning.data.inputs import Inputs
from captioning.data.module import CaptionData
from captioning.data.vocabulary import Vocabulary
from captioning.decoding import Caption
from captioning.decoding.confidence import quantiles_of
from captioning.errors import CaptioningError, no_setting
from captioning.features.brought import move_features
from captioning.features.inputs import inputs_of
from captioning.runs.checkpoint_files import keep_quantiles
from captioning.runs.kept_attention import KeptCaption
from captioning.runs.results import file_record
from captioning.runs.software import device_name
from captioning.runs.splits import read_again
from captioning.trained import TrainedCaptioner


class CheckpointCaptions:
    """Captions that a trained captioner has still to write, for a split of the data set that it was trained on.

    It writes them in 32-bit precision, whatever the run was trained and tested in, unless `bfloat16` is set.
    """

    def __init__(self, config: DictConfig) -> None:
        decoding = settings_given(config.decoding)
        self._bfloat16: bool = config.bfloat16
        self._calibrate: bool = config.calibrate
        self._files, self._split = decoding.get("ensemble", [config.checkpoint]), config.split
        self._captioner = TrainedCaptioner.from_checkpoint(
            config.checkpoint, config.device, decoding, list(config.modules), config.bfloat16
        )
        self._cache = given_path(config.cache)
        backbones = [network.backbone for network in self._captioner.networks]
        if config.features is not None:
            move_features(backbones, given_path(config.features))
        self._data = data_settings(self._captioner.config, config)
        splits = read_again(self._data, backbones, self._cache, list(config.modules))
        check_vocabulary(splits, self._data.get("vocabulary"), self._captioner.vocabulary)
        self._digest = digest(splits)
        self._examples = splits[config.split]
        names = photographs(self._examples, self._data["reader"].get("root"))
        self.photographs = {example.image_id: name for example, name in zip(self._examples, names, strict=True)}
        self.kept: list[KeptCaption] = []
        self._keep = config.keep
        texts = reference_texts(self._examples)
        self.references = {example.image_id: text for example, text in zip(self._examples, texts, strict=True)}
        self.given: dict[str, Mapping[ImageId, str]] = {}

    def captions(self) -> Mapping[ImageId, str]:
        """Decodes the whole split; with `calibrate` the checkpoint keeps the quantiles of the captions' scores."""
        inputs, captions, scores = self._inputs(), dict[ImageId, str](), list[float]()
        decoded = decode(self._captioner, inputs, len(self._examples), self._data["eval_batch_size"])
        for row, (example, caption) in enumerate(zip(self._examples, decoded, strict=True)):
            captions[example.image_id] = self._captioner.vocabulary.decode(caption.tokens)
            scores.append(caption.score)
            if row < self._keep:
                rows, pixels = [each.rows([row]) for each in inputs], [each.pixels for each in inputs]
                self.kept += self._captioner.kept(example.image_id, caption, rows, pixels)
        if self._calibrate:
            keep_quantiles(checkpoint_path(self._files[0]), quantiles_of(scores))
        return captions

    def _inputs(self) -> list[Inputs]:
        networks = self._captioner.networks
        return [inputs_of(self._examples, network.backbone, self._cache, self._split) for network in networks]

    def provenance(self) -> dict[str, Any]:
        """Checkpoint, data and decoding."""
        return {
            "checkpoint": file_record(self._files[0]),
            **({"ensemble": [file_record(file) for file in self._files]} if len(self._files) > 1 else {}),
            "split": self._split,
            "data_digest": self._digest,
            "decoding": self._captioner.config["decoding"],
            "device": device_name(self._captioner.device),
            **({"bfloat16": True} if self._bfloat16 else {}),
        }


def data_settings(saved: Mapping[str, Any], config: DictConfig) -> dict[str, Any]:
    """The run's data settings with those of `config` in their place, and its folders moved where `config` says.

    Raises:
        CaptioningError: a setting that the run's data has not, as `data.root` of drawn scenes, or a wrong value.
    """
    data: dict[str, Any] = saved["data"]
    given: dict[str, Any] = OmegaConf.to_container(config.data, resolve=True)  # type: ignore[assignment]
    given = {name: value for name, value in given.items() if value is not None}
    for name in given:
        if name not in data:
            raise CaptioningError(no_setting("data", name, list(data)))
    for old, new in ((data.get("root"), config.data.root), (saved.get("cache"), config.cache)):
        if isinstance(old, str) and new is not None:
            data = relocate(data, old, str(new))
    data = merged(data, given)
    check_call("data", CaptionData, {"eval_batch_size": data.get("eval_batch_size")})
    return data


def check_vocabulary(splits: Splits, settings: Any, vocabulary: Vocabulary) -> None:
    """Refuses a data set that is not the one that `vocabulary` was made from, or brought to as `settings` says.

    Raises:
        CaptioningError: its training captions give other words.
    """
    if settings == FROM_CHECKPOINT:  # of another data set, before this one
        return
    words = (reference.words for example in splits["train"] for reference in example.references)
    check_value("data.vocabulary", settings, dict[str, Any])
    check_call("data.vocabulary", Vocabulary.from_captions, settings)
    found = Vocabulary.from_captions(words, **settings)
    if found != vocabulary:
        shared = len(set(found.words) & set(vocabulary.words))
        raise CaptioningError(
            "this is not the data set that the checkpoint was trained on: its training captions give "
            f"{len(found.words)} words, the checkpoint has {len(vocabulary.words)}, and {shared} are in both. Set "
            "data.root, or caption other photographs with captioning.predict and score them with captions=FILE"
        )


def decode(captioner: TrainedCaptioner, inputs: Sequence[Inputs], count: int, batch_size: int) -> Iterator[Caption]:
    """The captions of `count` images in order, `batch_size` at a time, from what each network reads of them."""
    with counter("captions", count, "image") as bar:
        for first in range(0, count, batch_size):
            rows = range(first, min(first + batch_size, count))
            captions = captioner.decode([each.rows(rows) for each in inputs], [each.pixels for each in inputs])
            yield from captions
            bar.update(len(rows))
