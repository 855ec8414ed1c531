"""Results of a test or an evaluation in its folder: `captions.jsonl` and `scores.json`.

The lines of a recorded experiment are in `captions.jsonl.gz`.

A recorded experiment stores image ids and captions alone. The references of the split lie once for
all its runs, as `references/DIGEST.jsonl.gz` in a folder above, and scores of single captions are
computed when they are asked for.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from captioning.config.types import given_path
from captioning.data.readers.captions import (
    HINT,
    NUMBER,
    CaptionRecord,
    add_references,
    read_captions,
)
from captioning.data.words import Language
from captioning.files import read_state, refuse_damage, sha256, to_json, write_json, write_text
from captioning.metrics.java import has_java
from captioning.metrics.scorer import Scorer, Scores
from captioning.metrics.table import SCORES
from captioning.metrics.wording import commonest_caption

FILE = "captions.jsonl"
RECORDED = "captions.jsonl.gz"
ImageScores = dict[str, float | None]


def captions_file(folder: Path) -> Path:
    """The file of captions of a run or a record; a run that is tested again writes the former."""
    file, recorded = folder / FILE, folder / RECORDED
    return recorded if recorded.is_file() and not file.exists() else file


def read_records(folder: Path) -> list[CaptionRecord]:
    """The captions of a run or a record, with references."""
    file = captions_file(folder)
    with refuse_damage(file, HINT):
        records = list(read_captions(file).values())
        add_references(records, folder)
    return records


def collapse(records: Sequence[CaptionRecord]) -> str | None:
    """A warning if far too many images have the same caption; see `commonest_caption`."""
    return commonest_caption([r.caption for r in records], (r.references for r in records))


def write_captions(
    path: Path,
    image_ids: Iterable[int | str],
    captions: Iterable[Sequence[str]],
    references: Iterable[Sequence[str]],
    names: Iterable[str],
    groups: Iterable[str],
    scores: Scores | None = None,
) -> None:
    """Write a JSON line per image: `image_id`, `caption`, `references`, and more if it is known.

    That is `alternatives`, further captions of the image; `photograph`, the path of its file, but
    not of a sentence; `group`; `scores`, which those with references have; and `hallucinated`,
    objects that the caption names and that are not there.
    """
    lines, scored = [], count()
    for image_id, (caption, *others), texts, name, group in zip(
        image_ids, captions, references, names, groups, strict=True
    ):
        record = CaptionRecord(image_id=image_id, caption=caption, references=list(texts))
        if others:
            record.alternatives = others
        if name:
            record.photograph = name
        if group:
            record.group = group
        if scores:
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
    write_json(folder / "scores.json", {"scores": scores, **further, "provenance": provenance})


def write_results(path: str | None, captions: Mapping[int | str, Sequence[str]]) -> None:
    """Write COCO's results format, as servers of challenges take it, if a path is given.

    Images are called by the numbers at the end of their file names, if all names have different
    ones.
    """
    if path is None:
        return
    numbers = [int(found[1]) for image in captions if (found := NUMBER.search(str(image)))]
    ids = numbers if len({*numbers}) == len(captions) else list(captions)
    entries = zip(ids, captions.values(), strict=True)
    write_json(
        given_path(path), [{"image_id": image, "caption": texts[0]} for image, texts in entries]
    )


def add_scores(
    lines: Collection[CaptionRecord], names: Iterable[str], language: Language, cache: Path
) -> None:
    """Compute the scores of single captions that their lines lack, or read them from `cache`.
    Without Java, METEOR stays absent.

    Args:
        lines: with references.
        names: scores of the whole split, such as `CIDEr`; those without a metric of captions alone
            are passed over.
        language: of the captions.
        cache: a folder, where scores are kept by a digest of all that they depend on.
    """
    wanted = [
        SCORES[n] for n in names if n in SCORES and any(n not in line.scores for line in lines)
    ]
    metrics = tuple(
        dict.fromkeys(score.metric for score in wanted if score.metric and score.per_image)
    )
    if not metrics or not lines:
        return
    references = tuple(tuple(line.references) for line in lines)
    scorer = _scorer(references, metrics, language=language)
    captions = [line.captions for line in lines]
    # Whether there is a Java decides some tokens.
    content = to_json([captions, references, scorer.signatures, has_java()])
    file = cache / "scores" / f"{sha256(content)}.json"
    per_image: list[ImageScores]
    if file.is_file():
        parse = TypeAdapter(list[ImageScores]).validate_json
        per_image = read_state(file, parse, "remove it, and it is computed again")
    else:
        per_image = [dict(scores) for scores in scorer.score(dict(enumerate(captions))).per_image]
        if not scorer.failed:  # else it may succeed the next time
            file.parent.mkdir(parents=True, exist_ok=True)
            write_text(file, to_json(per_image))  # indented, it takes seconds for many runs
    computed = {score.name for score in wanted}
    for line, scores in zip(lines, per_image, strict=True):
        line.scores = {
            name: score for name, score in scores.items() if name in computed
        } | line.scores


# kept, because its METEOR serves all runs of a split
_scorer = lru_cache(maxsize=2)(Scorer)
