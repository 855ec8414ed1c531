"""Scores captions: `python -m captioning.evaluate checkpoint=FILE`, or `captions=FILE references=FILE` without a model.

With `against=FILE` it also compares them with other captions of the same images.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge
from omegaconf import DictConfig, OmegaConf

from captioning.borders.bounds import Name, PathText, Samples, Seconds, Seed
from captioning.borders.files import write_json
from captioning.config.command import command, start
from captioning.config.composed import check_checkpoints, check_table, settings_given
from captioning.config.paths import check_data_root, given_path
from captioning.config.registry import CONF
from captioning.data.caption_files import ImageId, common_images, read_captions, read_references
from captioning.errors import CaptioningError
from captioning.metrics import Scorer
from captioning.metrics.bootstrap import difference, resample
from captioning.metrics.scorer import Metrics
from captioning.metrics.wording import wording
from captioning.report.comparison import print_comparison
from captioning.report.summary import print_summary
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

log = logging.getLogger(__name__)


@command(CONF / "evaluate.yaml")
def main(config: DictConfig) -> None:
    """Scores, compares, writes and prints as `config` says."""
    check(config)
    others = None if config.against is None else read_captions(given_path(config.against))
    source = FileCaptions(config) if config.captions is not None else _of_checkpoint(config)
    given = source.given | ({f"against={config.against}": others} if others is not None else {})
    images = common_images(source.references, given, config.common_only)
    references = [source.references[image_id] for image_id in images]
    scorer = Scorer(references, OmegaConf.to_container(config.metrics), config.timeout)  # type: ignore[arg-type]

    folder = new_folder(config, Path(config.runs) / config.name)
    log.info("%s\nrun folder: %s", describe(len(images), len(source.references), given), folder)
    captions = source.captions()
    spoken_of = images[1:] + images[:1] if config.shuffled else images
    ours = [captions[image_id] for image_id in spoken_of]
    paths = [source.photographs[image_id] for image_id in images] if source.photographs else None
    # on disk before any scorer can fail
    write_captions(folder / "captions.jsonl", images, ours, references, photographs=paths)
    if source.kept:
        write(folder / FILE, source.kept)
    scores = scorer.score(dict(enumerate(ours)))
    write_captions(folder / "captions.jsonl", images, ours, references, scores, paths)
    scored = {
        "images": len(images),
        "images_with_references": len(source.references),
        "captions_left_out": len(captions) - len(images),
    }
    write_scores(folder / "scores.json", scores.corpus | wording(ours), software() | source.provenance() | scored)
    if others is not None:
        theirs = scorer.score({position: others[image_id] for position, image_id in enumerate(images)})
        both = (resample([each.statistics], **config.bootstrap) for each in (scores, theirs))
        differences = difference(*both)
        record = {"against": file_record(config.against), "images": len(images), **config.bootstrap}
        record["scores"] = {name: asdict(found) for name, found in differences.items()}
        write_json(folder / "comparison.json", record)
    print_summary(folder, title="score" if config.captions is not None else f"{config.split} score")
    if others is not None:
        print_comparison(folder)


def check(config: DictConfig) -> None:
    """Refuses settings that do not go together, or are not allowed.

    Raises:
        CaptioningError: says what is allowed.
    """
    check_table(SETTINGS, config)
    trained = config.checkpoint is not None or config.decoding.get("ensemble") is not None
    if trained == (config.captions is not None):
        raise CaptioningError("give either checkpoint=FILE, or captions=FILE and references=FILE")
    if trained and config.references is not None:
        raise CaptioningError("a checkpoint is scored on the references of its own data set: leave references out")
    if config.calibrate:
        _check_calibration(config)
    check_checkpoints(config)
    if config.data.get("root") is not None:
        check_data_root(config.data.root)


def _check_calibration(config: DictConfig) -> None:
    """Refuses to keep other scores than those of a checkpoint's own captions of its validation split."""
    others = config.bfloat16 or config.shuffled or settings_given(config.decoding)
    if config.checkpoint is None or is_elsewhere(config.checkpoint) or config.split != "val" or others:
        raise CaptioningError(
            "calibrate=true writes into a checkpoint how it scores its own validation captions: give checkpoint=FILE "
            "and split=val, and leave out decoding, bfloat16 and shuffled"
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

    def captions(self) -> Mapping[ImageId, str]:
        """The caption of each image."""
        return self._captions

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
