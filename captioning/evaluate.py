"""Score captions: `captioning evaluate checkpoint=FILE`.

Or `captions=FILE references=FILE`, without a model.

A checkpoint captions its test split, or `images=FOLDER`, also in `corruptions` of the same
photographs. `captioning compare` compares the result with another one.
"""

import logging
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from captioning.config.command import command, start
from captioning.config.schemas.evaluate import EvaluateSettings, check_evaluation
from captioning.config.types import given_path
from captioning.data.readers.captions import read_captions, read_references
from captioning.data.readers.groups import choose_groups
from captioning.data.readers.ids import common_images, match_ids
from captioning.data.readers.options import reading
from captioning.data.words import Language
from captioning.describe.findings import find_in_texts
from captioning.metrics.statistics import is_constant
from captioning.metrics.table import unsupported_metrics
from captioning.metrics.wording import wording
from captioning.pretrained.named import checkpoint_path
from captioning.report.summary import print_summary, print_views
from captioning.runs.evaluation.attention_file import FILE as ATTENTION
from captioning.runs.evaluation.attention_file import write
from captioning.runs.evaluation.captions import FILE, write_results, write_scores
from captioning.runs.evaluation.scoring import Scoring
from captioning.runs.folders.folder import new_folder
from captioning.runs.provenance import file_record, software

if TYPE_CHECKING:
    from captioning.runs.evaluation.generation import Generation

log = logging.getLogger(__name__)


@command("evaluate.yaml", EvaluateSettings)
def main(config: EvaluateSettings) -> None:
    """Score captions of files or those of a checkpoint, or calibrate a checkpoint."""
    check_evaluation(config)
    if config.calibrate:
        calibrate(config)
    elif config.captions:
        score_files(config)
    else:
        score_checkpoint(config)


def score_files(config: EvaluateSettings) -> None:
    """Score the captions of a file with the references of another one."""
    language, records = Language.of(config.plain), read_captions(given_path(config.captions))
    with reading(groups=config.data.groups):
        known = read_references(
            given_path(config.references), captions=records, marked=config.marked
        )
    captions = {image: record.captions for image, record in match_ids(records, known).items()}
    name = f"captions={config.captions}"
    images = common_images(known, {name: captions}, config.common_only)
    references = {image: known[image].references for image in images}
    own = [known[image].group for image in images]
    groups = choose_groups(own, references.values(), config.data.groups, language)
    scoring = Scoring(config, references, groups, language)
    extra = len(captions) - len(images)
    line = f"images: {len(images)}"
    if len(images) < len(known):
        line += f" of {len(known)}"
    if extra:
        line += f"; {extra} captions of {name} left out"
    every = [text for record in known.values() for text in record.references]
    texts = {name: list(chain(*captions.values())), f"references={config.references}": every}
    folder = begin(config, scoring, [line], texts)
    scored = [captions[image] for image in images]
    words = [language.words_of(first) for first, *_ in scored]
    scores = scoring.score(folder / FILE, scored) | wording(words, language.code)
    write_results(config.results, captions)
    provenance = {
        "captions": file_record(config.captions),
        "references": file_record(config.references),
        "images": len(images),
        "images_with_references": len(known),
        "captions_left_out": extra,
    }
    finish(folder, scoring, {"as made": scores}, provenance, "score")


def score_checkpoint(config: EvaluateSettings) -> None:
    """Caption the images of a split or a folder, in each of the `corruptions`, and score that."""
    generation, files = load_generation(config)
    references = generation.references
    scoring = Scoring(
        config,
        references,
        generation.groups,
        generation.language,
        generation.image_names,
        generation.root,
        generation.metrics,
    )
    texts = {"references": list(chain(*references.values()))}
    folder = begin(config, scoring, [f"images: {len(references)}"], texts)
    views: dict[str, dict[str, float]] = {}
    for view in config.corruptions:
        scoring.start()
        save_attention, name = config.save_attention, FILE
        if views:  # those after the first
            save_attention, name = 0, f"captions-{view}.jsonl"
        captions, statistics = generation.caption(view, len(config.corruptions) > 1, save_attention)
        views[view] = scoring.score(folder / name, captions) | statistics
        if name == FILE:  # afterwards, as this file may be on another disk, which is full
            write_results(config.results, dict(zip(references, captions, strict=True)))
    if generation.attention:
        write(folder / ATTENTION, generation.attention)
    provenance: dict[str, Any] = {"checkpoint": file_record(files[0])}
    if len(files) > 1:
        provenance["ensemble"] = [file_record(file) for file in files]
    provenance |= generation.provenance
    if config.bfloat16:
        provenance["bfloat16"] = True
    provenance |= {
        "images": len(references),
        "images_with_references": sum(map(bool, references.values())),
        "captions_left_out": 0,
    }
    title = "score" if config.images else f"{config.split} score"
    finish(folder, scoring, views, provenance, title)


def finish(
    folder: Path,
    scoring: Scoring,
    views: Mapping[str, Mapping[str, float]],
    provenance: dict[str, Any],
    title: str,
) -> None:
    """Write the scores of each view of the images, and print them."""
    first, *others = views
    provenance = software(scoring.language) | provenance | scoring.provenance
    write_scores(folder, views[first], provenance, views if others else None, scoring.groups)
    print_summary(folder, f"{title}, {first}" if others else title)
    if others:
        print_views(folder)


def calibrate(config: EvaluateSettings) -> None:
    """Write the scores of its own validation captions into a checkpoint, for the confidence."""
    generation, (file,) = load_generation(config)
    from captioning.decoding.confidence import quantiles_of
    from captioning.runs.checkpoints.checkpoint import keep_quantiles

    scores = [caption.score for caption in generation.generate("full", config.split)]
    keep_quantiles(checkpoint_path(file), quantiles_of(scores))
    print(f"{file} keeps the scores of its {len(scores):,} validation captions")


def load_generation(config: EvaluateSettings) -> "tuple[Generation, Sequence[str]]":
    """Load a checkpoint or an ensemble, in 32-bit precision unless `bfloat16`, and its images."""
    from captioning.captioner import TrainedCaptioner  # here, because PyTorch takes seconds
    from captioning.runs.evaluation.generation import Generation

    decoding = config.search
    captioner = TrainedCaptioner.from_checkpoint(
        config.checkpoint, config.device, decoding, config.modules, config.bfloat16
    )
    return Generation(config, captioner), decoding.get("ensemble", [config.checkpoint])


def begin(
    config: EvaluateSettings,
    scoring: Scoring,
    lines: Sequence[str],
    texts: Mapping[str, Sequence[str]],
) -> Path:
    """Make the run folder; log what is scored and left out, and faults of `texts`, by name."""
    folder = new_folder(config.composed, Path(config.runs) / str(config.name))
    scorer = scoring.scorer
    lines = [*lines, *unsupported_metrics(config.metrics, scoring.language.code)]
    if scorer is None and config.images is None:
        lines.append(
            "no references: captions are not scored; results=FILE writes them for a server"
        )
    if scorer and "CIDEr" in config.metrics and is_constant(scorer.references):
        lines.append(
            "CIDEr is left out: it is 0 for any captions of one image, or of images with the same "
            "references"
        )
    log.info("%s\nrun folder: %s", "\n".join(lines), folder)
    for name, captions in texts.items():
        for finding in find_in_texts(captions):
            log.warning("%s, %s; they are scored as they are", name, finding)
    return folder


if __name__ == "__main__":
    start(main)
