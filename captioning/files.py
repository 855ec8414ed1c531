"""Atomic writes, bounded reads of regular files, text formats, and the files of photographs."""

import csv
import errno
import gzip
import hashlib
import io
import json
import logging
import os
import re
import shutil
import stat
import time
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib import resources
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from captioning.errors import CaptioningError, listed, quoted

if TYPE_CHECKING:  # most commands have checked their settings before they need NumPy
    import numpy as np

# Limits of what is read from files, which strangers may have made.
LARGEST = 2**31
"""Bytes of a file that is read whole, a fifth for COCO's annotations, and to unpack a set in."""
LARGEST_ARRAY = 10**9
"""Bytes of an array without compression; a file of any size may hold many, read four at a time."""
LARGEST_STATE = 2**28
"""Bytes of a file of `read_state`; the `metrics.csv` of a million steps has half of them."""
MOST_LINES = LONGEST_LINE = 2**20
"""Of captions that are not compressed any more, whose lines take more memory than their bytes."""
LARGEST_SETTINGS = 2**18
"""Bytes of a `config.yaml`; those of runs have some thousand."""
LARGEST_JSON = 2**22
"""Bytes of a file of settings in a folder of `transformers`, such as 6,000 added tokens."""
LARGEST_MAPS = 2**29
"""Bytes of an unpacked `attention.npz`; a thousand captions take some ten millions."""
LARGEST_DOWNLOAD = 10**11
"""Bytes of a file whose server does not say how long it is."""
MAX_CHARACTERS = 10_000
"""Of a caption, far above any real one: a million of them make METEOR hang, hours later."""
RATIO = 200
"""How many times as long captions and sets may be unpacked; recorded captions are 24."""
MOST_STEPS, GROWTH = 16, 2**9
"""Steps of each kind in a tokenizer; times as long as they may make a text, those of T5 495 (D)."""
TRIAL = 2**30, 10
"""Bytes and CPU seconds of a tokenizer's trial; 250,000 pieces take 450 million and 2 (D)."""
MAX_HEADER = 2**24
"""Characters of JSON in a safetensors header; ten thousand words take a hundredth of them."""
MAX_TEXT = 2**25
"""Bytes of a tokenizer's JSON text; that of 128,000 pieces has 10 to 18 millions."""
MAX_BACKBONE = 2**30
"""Numbers in a network of a library before it is cut; its name comes from a closed list."""
MOST_LAYERS, LARGEST_INTEGER = 2**10, 2**24
"""In a configuration of `transformers` with fewer tensors; Qwen's ROPE has bases of 5,000,000."""
LARGEST_SIDE, MOST_PIXELS = 2**12, 2**24
"""What such a model's images may be resized to; Qwen3-VL reads as many pixels."""

# JPEG is first, because Pillow loads the readers of all formats when the first ones do not fit
FORMATS = ("JPEG", "AVIF", "BMP", "GIF", "PNG", "TIFF", "WEBP")
"""The kinds of files that Pillow may read: others, EPS for one, it hands to other programs."""
SUFFIXES = (".jpg", ".jpe", ".jfif", ".tif", ".heic", *(f".{name.lower()}" for name in FORMATS))
"""Of photographs in a folder; a file that is named itself may be called anything."""

JOIN = "+"
"""Between the names of images of one example, such as `front.png+side.png`."""

T = TypeVar("T")

log = logging.getLogger(__name__)

STALE = 3600  # seconds without a byte, after which a process that was killed has left it
_PART = ".captioning-"  # begins the name of a file that is being written


@contextmanager
def atomic_write(path: Path, keep: Path | None = None) -> Iterator[BinaryIO]:
    """Open a file that replaces `path` once the block succeeds.

    The old one is renamed to `keep`.
    """
    # each caller has its own, whose end no reader looks for
    part = path.with_name(f"{_PART}{token_hex(8)}{path.suffix}.part")
    with writing(path):
        if path.exists() and not path.is_file():  # renaming would replace a device
            raise OSError("it is not a regular file")
        tidy(path.parent, f"{_PART}*.part")
        try:
            with part.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            if keep and path.exists():
                path.replace(keep)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)


@cache
def tidy(folder: Path, pattern: str) -> None:
    """Remove what killed processes left in a folder; once is enough for a process."""
    for left in folder.glob(pattern):
        with suppress(OSError):  # or another process has removed it
            newest = max(part.stat().st_mtime for part in (left, *left.rglob("*")))
            if time.time() - newest > STALE:
                shutil.rmtree(left) if left.is_dir() else left.unlink()


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Make a folder that becomes `path`, or whose files join those there, if the block succeeds."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        tidy(path.parent, f"{_PART}*.part")
        with TemporaryDirectory(".part", _PART, path.parent) as temporary:
            draft = Path(temporary, path.name)
            draft.mkdir()  # with the user's usual permissions, unlike the folder around it
            yield draft
            if not path.exists():
                draft.rename(path)
                return
            for file in draft.iterdir():
                file.replace(path / file.name)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Name the file or folder, and what to do, where it cannot be written."""
    try:
        yield
    except OSError as error:
        raise CaptioningError(
            f"cannot write {path}: {error.strerror or error}. The old content is unharmed: free "
            "some space, permit writing to the folder or restore its name, and give the command "
            "again, that of a run with resume=true"
        ) from error


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 file atomically."""
    content = text.encode()  # before the file is opened, since half a character cannot be encoded
    with atomic_write(path) as file:
        file.write(content)


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON atomically; see `to_json`."""
    write_text(path, to_json(value, indent=2) + "\n")


def to_json(value: Any, **form: Any) -> str:
    """JSON that every program reads: infinite numbers and NaN are null; `form` as `json.dumps`."""
    try:
        return json.dumps(value, allow_nan=False, **form)
    except ValueError:
        return json.dumps(json.loads(json.dumps(value), parse_constant=lambda name: None), **form)


def write_rows(path: Path, columns: Collection[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a CSV file with a heading atomically, of these columns of the rows."""
    table = io.StringIO(newline="")
    writer = csv.DictWriter(table, columns, extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, table.getvalue())


