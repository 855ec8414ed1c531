"""Results of a test or an evaluation: `captions.jsonl` and `scores.json`."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from captioning.data.readers.captions import CaptionRecord
from captioning.files import to_json, write_json, write_text

if TYPE_CHECKING:
    from captioning.metrics import Scores

SCORES = "scores.json"


def write_captions(
    path: Path,
    image_ids: Iterable[int | str],
    captions: Iterable[Sequence[str]],
    references: Iterable[Sequence[str]],
    photographs: Iterable[str],
    groups: Iterable[str],
    scores: "Scores | None" = None,
) -> None:
    """Write a JSON line per image: `image_id`, `caption`, `references`, and more if it is known.

    That is `alternatives`, further captions of the image; `photograph`, the path of its file, but
    not of a sentence; `group`; `scores`, which those with references have; and `hallucinated`,
    objects that the caption names and that are not there.
    """
    lines, scored = [], count()
    for image_id, (caption, *others), texts, photograph, group in zip(
        image_ids, captions, references, photographs, groups, strict=True
    ):
        record = CaptionRecord(image_id=image_id, caption=caption, references=list(texts))
        if others:
            record.alternatives = others
        if photograph:
            record.photograph = photograph
        if group:
            record.group = group
        if scores is not None:
            row = next(scored) if texts else None
            # as computed: rounding undoes their order
            record.scores = {} if row is None else dict(scores.per_image[row])
            if scores.hallucinated:
                record.hallucinated = None if row is None else list(scores.hallucinated[row])
        lines.append(to_json(record.model_dump(exclude_unset=True), ensure_ascii=False) + "\n")
    write_text(path, "".join(lines))


def write_scores(
    folder: Path,
    scores: Mapping[str, float],
    provenance: Mapping[str, Any],
    views: Mapping[str, Mapping[str, float]] | None = None,
    groups: Mapping[str, Mapping[str, float]] | None = None,
) -> None:
    """Write `scores.json`: scores, those of further views and of groups, their provenance."""
    further = {"views": views} if views else {}
    further |= {"groups": groups} if groups else {}
    write_json(folder / SCORES, {"scores": scores, **further, "provenance": provenance})
