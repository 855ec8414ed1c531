"""Write and score the captions of an evaluation, view by view."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from captioning.config.settings import raise_first
from captioning.data.readers.captions import ImageId
from captioning.data.readers.objects import read_objects
from captioning.data.words import ENGLISH, Language
from captioning.download.named import given_path
from captioning.metrics import Metric, ScoredImage, Scorer, Scores
from captioning.metrics.clip import ClipScore, EmbeddingFiles
from captioning.metrics.hallucination import ENGLISH_OBJECTS, Chair
from captioning.metrics.wording import Said
from captioning.runs.attention_file import KeptCaption
from captioning.runs.results import file_record, write_captions


@dataclass
class Source:
    """Captions to score, and what they are scored with."""

    references: Mapping[ImageId, Sequence[str]]  # of each image, perhaps none
    captions: Callable[[str], Mapping[ImageId, Said]]  # of each image in a view
    wording: Callable[[Sequence[Said]], dict[str, float]]  # statistics without references
    provenance: Mapping[str, Any]
    language: Language
    given: Mapping[str, Mapping[ImageId, Any]] = field(
        default_factory=dict
    )  # captions of files, by name
    photographs: Mapping[ImageId, str] = field(
        default_factory=dict
    )  # names of their files, if known
    root: Path = Path()  # that those are relative to
    metrics: Sequence[str] = ()  # that the data set asks for
    kept: list[KeptCaption] = field(
        default_factory=list
    )  # attention of the first captions of the first view


class Scoring:
    """Write and score the captions of `images`, view by view; `scored` are those with
    references.
    """

    def __init__(self, config: DictConfig, source: Source, images: Sequence[ImageId]) -> None:
        self._source, self._images = source, images
        self._captioned = [*images[1:], *images[:1]] if config.shuffled else images
        self.scored = [image_id for image_id in images if source.references[image_id]]
        references = [source.references[image_id] for image_id in self.scored]
        metrics: list[str | Metric] = [*config.metrics, *source.metrics]
        self._embeddings: EmbeddingFiles | None = None
        if config.embeddings:
            files, embed = [given_path(file) for file in config.embeddings], None
            if config.clip is not None:
                from captioning.features import open_clip  # here, because PyTorch takes seconds

                embed = partial(open_clip.embed, given_path(config.clip))
            self._embeddings = EmbeddingFiles(files, embed)
        self.counts: dict[str, Any] = {}
        if config.objects is not None:
            raise_first({ENGLISH_OBJECTS: source.language.code != ENGLISH})
            self.counts["objects"] = file_record(config.objects)
            objects = read_objects(given_path(config.objects), self.scored)
            metrics.append(Chair(dict(zip(self.scored, objects, strict=True))))
        names = source.photographs
        scored_images = [
            ScoredImage(image_id, source.root / names[image_id] if names else None)
            for image_id in self.scored
        ]
        self.scorer = (
            Scorer(references, metrics, config.timeout, source.language, scored_images)
            if references
            else None
        )
        referred = sum(1 for texts in source.references.values() if texts)
        self.counts |= {
            "images": len(images),
            "images_with_references": referred,
            "captions_left_out": 0,
        }

    def score(self, file: Path, view: str) -> tuple[dict[str, float], Scores | None]:
        """All scores of a view, and those of the scorer; `file` gets the captions."""
        source, images = self._source, self._images
        if self.scorer is not None:
            self.scorer.start()
        captions = source.captions(view)
        self.counts["captions_left_out"] = len(captions) - len(images)
        ours = [captions[image_id] for image_id in self._captioned]
        texts = [caption.text for caption in ours]
        references = [source.references[image_id] for image_id in images]
        paths = (
            [source.photographs[image_id] for image_id in images] if source.photographs else None
        )
        write_captions(
            file, images, texts, references, None, paths
        )  # on disk before any scorer can fail
        worded = source.wording(ours)
        if self.scorer is None:
            return worded, None
        by_image = dict(zip(images, texts, strict=True))
        self.embed([[by_image[image_id]] for image_id in self.scored])
        scores = self.scorer.score(
            {row: by_image[image_id] for row, image_id in enumerate(self.scored)}
        )
        rows = {image_id: row for row, image_id in enumerate(self.scored)}
        every = scores.arranged([rows.get(image_id) for image_id in images])
        write_captions(file, images, texts, references, every, paths)
        return scores.corpus | worded, scores

    def embed(self, captions: Sequence[Sequence[str]]) -> None:
        """Let CLIPScore read the embeddings of these captions, if they are there."""
        scorer = self.scorer
        if self._embeddings is None or scorer is None or scorer.images is None:
            return
        embeddings = self._embeddings.find(captions, scorer.references, scorer.images)
        others = [metric for metric in scorer.metrics if not isinstance(metric, ClipScore)]
        scorer.metrics = others + ([ClipScore(embeddings)] if embeddings else [])
