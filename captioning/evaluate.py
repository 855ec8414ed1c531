"""Scores captions: `python -m captioning.evaluate checkpoint=FILE`, or `captions=FILE references=FILE` without a model.

A checkpoint captions its test split, or `images=FOLDER`, also in changed `views` of the same photographs. With
`against=FILE` it also compares them with other captions of the same images.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge, MinLen
from omegaconf import DictConfig, OmegaConf, open_dict

from captioning.config.command import command, start
from captioning.config.paths import check_checkpoints, check_folder, given_path
from captioning.config.registry import CONF
from captioning.config.settings import check_table, has_other_photographs, is_another_data_set, settings_given
from captioning.config.types import Name, PathText, Samples, Seconds, Seed
from captioning.data.readers.captions import ImageId, common_images, read_captions, read_references
from captioning.data.views import NAMED
from captioning.errors import CaptioningError
from captioning.files import write_json
from captioning.metrics import Scorer, Scores
from captioning.metrics.bootstrap import difference, resample
from captioning.metrics.scorer import Metrics
from captioning.metrics.wording import Said, wording
from captioning.report.summary import print_comparison, print_summary, print_views, write_views
from captioning.runs.folder import new_folder
from captioning.runs.kept_attention import FILE, KeptCaption, write
from captioning.runs.results import file_record, write_captions, write_scores
from captioning.runs.software import software
from captioning.transfer.named import is_elsewhere

if TYPE_CHECKING:
    from captioning.work.evaluate import CheckpointCaptions

SETTINGS: Mapping[str, Any] = {
    "checkpoint": PathText | None,
    "split": Literal["test", "val"],
    "images": PathText | None,
    "views": Annotated[list[Literal[tuple(NAMED)]], MinLen(1)],  # type: ignore[misc]
    "device": str,
    "calibrate": bool,
    "bfloat16": bool,
    "modules": list[str],
    "cache": PathText,
    "features": PathText | None,
    "data": dict[str, Any],
    "captions": PathText | None,
    "references": PathText | None,
    "against": PathText | None,
    "shuffled": bool,
    "common_only": bool,
    "keep": Annotated[int, Ge(0)],
    "metrics": Metrics,
    "timeout": Seconds,
    "bootstrap.samples": Samples,
    "bootstrap.seed": Seed,
    "name": Name,
    "runs": PathText,
}

FOR_TRAINING = ("backbone", "schedule", "trainer")
"""Groups that a data set may choose, and that a checkpoint has its own or none of."""

log = logging.getLogger(__name__)


@command(CONF / "evaluate.yaml")
def main(config: DictConfig) -> None:
    """Scores, compares, writes and prints as `config` says."""
    check(config)
    others = None if config.against is None else read_captions(given_path(config.against))
    source = FileCaptions(config) if config.captions is not None else _of_checkpoint(config)
    given = source.given | ({f"against={config.against}": others} if others is not None else {})
    images = common_images(source.references, given, config.common_only)
    scoring = Scoring(config, source, images)

    folder = new_folder(config, Path(config.runs) / config.name)
    log.info("%s\nrun folder: %s", describe(len(images), len(source.references), given), folder)
    first, *more = config.views
    ours, scores = scoring.score(folder / "captions.jsonl", first)
    if source.kept:
        write(folder / FILE, source.kept)
    views = {first: ours} | {view: scoring.score(folder / f"captions-{view}.jsonl", view)[0] for view in more}
    provenance = software() | source.provenance() | scoring.counts
    write_scores(folder / "scores.json", ours, provenance, views if more else None)
    if others is not None:
        assert scores is not None  # `check` has refused it without references
        assert scoring.scorer is not None
        theirs = scoring.scorer.score({row: others[image_id] for row, image_id in enumerate(scoring.scored)})
        both = (resample([each.statistics], **config.bootstrap) for each in (scores, theirs))
        differences = difference(*both)
        record = {"against": file_record(config.against), "images": len(scoring.scored), **config.bootstrap}
        record["scores"] = {name: asdict(found) for name, found in differences.items()}
        write_json(folder / "comparison.json", record)
    title = "score" if config.captions is not None or config.images is not None else f"{config.split} score"
    print_summary(folder, title if not more else f"{title}, {first}")
    if others is not None:
        print_comparison(folder)
    if more:
        write_views(folder)
        print_views(folder)


class Scoring:
    """Writes and scores the captions of the same images, view by view.

    Attributes:
        scorer: None where no image has references.
        scored: the images that have references.
        counts: how many images there are, for the provenance.
    """

    def __init__(self, config: DictConfig, source: "FileCaptions | CheckpointCaptions", images: Sequence[ImageId]):
        self._source, self._images = source, images
        self._shown = [*images[1:], *images[:1]] if config.shuffled else images
        self.scored = [image_id for image_id in images if source.references[image_id]]
        references = [source.references[image_id] for image_id in self.scored]
        metrics: Any = OmegaConf.to_container(config.metrics)
        self.scorer = Scorer(references, metrics, config.timeout) if references else None
        referred = sum(1 for texts in source.references.values() if texts)
        self.counts = {"images": len(images), "images_with_references": referred, "captions_left_out": 0}

    def score(self, file: Path, view: str) -> tuple[dict[str, float], Scores | None]:
        """All scores of one view, and those of the scorer; `file` gets the captions."""
        captions = self._source.captions(view)
        ours = [captions[image_id] for image_id in self._shown]
        self._write(file, ours, None)  # on disk before any scorer can fail
        self.counts["captions_left_out"] = len(captions) - len(self._images)
        worded = self._source.wording(ours)
        if self.scorer is None:
            return worded, None
        words = dict(zip(self._images, ours, strict=True))
        scores = self.scorer.score({row: words[image_id].words for row, image_id in enumerate(self.scored)})
        self._write(file, ours, scores)
        return scores.corpus | worded, scores

    def _write(self, file: Path, ours: Sequence[Said], scores: Scores | None) -> None:
        source, images = self._source, self._images
        if scores is not None:
            each = dict(zip(self.scored, scores.per_image, strict=True))
            scores = replace(scores, per_image=[each.get(image_id, {}) for image_id in images])
        paths = [source.photographs[image_id] for image_id in images] if source.photographs else None
        references = [source.references[image_id] for image_id in images]
        write_captions(file, images, [caption.words for caption in ours], references, scores, paths)


def check(config: DictConfig) -> None:
    """Refuses settings that do not go together, or are not allowed.

    Raises:
        CaptioningError: says what is allowed.
    """
    with open_dict(config):
        for name in FOR_TRAINING:
            config.pop(name, None)
    check_table(SETTINGS, config)
    trained = config.checkpoint is not None or config.decoding.get("ensemble") is not None
    if trained == (config.captions is not None):
        raise CaptioningError("give either checkpoint=FILE, or captions=FILE and references=FILE")
    if trained and config.references is not None and config.images is None:
        raise CaptioningError(
            "a checkpoint is scored on the references of its own data set: leave references out, or name the "
            "photographs that they are of with images=FOLDER"
        )
    if not trained and has_other_photographs(config):
        raise CaptioningError(
            "images and views are for a checkpoint=FILE to caption: leave them out with captions=FILE"
        )
    if len(set(config.views)) < len(config.views):
        raise CaptioningError(f"views={list(config.views)} has a view twice: name each once")
    if config.images is not None:
        check_folder("images", config.images)
        if is_another_data_set(config):
            raise CaptioningError("images=FOLDER and another data set are two things to caption: leave one of them out")
        if config.against is not None and config.references is None:
            raise CaptioningError("against compares scores, and those need references=FILE beside images=FOLDER")
    if config.calibrate:
        _check_calibration(config)
    check_checkpoints(config)
    if config.data.get("root") is not None:
        check_folder("data.root", config.data.root)


def _check_calibration(config: DictConfig) -> None:
    """Refuses to keep other scores than those of a checkpoint's own captions of its validation split."""
    others = config.bfloat16 or config.shuffled or settings_given(config.decoding)
    others = others or has_other_photographs(config) or is_another_data_set(config)
    if config.checkpoint is None or is_elsewhere(config.checkpoint) or config.split != "val" or others:
        raise CaptioningError(
            "calibrate=true writes into a checkpoint how it scores its own validation captions: give checkpoint=FILE "
            "and split=val, and leave out decoding, bfloat16, shuffled, images, views and other data"
        )


