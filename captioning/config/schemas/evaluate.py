"""The settings of `evaluate`, and which of them go together."""

from typing import Any, Literal

from omegaconf import open_dict

from captioning.config.settings import CaptionerSettings, Settings, check_folder
from captioning.config.types import Distinct, GivenPath, Name, PathText, Seconds, given_path
from captioning.data.views import NAMED
from captioning.data.words import Code, Tokens
from captioning.errors import CaptioningError
from captioning.metrics.table import MetricNames
from captioning.pretrained.library import is_untrained
from captioning.pretrained.named import is_elsewhere


class DataOverrides(Settings, extra="allow"):
    """Settings below `data`, which a run or a data set has too."""

    root: Any = None
    """folder of the data set; null: as in the run"""
    eval_batch_size: Any = None
    """images per batch; null: as in the run"""
    groups: str | None = None
    """also scores by group: a column or key of the images, or length; null: as in the run"""


class EvaluateSettings(CaptionerSettings):
    """Settings of `captioning evaluate`."""

    split: Literal["test", "val"]
    """or val"""
    images: PathText | None
    """a folder of images to use instead of the split"""
    corruptions: Distinct[Literal[*NAMED]]  # type: ignore[valid-type]
    """add png, jpeg75, jpeg50, blur or dark: the same images, changed"""
    calibrate: bool
    """true, with split=val: only store the validation scores for `confidence` in the checkpoint"""
    cache: GivenPath
    """drawn scenes and cached features"""
    features: PathText | None
    """the features of backbone=features; null: as in the run"""
    whole_features: PathText | None
    """those of backbone.whole; null: as in the run"""
    data: DataOverrides
    captions: PathText | None
    """COCO's results format, a run's captions.jsonl, or a table"""
    references: PathText | None
    """JSON of COCO, Karpathy or {"IMAGE": ["CAPTION", ..]}, a table, or a captions.jsonl"""
    marked: bool
    """true: also references that are marked is_rejected or is_precanned, as VizWiz has them"""
    language: Code | None
    """ISO 639-1 code of the captions' language; null: the checkpoint's, or en"""
    tokens: Tokens | None
    """characters, words or your own function; null: the checkpoint's, or words"""
    shuffled: bool
    """true: each caption with the next image's references: chance level from language priors"""
    common_only: bool
    """true: score only images that are in all files, and count them"""
    metrics: MetricNames
    """also SPICE (a large download and Java 8 to 14)"""
    timeout: Seconds
    """seconds without an answer after which a Java scorer is given up"""
    results: PathText | None
    """a file in COCO's results format, as servers of challenges take it"""
    name: Name
    """the results are in <runs>/<name>"""
    runs: PathText
    """the folder of run folders"""
    folder: str | None
    """set by the command"""

    @property
    def another_data_set(self) -> bool:
        """Whether it has its own reader, as with `data=csv`."""
        return "_target_" in (self.data.plain.get("reader") or {})

    @property
    def other_images(self) -> bool:
        """Whether it is of a folder, or of changed images."""
        return self.images is not None or self.corruptions != ["full"]


FOR_TRAINING = ("backbone", "schedule", "trainer")
"""Groups that a data set may choose; a checkpoint has its own or needs none."""


def check_evaluation(config: EvaluateSettings) -> None:
    """Refuse settings that do not go together, and files that are not there."""
    with open_dict(config.composed):
        for name in FOR_TRAINING:
            config.composed.pop(name, None)
    if config.calibrate:
        check_calibration(config)
    trained = config.checkpoint is not None or config.decoding.ensemble is not None
    if trained == (config.captions is not None):
        raise CaptioningError("give either checkpoint=FILE, or captions=FILE and references=FILE")
    if config.results:
        check_folder("results", given_path(config.results).parent)
    if trained:
        check_captioning(config)
    elif config.other_images:
        raise CaptioningError(
            "images and corruptions are for a checkpoint=FILE to caption: leave them out with "
            "captions=FILE"
        )


def check_captioning(config: EvaluateSettings) -> None:
    """Refuse settings of files beside a checkpoint, and two things to caption."""
    images, referred = config.images, config.references
    another = config.another_data_set
    if referred and not images:
        raise CaptioningError(
            "a checkpoint is scored on references of its own data set: leave references out, or "
            "name their photographs with images=FOLDER"
        )
    own_words = not another and {"language", "tokens"} & config.data.plain.keys()
    if config.language or config.tokens or own_words:
        raise CaptioningError("language and tokens are those of the checkpoint: leave them out")
    if images and another:
        raise CaptioningError(
            "images=FOLDER and another data set are two things to caption: leave one of them out"
        )
    config.check_checkpoints()
    if is_untrained(config.checkpoint) and not (images or another):
        raise CaptioningError(
            "a captioner that was not trained here knows no data set: name one (data=karpathy "
            "data.root=..), or images=FOLDER, with references=FILE for scores"
        )
    for key, folder in {"images": config.images, "data.root": config.data.root}.items():
        if folder is not None:
            check_folder(key, folder)


def check_calibration(config: EvaluateSettings) -> None:
    """Refuse what the checkpoint's own search would not have said of its own validation split."""
    altered = config.bfloat16 or config.shuffled or config.search
    other = config.split != "val" or config.other_images or config.another_data_set
    if altered or other or config.checkpoint is None or is_elsewhere(config.checkpoint):
        raise CaptioningError(
            "calibrate=true writes into a checkpoint how it scores its own validation captions: "
            "give checkpoint=FILE and split=val, and leave out decoding, bfloat16, shuffled, "
            "images, corruptions and other data"
        )
