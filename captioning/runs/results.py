"""What a test or an evaluation leaves in its folder: `captions.jsonl` and `scores.json`."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from captioning.config.paths import checkpoint_path
from captioning.files import to_json, write_json, write_text
from captioning.metrics import Scores


def write_captions(
    path: Path,
    image_ids: Sequence[int | str],
    captions: Sequence[str],
    references: Sequence[Sequence[str]],
    scores: Scores | None = None,
    photographs: Sequence[str] | None = None,
) -> None:
    """One JSON line per image: `image_id`, `caption`, `references`, and `photograph` and per-image `scores` if known.

    The scores are written as computed, since rounding would undo their order.

    Args:
        path: the file.
        image_ids: of the images.
        captions: one for each.
        references: those of each.
        scores: of the same images in the same order.
        photographs: of the images, as `captioning.data.example.photographs` calls them.
    """
    lines = []
    for row, (image_id, caption, texts) in enumerate(zip(image_ids, captions, references, strict=True)):
        line: dict[str, Any] = {"image_id": image_id, "caption": caption, "references": list(texts)}
        if photographs is not None:
            line["photograph"] = photographs[row]
        if scores is not None:
            line["scores"] = scores.per_image[row]
        lines.append(to_json(line, ensure_ascii=False) + "\n")
    write_text(path, "".join(lines))


def write_scores(
    path: Path,
    scores: Mapping[str, float],
    provenance: Mapping[str, Any],
    views: Mapping[str, Mapping[str, float]] | None = None,
) -> None:
    """The scores of all captions, those of further views of the same photographs, and where they come from."""
    seen = {"views": {view: dict(found) for view, found in views.items()}} if views else {}
    write_json(path, {"scores": dict(scores), **seen, "provenance": dict(provenance)})


def file_record(file: object) -> dict[str, str]:
    """A file's name or address, and its content, for the provenance."""
    with checkpoint_path(file).open("rb") as content:
        return {"file": str(file), "sha256": hashlib.file_digest(content, "sha256").hexdigest()}
