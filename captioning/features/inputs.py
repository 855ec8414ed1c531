"""What stands for the photographs of a split, as a backbone needs them."""

from collections.abc import Sequence
from pathlib import Path

from captioning.backbones import Backbone
from captioning.data.example import Example
from captioning.data.inputs import Inputs, Photographs
from captioning.features.build import build_features


def inputs_of(examples: Sequence[Example], backbone: Backbone, cache: Path, name: str) -> Inputs:
    """Photographs for a trainable backbone; for a frozen one its features, computed where `cache` has them not yet.

    Args:
        examples: the photographs.
        backbone: computes features where it lies.
        cache: the folder of cached things.
        name: of the split, before the progress bar.

    Raises:
        CaptioningError: as for `build_features`.
    """
    paths = [example.path for example in examples]
    if backbone.trainable:
        return Photographs(paths, backbone.transform)
    return build_features(backbone, paths, cache / "features", progress=f"features of {name}")
