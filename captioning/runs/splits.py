"""The data set that a checkpoint was trained on, read again from the settings that it holds."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from captioning.backbones import Backbone
from captioning.config.registry import build
from captioning.data.example import Splits
from captioning.data.photographs import readable
from captioning.data.readers.splits import read
from captioning.errors import CaptioningError, quoted


def read_again(data: Mapping[str, Any], backbones: Sequence[Backbone], cache: Path, modules: Sequence[str]) -> Splits:
    """The examples of every split.

    Args:
        data: settings of the run, plain values.
        backbones: that see the photographs.
        cache: the folder of cached things, and the only one in which scenes are drawn.
        modules: of the user, which may define the reader.

    Raises:
        CaptioningError: there is no such data set, or scenes would be drawn elsewhere.
    """
    reader = build("data.reader", data["reader"], modules)
    target: Path | None = getattr(reader, "writes_to", None)
    if target and not target.resolve().is_relative_to(cache.resolve()):
        raise CaptioningError(
            f"the checkpoint would have scenes drawn in {quoted(target)}, outside of cache={cache}: set "
            "cache to the folder that the run had, or +data.reader.root=FOLDER"
        )
    splits = read(reader, any(backbone.reads_photographs for backbone in backbones))
    if data.get("skip_broken") and backbones[0].reads_photographs:  # as the run did, for its vocabulary
        splits = readable(splits, backbones[0].transform, cache / "photographs", skip_broken=True)
    return splits
