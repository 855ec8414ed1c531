"""The settings of `evaluate`, and which of them go together."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from annotated_types import Ge, MinLen
from omegaconf import DictConfig, open_dict

from captioning.config.settings import (
    check_checkpoints,
    check_folder,
    check_table,
    has_other_photographs,
    is_another_data_set,
    refuse,
    settings_given,
)
from captioning.config.types import Name, PathText, Seconds
from captioning.data.views import NAMED
from captioning.data.words import Code, Tokens
from captioning.download.named import is_elsewhere
from captioning.errors import CaptioningError
from captioning.metrics.table import MetricNames

SETTINGS: Mapping[str, Any] = {
    **dict.fromkeys(
        ("checkpoint", "images", "features", "captions", "references"), PathText | None
    ),
    **dict.fromkeys(("clip", "objects"), PathText | None),
    **dict.fromkeys(("cache", "runs"), PathText),
    **dict.fromkeys(("calibrate", "bfloat16", "shuffled", "common_only"), bool),
    "split": Literal["test", "val"],
    "corruptions": Annotated[list[Literal[tuple(NAMED)]], MinLen(1)],  # type: ignore[misc]
    "device": str,
    "modules": list[str],
    "language": Code | None,
    "tokens": Tokens | None,
    "embeddings": list[PathText],
    "data": dict[str, Any],
    "save_attention": Annotated[int, Ge(0)],
    "metrics": MetricNames,
    "timeout": Seconds,
    "name": Name,
}
FOR_TRAINING = ("backbone", "schedule", "trainer")
"""Groups that a data set may choose; a checkpoint has its own or needs none."""

ONE_OF_TWO = "give either checkpoint=FILE, or captions=FILE and references=FILE"
CLIP = (
    "clip=FOLDER embeds the photographs of a checkpoint=FILE into embeddings=[FILE.npz]: give both"
)


def check(config: DictConfig) -> None:
    """Refuse wrong settings, and settings that do not go together."""
    with open_dict(config):
        for name in FOR_TRAINING:
            config.pop(name, None)
        config.data.pop("max_words", None)  # of another data set: the run's own bounds its captions
    check_table(SETTINGS, config)
    if config.calibrate:
        check_calibration(config)
    if config.captions is not None:
        check_files(config)
    else:
        check_checkpoint(config)


def check_files(config: DictConfig) -> None:
    """Refuse settings of a checkpoint beside `captions`."""
    rules = {
        ONE_OF_TWO: is_trained(config),
        "images and corruptions are for a checkpoint=FILE to caption: leave them out with "
        "captions=FILE": has_other_photographs(config),
        CLIP: config.clip is not None,
    }
    refuse(rules)


def check_checkpoint(config: DictConfig) -> None:
    """Refuse settings of files beside a checkpoint, and two things to caption."""
    images, references = config.images is not None, config.references is not None
    another = is_another_data_set(config)
    own_words = config.tokens or (not another and {"language", "tokens"} & config.data.keys())
    rules = {
        ONE_OF_TWO: not is_trained(config),
        "a checkpoint is scored on references of its own data set: leave references out, or name "
        "their photographs with images=FOLDER": references and not images,
        "language and tokens are those of the checkpoint: leave them out": config.language
        or own_words,
        f"corruptions={list(config.corruptions)} has one twice: name each once": len(
            set(config.corruptions)
        )
        < len(config.corruptions),
        "images=FOLDER and another data set are two things to caption: leave one of them out": (
            images and another
        ),
        "CLIPScore and objects need references: give references=FILE with images=FOLDER": (
            images and not references and (config.embeddings or config.objects is not None)
        ),
        CLIP: config.clip is not None and not config.embeddings,
    }
    refuse(rules)
    if images:
        check_folder("images", config.images)
    check_checkpoints(config)
    if config.data.get("root") is not None:
        check_folder("data.root", config.data.root)


def check_calibration(config: DictConfig) -> None:
    """Refuse what the checkpoint's own search would not have said of its own validation split."""
    altered = config.bfloat16 or config.shuffled or settings_given(config.decoding)
    altered = altered or has_other_photographs(config) or is_another_data_set(config)
    if (
        altered
        or config.split != "val"
        or config.checkpoint is None
        or is_elsewhere(config.checkpoint)
    ):
        raise CaptioningError(
            "calibrate=true writes into a checkpoint how it scores its own validation captions: "
            "give checkpoint=FILE and split=val, and leave out decoding, bfloat16, shuffled, "
            "images, corruptions and other data"
        )


def is_trained(config: DictConfig) -> bool:
    """Return True if a checkpoint or an ensemble is named."""
    return config.checkpoint is not None or config.decoding.get("ensemble") is not None