def packaged_text(package: str | None, name: str) -> str:
    """The content of a file that a part of this package, its `__package__`, brings along."""
    return (resources.files(str(package)) / name).read_text(encoding="utf-8")


@contextmanager
def open_bounded(path: Path, largest: float = LARGEST) -> Iterator[BinaryIO]:
    """Open a regular file of at most `largest` bytes, or raise `OSError`; no pipe is waited for."""
    with open(path, "rb", opener=lambda name, how: os.open(name, how | os.O_NONBLOCK)) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        if status.st_size > largest:
            reason = f"it has {status.st_size:,} bytes, and at most {largest:,} are read"
            raise OSError(errno.EFBIG, reason, str(path))
        yield file


def read_bytes(path: Path, largest: float = LARGEST) -> bytes:
    """Read a regular file of at most `largest` bytes; see `open_bounded`."""
    with open_bounded(path, largest) as file:
        return file.read()


def sha256(content: bytes | str) -> str:
    """The digest of a content or a text, 64 hexadecimal digits."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


def digest_of_file(path: Path, algorithm: str = "sha256") -> str:
    """That of a file of any size."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def read_gzip(path: Path) -> bytes:
    """Read a file that gzip has compressed, of at most `LARGEST_STATE` bytes without compression.

    It may be `RATIO` times as long as with compression, and a mebibyte longer, and may have
    `MOST_LINES` lines.
    """
    with open_bounded(path, LARGEST_STATE) as file, gzip.open(file) as packed:
        largest = min(RATIO * path.stat().st_size + 2**20, LARGEST_STATE)
        try:
            content = packed.read(largest + 1)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise CaptioningError(f"{path} is incomplete or damaged: {error}") from error
    if len(content) > largest:
        raise CaptioningError(f"{path} has more than {largest:,} bytes without compression")
    if content.count(b"\n") > MOST_LINES or re.search(rb"(?m)^.{%d}" % LONGEST_LINE, content):
        raise CaptioningError(f"{path} has more than {MOST_LINES:,} lines, or as many bytes in one")
    return content


def read_arrays(path: Path, largest: int = LARGEST) -> "dict[str, np.ndarray]":
    """Read the arrays of a NumPy zip of at most `largest` bytes, also without compression.

    Nothing is unpickled. A damaged file raises nearly any exception.
    """
    import numpy as np

    with open_bounded(path, largest) as file:
        check_unpacked(file, largest)
        with np.load(file, allow_pickle=False) as arrays:
            return dict(arrays)


def check_unpacked(file: BinaryIO, largest: int = LARGEST_ARRAY) -> None:
    """Refuse a zip of more than `largest` bytes without compression, or of too large a member."""
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            sizes = [member.file_size for member in archive.infolist()]
        check_size(max(sizes, default=0))
        check_size(sum(sizes), largest)
    file.seek(0)


def check_size(size: int, largest: int = LARGEST_ARRAY) -> None:
    """Refuse what has more than `largest` bytes without compression, before it is read."""
    if size > largest:
        raise ValueError(f"unpacked it may have {size:,} bytes, and at most {largest:,} are read")


@contextmanager
def refuse_damage(path: Path, advice: str) -> Iterator[None]:
    """Name a file that cannot be read or parsed, and what the user can do about it."""
    try:
        yield
    except CaptioningError:
        raise
    except Exception as error:  # the readers of a damaged file raise nearly anything
        reason = quoted(getattr(error, "strerror", None) or error)
        raise CaptioningError(
            f"{path} cannot be read or is damaged ({reason}): {advice}"
        ) from error


def read_state(
    path: Path, parse: Callable[[str], T], advice: str, largest: int = LARGEST_STATE
) -> T:
    """Read and parse a state file of at most `largest` bytes.

    Any exception of `parse` means damage; `advice` is what the user can do about it.
    """
    with refuse_damage(path, advice):
        return parse(read_bytes(path, largest).decode())


def find_images(folder: Path, complain: Callable[[OSError], None]) -> Iterator[Path]:
    """Find photographs below a folder, except hidden ones; log which kinds are passed over.

    Errors of unreadable folders go to `complain`.
    """
    others = Counter[str]()
    for parent, folders, files in os.walk(folder, onerror=complain):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            file = Path(parent, name)
            if name.startswith(".") or not os.path.isfile(file):  # noqa: PTH113 - `Path.is_file` may raise
                continue
            if file.suffix.lower() in SUFFIXES:
                yield file
            else:
                others[file.suffix.lower() or "without suffix"] += 1
    if others:
        kinds = [kind for kind, _ in others.most_common()]
        log.info(
            "%s: left out files of other kinds: %d (%s)", folder, others.total(), listed(kinds)
        )


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a Markdown table with padded columns, without a final line break."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    head, *body = [
        f"| {' | '.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))} |"
        for row in cells
    ]
    return "\n".join([head, f"|{'|'.join('-' * (width + 2) for width in widths)}|", *body])
