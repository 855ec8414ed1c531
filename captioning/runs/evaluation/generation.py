"""Captions that a captioner generates of the images of an evaluation."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from captioning.backbones.precomputed import move_features
from captioning.config.schemas.evaluate import EvaluateSettings
from captioning.config.types import given_path
from captioning.data.example import image_names, reference_texts
from captioning.data.readers.groups import LENGTH, with_groups
from captioning.data.views import NAMED
from captioning.data.vocabulary import Vocabulary
from captioning.decoding import GeneratedCaption
from captioning.decoding.confidence import with_entropy
from captioning.features.build import FeatureStore
from captioning.metrics.wording import TrainingCaptions, caption_statistics
from captioning.models.protocol import Captioner
from captioning.progress import progress_bar
from captioning.runs.evaluation.attention_file import AttentionRecord
from captioning.runs.evaluation.data_set import DataSet, data_settings
from captioning.runs.provenance import device_name


def wording_of(
    captions: Sequence[GeneratedCaption], vocabulary: Vocabulary, training: TrainingCaptions | None
) -> dict[str, float]:
    """Statistics of the words of generated captions, and of their entropies."""
    words = [vocabulary.words_of(caption.tokens) for caption in captions]
    finished = [caption.finished for caption in captions]
    entropies = [c.word_entropies(vocabulary.word_numbers(c.tokens)) for c in captions]
    return caption_statistics(words, finished, entropies, training, vocabulary.language.code)


class Generation:
    """The images of an evaluation, and what a `TrainedCaptioner` says of them in each view."""

    def __init__(self, config: EvaluateSettings, captioner: Any):
        if isinstance(captioner.first.model, Captioner):  # not one of a library
            captioner.search = with_entropy(captioner.search)
        self._captioner, self.language = captioner, captioner.vocabulary.language
        self._backbones = [network.backbone for network in captioner.networks]
        for setting, path in {"path": config.features, "whole": config.whole_features}.items():
            if path:
                move_features(self._backbones, given_path(path), setting)
        data = data_settings(captioner.config, config)
        self._data_set = data_set = DataSet.of_evaluation(
            config, data, self._backbones, captioner.vocabulary
        )
        self._batch_size = data["eval_batch_size"]
        self._store = FeatureStore(config.cache)
        examples = data_set.examples
        images = [example.image_id for example in examples]
        self.references = dict(zip(images, reference_texts(examples), strict=True))
        self.image_names = image_names(examples, data_set.root)
        column = data.get("groups") if config.images is None else config.data.groups
        grouped = column == LENGTH or any(example.group for example in examples)
        if config.split == "val" and not grouped:
            column = None  # the test has groups, such as domains, that validation may not have
        examples = with_groups(examples, column, self.language)
        self.groups = [example.group for example in examples]
        self.root = given_path(data_set.root or "")
        # Metrics that the data set asks for; earlier drawn scenes, for one that is no longer here.
        asked = () if config.images else data.get("metrics", ())
        self.metrics = [name for name in asked if name != "hallucination"]
        self.provenance: dict[str, Any] = {
            **data_set.provenance,
            "decoding": captioner.config["decoding"],
            "device": device_name(captioner.device),
            "system": captioner.first.title,
        }
        self.attention: list[AttentionRecord] = []  # of the first captions of one view

    def generate(
        self, view: str, name: str = "", save_attention: int = 0
    ) -> Iterator[GeneratedCaption]:
        """Caption every image in a view, called `name`; keep the attention of the first
        `save_attention`.
        """
        examples, captioner = self._data_set.examples, self._captioner
        inputs = [
            backbone.with_transform(NAMED[view]).open_inputs(examples, self._store, name or view)
            for backbone in self._backbones
        ]
        with progress_bar("captions", len(examples), "image") as bar:
            for first in range(0, len(examples), self._batch_size):
                rows = range(first, min(first + self._batch_size, len(examples)))
                captions = captioner.decode([source.rows(rows) for source in inputs])
                for row, caption in zip(rows, captions, strict=True):
                    if row < save_attention:
                        one, example = [source.rows([row]) for source in inputs], examples[row]
                        for record in captioner.attention_record(example.image_id, caption, one):
                            labels = example.source[: record.maps["mean"].shape[-1]]
                            self.attention.append(replace(record, labels=labels))
                    yield caption
                bar.update(len(rows))

    def caption(
        self, view: str, several: bool, save_attention: int
    ) -> tuple[list[list[str]], dict[str, float]]:
        """The captions of each image in a view, and statistics of the first ones."""
        name = f"{self._data_set.name}, {view}" if several else self._data_set.name
        generated = [
            caption.without_maps() for caption in self.generate(view, name, save_attention)
        ]
        vocabulary = self._captioner.vocabulary
        statistics = wording_of(generated, vocabulary, self._data_set.training)
        return [[vocabulary.decode(c.tokens) for c in one.every] for one in generated], statistics
