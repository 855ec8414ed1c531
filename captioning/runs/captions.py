"""Records of captions: the lines of `captions.jsonl`, in a run's folder or in a recorded
experiment.

A recorded experiment stores image ids and captions alone. The references of the split lie once for
all its runs, as `references/DIGEST.jsonl` in a folder above, and scores of single captions are
computed when they are asked for.
"""

import hashlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

from pydantic import BaseModel, TypeAdapter

from captioning.data.readers.captions import recorded_references
from captioning.data.readers.reading import ImageId
from captioning.data.words import Language
from captioning.files import read_state, to_json, write_json
from captioning.metrics.java import has_java
from captioning.metrics.scorer import Scorer
from captioning.metrics.table import SCORES

ImageScores = dict[str, float | None]


class CaptionRecord(BaseModel):
    """One line of `captions.jsonl`."""

    image_id: ImageId
    caption: str
    references: list[str] = []  # where it has none of its own, they are in the split's file
    scores: ImageScores = {}
    photograph: str | None = None  # the path of its file below the folder of the data
    hallucinated: list[str] | None = (
        None  # objects that it names and that are not there, if that was judged
    )


def parse_lines(content: str) -> list[CaptionRecord]:
    """Parse `captions.jsonl`."""
    return [CaptionRecord.model_validate_json(line) for line in content.split("\n") if line.strip()]


def add_references(lines: Iterable[CaptionRecord], folder: Path) -> None:
    """Add the references, and the names of photographs, that a recorded experiment's lines do not
    hold.

    Args:
        lines: of the `captions.jsonl` in `folder`.
        folder: that of the record.

    Raises:
        CaptioningError: the split's file of references is absent or another one, or lacks an image.
    """
    bare = [line for line in lines if "references" not in line.model_fields_set]
    images = recorded_references(folder) if bare else None
    if images is not None:
        for line in bare:
            image = images[line.image_id]
            line.references, line.photograph = image.references, line.photograph or image.photograph


def add_scores(
    lines: Sequence[CaptionRecord], names: Iterable[str], language: Language, cache: Path
) -> None:
    """Compute the scores of single captions that their lines do not hold, or read them from
    `cache`.

    Without Java, METEOR stays absent.

    Args:
        lines: with references. names: scores of the whole split, such as `CIDEr`; those without a
        metric of captions alone are passed over. language: of the captions. cache: a folder, where
        scores are kept by a digest of all that they depend on.
    """
    wanted = [
        SCORES[n] for n in names if n in SCORES and any(n not in line.scores for line in lines)
    ]
    metrics = tuple(dict.fromkeys(each.metric for each in wanted if each.metric and each.per_image))
    if not metrics or not lines:
        return
    references = tuple(tuple(line.references) for line in lines)
    scorer = _scorer(references, metrics, language)
    captions = [line.caption for line in lines]
    told = to_json(
        [captions, references, scorer.signatures, has_java()]
    )  # which decides some tokens
    file = cache / "scores" / f"{hashlib.sha256(told.encode()).hexdigest()}.json"
    found: list[ImageScores]
    if file.is_file():
        found = read_state(file, _parse_scores, "remove it, and it is computed again")
    else:
        found = [dict(scores) for scores in scorer.score(dict(enumerate(captions))).per_image]
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, found)
    computed = {score.name for score in wanted}
    for line, scores in zip(lines, found, strict=True):
        line.scores = {
            name: score for name, score in scores.items() if name in computed
        } | line.scores


@lru_cache(maxsize=2)  # its METEOR serves all runs of a split
def _scorer(
    references: tuple[tuple[str, ...], ...], metrics: tuple[str, ...], language: Language
) -> Scorer:
    return Scorer(references, metrics, language=language)


def _parse_scores(content: str) -> list[ImageScores]:
    return TypeAdapter(list[ImageScores]).validate_json(content)
