"""How a reader is called."""

import gc
from collections.abc import Callable

from captioning.data.example import Splits


def read(reader: Callable[[], Splits]) -> Splits:
    """The examples of a reader, without garbage collection meanwhile: nothing that it builds is garbage.

    The collector would go again and again through millions of words; at the size of COCO that is half of the time.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        return reader()
    finally:
        if collecting:
            gc.enable()
