"""Write and score the captions of an evaluation."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import compress
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from captioning.data.readers.ids import ImageId
from captioning.data.readers.objects import read_objects
from captioning.data.words import Language
from captioning.metrics import ScoredImage, Scorer
from captioning.metrics.bert import BertScore
from captioning.metrics.clip import ClipScore, EmbeddingFiles, PacScore
from captioning.metrics.hallucination import Chair
from captioning.metrics.metric import Metric
from captioning.pretrained.named import given_path
from captioning.runs.evaluation.results import write_captions
from captioning.runs.provenance import file_record


class Scoring:
    """Write and score captions of the images that have `references`, perhaps none of them.

    `photographs` are the names of their files below `root`, if they are known; `metrics` those that
    the data set asks for; `groups` those of the images, if they have any.
    """

    def __init__(
        self,
        config: DictConfig,
        references: Mapping[ImageId, Sequence[str]],
        language: Language,
        photographs: Mapping[ImageId, str] = {},
        root: Path = Path(),
        metrics: Sequence[str] = (),
        groups: Sequence[str] = (),
    ):
        self._references, self._photographs, self._groups = references, photographs, groups
        self.groups: dict[str, dict[str, float]] = {}  # their scores in the first view
        self._shuffled, self.language = config.shuffled, language
        self._scored = [image for image, texts in references.items() if texts]
        texts = [references[image] for image in self._scored]
        chosen: list[str | Metric] = [*config.metrics, *metrics]
        if BertScore.name in chosen:
            place = chosen.index(BertScore.name)
            chosen[place] = BertScore(language.code, config.timeout, **config.bert)
        embed = None
        if config.clip is not None:
            from captioning.metrics import open_clip  # here, because PyTorch takes seconds

            embed = partial(open_clip.embed, given_path(config.clip))
        if config.embeddings:
            files = [given_path(file) for file in config.embeddings]
            clip = PacScore if config.pac_s else ClipScore
            chosen.append(clip(EmbeddingFiles(files, embed)))
        self.provenance: dict[str, Any] = {}
        if config.objects is not None:
            objects = read_objects(given_path(config.objects), self._scored)
            chosen.append(Chair(objects, language.code))
            self.provenance["objects"] = file_record(config.objects)
        images = [
            ScoredImage(image, root / photographs[image] if photographs else None)
            for image in self._scored
        ]
        self.scorer = Scorer(texts, chosen, config.timeout, language, images) if texts else None

    def start(self) -> None:
        """Start the scorer, which takes seconds, while captions are made."""
        if self.scorer is not None:
            self.scorer.start()

    def score(self, file: Path, captions: Mapping[ImageId, Sequence[str]]) -> dict[str, float]:
        """Score the captions of each image, or those of the next one if `shuffled`.

        `file` gets them first.
        """
        images = list(self._references)
        texts = [captions[image] for image in images]
        if self._shuffled:
            texts = [*texts[1:], *texts[:1]]
        by_image = dict(zip(images, texts, strict=True))
        columns = images, texts, list(self._references.values())
        paths = [self._photographs[image] for image in images] if self._photographs else None
        write_captions(
            file, *columns, None, paths, self._groups
        )  # on disk before any scorer can fail
        if self.scorer is None:
            return {}
        scores = self.scorer.score(dict(enumerate(by_image[image] for image in self._scored)))
        scored = compress(self._groups, self._references.values())
        self.groups = self.groups or scores.by_group([*scored])
        rows = {image: row for row, image in enumerate(self._scored)}
        every = scores.arranged([rows.get(image) for image in images])
        write_captions(file, *columns, every, paths, self._groups)
        self.provenance["signatures"] = self.scorer.signatures
        return scores.corpus
