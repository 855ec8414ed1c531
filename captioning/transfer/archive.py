"""What is known of a file before it is downloaded."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from captioning.errors import CaptioningError, quoted
from captioning.transfer.progress import byte_bar

ALGORITHMS = ("sha256", "md5")
BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Archive:
    """A zip archive on a server.

    Args:
        url: its address, http or https.
        size: bytes; None if not known.
        checksum: `sha256:HEX` or `md5:HEX`; None if not known, when nothing but the archive's own CRCs is checked.
        members: what is unpacked, and where to below the data set's folder: a file, or all in a folder.

    Raises:
        CaptioningError: an address or a checksum of another form.
    """

    url: str
    members: Mapping[str, str]
    size: int | None = None
    checksum: str | None = None

    def __post_init__(self) -> None:
        try:
            file = urlsplit(self.url).scheme in ("http", "https") and self.host and self.name not in ("", "..")
        except ValueError:
            file = False
        if not file or not self.url.isprintable():
            raise CaptioningError(
                f"url={quoted(self.url)} is not allowed; it must be the http or https address of a file"
            )
        if self.size is not None and self.size < 1:
            raise CaptioningError(f"size={self.size} is not allowed; it must be a number of bytes or null")
        if self.checksum is not None:
            algorithm, _, digest = self.checksum.partition(":")
            if algorithm not in ALGORITHMS or len(digest) != 2 * hashlib.new(algorithm).digest_size:
                allowed = "sha256:HEX, md5:HEX or null"
                raise CaptioningError(f"checksum={quoted(self.checksum)} is not allowed; it must be {allowed}")

    @property
    def name(self) -> str:
        """The name of the file."""
        return PurePosixPath(urlsplit(self.url).path).name

    @property
    def host(self) -> str:
        """The server, with its port where that is not the usual one."""
        return urlsplit(self.url).netloc

    def wrong(self, path: Path) -> str | None:
        """How the file at `path` differs from what is known of this one: actual and expected; None if it does not."""
        actual = path.stat().st_size
        if self.size is not None and actual != self.size:
            return f"{actual:,} bytes, expected are {self.size:,}"
        if self.checksum is None:
            return None
        algorithm, _, expected = self.checksum.partition(":")
        digest = hashlib.new(algorithm, usedforsecurity=False)
        with path.open("rb") as file, byte_bar(f"checking {self.name}", actual) as bar:
            while block := file.read(BLOCK):
                digest.update(block)
                bar.update(len(block))
        if digest.hexdigest() != expected.lower():
            return f"the {algorithm} {digest.hexdigest()}, expected is {expected}"
        return None