def _of_checkpoint(config: DictConfig) -> "CheckpointCaptions":
    from captioning.work.evaluate import CheckpointCaptions  # here, because PyTorch and Lightning take seconds

    return CheckpointCaptions(config)


class FileCaptions:
    """Captions and references that lie in files."""

    photographs: Mapping[ImageId, str] = {}  # they are not known
    kept: Sequence[KeptCaption] = ()

    def __init__(self, config: DictConfig) -> None:
        self._files = {name: config[name] for name in ("captions", "references")}
        self._captions = read_captions(given_path(config.captions))
        self.references = read_references(given_path(config.references))
        self.given: dict[str, Mapping[ImageId, str]] = {f"captions={config.captions}": self._captions}

    def captions(self, view: str) -> Mapping[ImageId, Said]:
        """The caption of each image."""
        return {image_id: Said(caption) for image_id, caption in self._captions.items()}

    def wording(self, captions: Sequence[Said]) -> dict[str, float]:
        """Statistics of the words alone."""
        return wording([caption.words for caption in captions])

    def provenance(self) -> dict[str, Any]:
        """The names and digests of the files."""
        return {name: file_record(path) for name, path in self._files.items()}


def describe(images: int, of: int, given: Mapping[str, Mapping[ImageId, str]]) -> str:
    """One line on what is scored."""
    extra = "".join(
        f"; {len(file) - images} captions of {name} left out" for name, file in given.items() if len(file) > images
    )
    return f"images: {images}" + (f" of {of}" if images < of else "") + extra


if __name__ == "__main__":
    start(main)
