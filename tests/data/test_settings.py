"""Settings outside their bounds: `(constructor, settings, the key that is named)`."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from pydantic import ValidationError

from captioning.data.module import CaptionData
from captioning.data.readers.coco import CocoReader, CocoSplit
from captioning.data.readers.karpathy import KarpathyReader
from captioning.data.readers.reading import SPLITS
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
    *(
        (shapes, key, value)
        for key, value in (("train", 0), ("val", -1), ("test", 2.5), ("train", True))
    ),
    *(
        (shapes, key, value)
        for key, value in (("max_objects", 5), ("size", 8), ("seed", -1), ("root", 3))
    ),
    *(
        (vocabulary, key, value)
        for key, value in (("min_count", 0), ("max_size", len(NAMES)), ("max_size", "9"))
    ),
    *((RandomChange, "quality", value) for value in ((0, 90), [1, 2, 3], (3, 2))),
    *((RandomChange, "side", value) for value in ([0, 1], (3, 2))),
    *(
        (RandomChange, key, value)
        for key, value in (("crop", 0.3), ("mirror", 2), ("brightness", 1))
    ),
    *(
        (data, key, value)
        for key, value in (("batch_size", 0), ("max_words", 0), ("num_workers", -1), ("seed", 1.5))
    ),
    *(
        (coco, "part", each)
        for each in (None, 0.5, [], [0.5], [0, 0.5, 1], [0, None], [0.5, 0.5], [1, 0], [0, 8])
    ),
    *((table, "splits", dict.fromkeys(names, "c")) for names in (SPLITS[:2], [*SPLITS, "dev"])),
    (CocoReader, "splits", dict.fromkeys(SPLITS, "c")),
    (karpathy, "restval", "all"),
]


@pytest.mark.parametrize(("build", "key", "value"), REFUSED)
def test_a_setting_out_of_bounds_is_named(build: Callable[..., Any], key: str, value: Any) -> None:
    with pytest.raises(ValidationError) as refused:
        build(**{key: value})
    assert {key} == {error["loc"][0] for error in refused.value.errors()}
