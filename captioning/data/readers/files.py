"""The files that readers read: text and JSON, with errors that say where a file is broken."""

import errno
import json
from pathlib import Path
from typing import Any

from captioning.errors import CaptioningError


def read_lines(path: Path) -> list[tuple[str, str]]:
    """The lines of a UTF-8 text that are not blank, each with its place, `FILE, line 3`.

    A byte-order mark and the line ends of Windows are left out. Nothing but a line feed ends a line: some characters
    that Python also takes for line ends occur in captions.

    Raises:
        CaptioningError: the file cannot be read or is not UTF-8.
    """
    content = _read_bytes(path)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = 1 + content.count(b"\n", 0, error.start)
        raise CaptioningError(
            f"{path}, line {line}: the byte 0x{content[error.start]:02x} is not UTF-8; save the file as UTF-8"
        ) from error
    lines = enumerate(text.split("\n"), start=1)
    return [(f"{path}, line {number}", line.removesuffix("\r")) for number, line in lines if line.strip()]


def read_json(path: Path) -> Any:
    """What a JSON file holds.

    Raises:
        CaptioningError: the file cannot be read, or is no JSON that Python can read.
    """
    try:
        return json.loads(_read_bytes(path))
    except ValueError as error:
        raise CaptioningError(f"{path} is not JSON: {error}") from error
    except RecursionError as error:
        raise CaptioningError(f"{path} is nested too deeply to hold captions; is it the right file?") from error


def _read_bytes(path: Path) -> bytes:
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            raise OSError(errno.EINVAL, "it is a device or a pipe, no file")  # and might never end
        return path.read_bytes()
    except OSError as error:
        raise CaptioningError(
            f"cannot read {path}: {error.strerror}; set data.root to the folder of the data set, or this file's own "
            "setting in data.reader"
        ) from error
