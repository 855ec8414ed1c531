"""Results of a test or an evaluation: `captions.jsonl` and `scores.json`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from captioning.data.readers.captions import CaptionRecord
from captioning.files import to_json, write_json, write_text

if TYPE_CHECKING:
    from captioning.metrics import Scores

SCORES = "scores.json"


def write_captions(
    path: Path,
    image_ids: Sequence[int | str],
    captions: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    scores: "Scores | None" = None,
    photographs: Sequence[str] | None = None,
    groups: Sequence[str] | None = None,
) -> None:
    """Write a JSON line per image: `image_id`, `caption`, `references`, and more if it is known.

    That is `alternatives`, further captions of the image; `photograph`, the path of its file, but
    not of a sentence; `group`; `scores`; and `hallucinated`, objects that the caption names and
    that are not there.
    """
    lines = []
    for row, (image_id, (caption, *others), texts) in enumerate(
        zip(image_ids, captions, references, strict=True)
    ):
        record = CaptionRecord(image_id=image_id, caption=caption, references=list(texts))
        if others:
            record.alternatives = others
        if photographs and photographs[row]:
            record.photograph = photographs[row]
        if groups and groups[row]:
            record.group = groups[row]
        if scores is not None:
            record.scores = dict(scores.per_image[row])  # as computed: rounding undoes their order
            if scores.hallucinated:
                named = scores.hallucinated[row]
                record.hallucinated = None if named is None else list(named)
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
