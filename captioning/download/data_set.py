"""A data set in the Karpathy layout, from archives on servers to files in a folder."""

from collections import defaultdict
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from pydantic import BaseModel

from captioning.data.readers.karpathy import KarpathyReader
from captioning.data.readers.splits import absent_files
from captioning.errors import CaptioningError
from captioning.transfer.fetch import (
    STRICT,
    Connection,
    RemoteFile,
    Unavailable,
    check_free,
    check_regular,
    fetch,
    length,
    partial_file,
)
from captioning.transfer.unzip import unpack


class Archive(RemoteFile):
    """A zip archive on a server; `members`: files or folders in it, and where below the data set's folder they go."""

    members: dict[str, str]


class Source(BaseModel):
    """Archives of a data set, that of the splits first; its folder of photographs and the file of its splits."""

    model_config = STRICT
    archives: dict[str, Archive]
    photographs: str
    splits: str


class DataSet:
    """A data set in its folder `root`.

    No record is kept of what is complete: a file has its name only when it is complete, and the splits name the
    photographs that there must be.
    """

    def __init__(self, root: Path, source: Source, keep_archives: bool = False) -> None:
        self.root, self.source, self.keep_archives = root, source, keep_archives

    def download(self, connection: Connection) -> int:
        """Download and unpack what is missing; return how many photographs the splits name, all of them there."""
        self.root.mkdir(parents=True, exist_ok=True)
        for archive in self.source.archives.values():
            self._download(archive, connection)
        named = self._named_below(self.root)
        if absent := absent_files(named):
            names = ", ".join(str(path.relative_to(self.root)) for path in absent[:3])
            raise CaptioningError(
                f"{len(absent):,} of {len(named):,} photographs in {self.source.splits} are missing from {self.root}: "
                f"{names}{', ...' if len(absent) > 3 else ''}; the archives do not belong to these splits"
            )
        return len(named)

    def _download(self, archive: Archive, connection: Connection) -> None:
        path = self.root / archive.name
        if self._has(archive):
            print(f"{', '.join(archive.members.values())}: already there")
            return
        check_regular(path)
        if not path.exists():
            check_free(self.root, self._needed(), "download and unpack what is missing")
            try:
                fetch(archive, path, connection)
            except Unavailable as error:
                raise CaptioningError(f"{error}. {self._ways_out()}") from error
        elif difference := archive.difference(path):
            raise CaptioningError(f"{path} has {difference}: delete it, and the same command downloads it")
        unpack(path, archive.members, self.root)
        if not self.keep_archives:
            path.unlink()

    def _has(self, archive: Archive) -> bool:
        return all(self._complete(self.root / target) for target in archive.members.values())

    def _complete(self, path: Path) -> bool:
        named = self._named_below(path)
        return path.is_file() or (bool(named) and not absent_files(named))

    def _named_below(self, folder: Path) -> list[Path]:
        """Photographs below a folder that the splits name; none as long as the splits are missing."""
        if not (self.root / self.source.splits).exists():
            return []
        return [path for parent in self._named if parent.is_relative_to(folder) for path in self._named[parent]]

    @cached_property
    def _named(self) -> Mapping[Path, list[Path]]:
        named = defaultdict(list)
        reader = KarpathyReader(self.root / self.source.photographs, self.root / self.source.splits)
        for photograph in reader.photographs():
            named[photograph.parent].append(photograph)
        return named

    def _needed(self) -> int:
        """Bytes still to be written at the fullest moment.

        Photographs hardly compress. An archive that is there already is measured when it is unpacked.
        """
        written = most = 0
        for archive in self.source.archives.values():
            path = self.root / archive.name
            if archive.size is None or path.exists() or self._has(archive):
                continue
            written += archive.size - length(partial_file(path))
            most = max(most, written + archive.size)
            written += archive.size if self.keep_archives else 0
        return most

    def _ways_out(self) -> str:
        missing = {
            key: archive
            for key, archive in self.source.archives.items()
            if not (self.root / archive.name).exists() and not self._has(archive)
        }
        by_hand = "; ".join(f"{archive.url} as {self.root / archive.name}" for archive in missing.values())
        return (
            "Nothing is lost: the same command continues the download. Or get what is missing by other means and save "
            f"{by_hand}. Another address: data.archives.{next(iter(missing))}.url=URL"
        )
