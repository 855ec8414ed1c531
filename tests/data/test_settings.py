"""Settings outside their bounds: `(constructor, settings, the key that is named)`."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from pydantic import ValidationError

from captioning.data.example import SPLITS
from captioning.data.module import CaptionData
from captioning.data.readers.coco import CocoReader, CocoSplit
from captioning.data.readers.karpathy import KarpathyReader
from captioning.data.readers.table import TableReader
from captioning.data.shapes import ShapesReader
from captioning.data.views import RandomChange
from captioning.data.vocabulary import Vocabulary
from captioning.tokens import NAMES

shapes = partial(ShapesReader, "folder")
vocabulary = partial(Vocabulary.from_captions, [["a"]])
data = partial(CaptionData, {}, {}, Vocabulary(["a"]))
coco, karpathy, table = (
    partial(reader, "a", "b") for reader in (CocoSplit, KarpathyReader, TableReader)
)
REFUSED: list[tuple[Callable[..., Any], str, Any]] = [
    (shapes, "train", 0),
    (shapes, "max_objects", 5),
    (vocabulary, "min_count", 0),
    (vocabulary, "max_size", len(NAMES)),
    *((RandomChange, "quality", value) for value in ((0, 90), [1, 2, 3], (3, 2))),
    (RandomChange, "crop", 0.3),
    (data, "batch_size", 0),
    (data, "seed", 1.5),
    *((coco, "part", each) for each in (None, [0, 0.5, 1], [1, 0], [0, 8])),
    *((table, "splits", dict.fromkeys(names, "c")) for names in (SPLITS[:2], [*SPLITS, "dev"])),
    (CocoReader, "splits", dict.fromkeys(SPLITS, "c")),
    (karpathy, "restval", "all"),
]


@pytest.mark.parametrize(("build", "key", "value"), REFUSED)
def test_a_setting_out_of_bounds_is_named(build: Callable[..., Any], key: str, value: Any) -> None:
    with pytest.raises(ValidationError) as refused:
        build(**{key: value})
    assert {key} == {error["loc"][0] for error in refused.value.errors()}
