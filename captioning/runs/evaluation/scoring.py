"""Write and score the captions of an evaluation."""

from collections.abc import Mapping, Sequence
from itertools import compress
from pathlib import Path
from typing import Any

from captioning.config.schemas.evaluate import EvaluateSettings
from captioning.data.readers.parsing import ImageId
from captioning.data.words import Language
from captioning.metrics import ScoredImage, Scorer
from captioning.runs.evaluation.captions import write_captions


class Scoring:
    """Write and score captions of the images that have `references`, perhaps none of them.

    `groups` are those of the images, empty for none; `names` those of their files below
    `root`, if they are known; `metrics` those that the data set asks for.
    """

    def __init__(
        self,
        config: EvaluateSettings,
        references: Mapping[ImageId, Sequence[str]],
        groups: Sequence[str],
        language: Language,
        names: Sequence[str] = (),
        root: Path = Path(),
        metrics: Sequence[str] = (),
    ):
        names = names or [""] * len(references)
        self._images, self._references = references.keys(), [*references.values()]
        self._names, self._groups = names, groups
        self.groups: dict[str, dict[str, float]] = {}  # their scores in the first view
        self._shuffled, self.language = config.shuffled, language
        self.provenance: dict[str, Any] = {}
        images = [
            ScoredImage(image, root / name if name else None)
            for image, name in zip(references, names, strict=True)
            if references[image]
        ]
        texts = [*filter(None, references.values())]
        chosen = [*config.metrics, *metrics]
        self.scorer = Scorer(texts, chosen, config.timeout, language, images) if texts else None

    def start(self) -> None:
        """Start the scorer, which takes seconds, while captions are made."""
        if self.scorer:
            self.scorer.start()

    def score(self, file: Path, captions: Sequence[Sequence[str]]) -> dict[str, float]:
        """Score the captions of each image, or those of the next one if `shuffled`.

        `file` gets them first.
        """
        if self._shuffled:
            captions = [*captions[1:], *captions[:1]]
        references = self._references
        columns = self._images, captions, references, self._names, self._groups
        write_captions(file, *columns)  # on disk before any scorer can fail
        if self.scorer is None:
            return {}
        scores = self.scorer.score(dict(enumerate(compress(captions, references))))
        self.groups = self.groups or scores.by_group([*compress(self._groups, references)])
        write_captions(file, *columns, scores)
        self.provenance["signatures"] = self.scorer.signatures
        return scores.corpus
