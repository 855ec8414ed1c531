"""How a reader is called."""

import gc
from collections.abc import Callable

from captioning.data.example import Splits
from captioning.data.readers.splits import check_photographs


def read(reader: Callable[[], Splits], photographs: bool = True) -> Splits:
    """The examples of a reader, without garbage collection meanwhile: nothing that it builds is garbage.

    The collector would go again and again through millions of words; at the size of COCO that is half of the time.

    Args:
        reader: knows captions and paths; it looks for no photograph.
        photographs: whether they must be on disk, as they must for every backbone that reads them.

    Raises:
        CaptioningError: as the reader says, or photographs are not on disk.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        splits = reader()
        if photographs:
            check_photographs(splits)
        return splits
    finally:
        if collecting:
            gc.enable()
