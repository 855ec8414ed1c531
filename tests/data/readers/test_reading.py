import gc
import weakref

import pytest

from captioning.data.example import Splits
from captioning.data.readers.reading import read
from captioning.errors import CaptioningError


class Ring:
    """Garbage that only the collector finds."""

    def __init__(self) -> None:
        self.self = self


def test_nothing_is_collected_while_a_reader_reads_and_everything_afterwards() -> None:
    rings = []

    def reader() -> Splits:
        rings.append(weakref.ref(Ring()))
        gc_pressure = [[] for _ in range(10**5)]  # more than one generation holds
        assert gc_pressure
        return {"train": []}

    assert read(reader) == {"train": []}
    assert rings[0]() is not None
    gc.collect()
    assert rings[0]() is None
    assert gc.isenabled()


def test_a_reader_that_fails_leaves_the_collector_as_it_was() -> None:
    def reader() -> Splits:
        raise CaptioningError("no such folder")

    with pytest.raises(CaptioningError, match="no such folder"):
        read(reader)
    assert gc.isenabled()
