"""A pseudo-terminal in the place of standard error or output."""

import fcntl
import os
import re
import struct
import sys
import termios
import threading
from typing import Any

import pytest


class Terminal:
    """A terminal so many columns wide, in the place of a stream; 0: one that does not know its width.

    Attributes:
        text: all that was written to it, once it is closed.
    """

    def __init__(self, width: int, monkeypatch: pytest.MonkeyPatch, stream: str = "stderr") -> None:
        self._width, self._monkeypatch, self._stream, self.text = width, monkeypatch, stream, ""

    def __enter__(self) -> "Terminal":
        self._reader, writer = os.openpty()
        fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", 24, self._width, 0, 0))
        self._file = os.fdopen(writer, "w", encoding="utf-8")
        self._usual = getattr(sys, self._stream)
        self._monkeypatch.setattr(sys, self._stream, self._file)
        self._monkeypatch.setattr("multiprocessing.parent_process", lambda: None)  # as at a person's terminal
        self._content = bytearray()
        self._thread = threading.Thread(target=self._read)  # or the writer waits when the terminal's buffer is full
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._monkeypatch.setattr(sys, self._stream, self._usual)
        self._file.close()
        self._thread.join()
        os.close(self._reader)
        self.text = self._content.decode().replace("\r\n", "\n")

    def _read(self) -> None:
        try:
            while block := os.read(self._reader, 4096):
                self._content += block
        except OSError:  # what Linux says at the end
            pass

    def frames(self) -> list[str]:
        """What was to be seen, one after the other."""
        return [frame for frame in (re.sub(r"\s+$", "", part) for part in re.split(r"[\r\n]", self.text)) if frame]
