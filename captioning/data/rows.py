"""Images in rows of Arrow files, in which the library `datasets` keeps them.

`FILE.arrow/FINGERPRINT/COLUMN/row-NUMBER` is the path of an image in the memory-mapped file; the
fingerprint is that of the library for the content. Nothing is unpacked.
"""

from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from captioning.files import open_bounded

PREFIX = "row-"


def is_row(path: Path | str) -> bool:
    """Whether a path is that of a row; no disk is asked."""
    file, *more = str(path).rsplit("/", 3)
    return len(more) == 3 and more[-1].startswith(PREFIX) and file.endswith(".arrow")


def open_source(path: Path) -> AbstractContextManager[BinaryIO]:
    """Open an image file, or the image of a row; Arrow's cells have at most 2 GiB, as files do."""
    if not is_row(path):
        return open_bounded(path)
    from pyarrow import BufferReader

    file, _, name, row = str(path).rsplit("/", 3)
    cell = _column(file, name)[int(row.removeprefix(PREFIX))]
    return BufferReader(cell["bytes"].as_buffer())


@cache
def _column(file: str, name: str) -> Any:
    """A column of a file; a new one looks for its pieces again."""
    return arrow_table(file)[name]


@cache
def arrow_table(file: str) -> Any:
    """The table of a file, mapped into memory once per process; pages are read when needed."""
    import pyarrow

    with pyarrow.memory_map(file) as mapped:
        return pyarrow.ipc.open_stream(mapped).read_all()
