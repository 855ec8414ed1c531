"""A data set as archives somewhere and, in the end, as files in a folder."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from captioning.data.readers.karpathy import KarpathyReader
from captioning.data.readers.splits import absent_files
from captioning.errors import CaptioningError
from captioning.transfer.archive import Archive
from captioning.transfer.disk import check_free
from captioning.transfer.fetch import Connection, check_file, fetch, length, partial
from captioning.transfer.http import Unavailable
from captioning.transfer.unpack import unpack


@dataclass(slots=True)
class DataSet:
    """A data set in the Karpathy layout.

    What is complete is seen in the folder itself, with no record of what was done: a file has its name only when it is
    whole, and the splits say which photographs there must be.

    Args:
        root: its folder.
        archives: by what they are called in the configuration; that of the splits comes first.
        photographs: the folder of the photographs, below `root`.
        splits: the file that names them, below `root`.
        keep_archives: leave archives beside what was unpacked from them.
    """

    root: Path
    archives: Mapping[str, Archive]
    photographs: str
    splits: str
    keep_archives: bool = False
    _named: dict[Path, list[Path]] = field(default_factory=lambda: defaultdict(list), init=False)

    def bring(self, connection: Connection) -> int:
        """Downloads and unpacks what is not there; returns how many photographs the splits name, all of them there.

        Raises:
            CaptioningError: the disk is too small or cannot be written, an archive cannot be had or is another one
                than was expected, or photographs are missing after all.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            for archive in self.archives.values():
                self._bring(archive, connection)
        except OSError as error:
            raise CaptioningError(
                f"cannot write {error.filename or self.root}: {error.strerror or error}; mend that, and the same "
                "command goes on where it ended, or choose another folder with root=FOLDER"
            ) from error
        return self._count()

    def _bring(self, archive: Archive, connection: Connection) -> None:
        path = self.root / archive.name
        if self._has(archive):
            print(f"{', '.join(archive.members.values())}: already there")
            return
        check_file(path)
        if not path.exists():
            check_free(self.root, self._needed(), "download and unpack what is missing")
            try:
                fetch(archive, path, connection)
            except Unavailable as error:
                raise CaptioningError(f"{error}. {self._ways_out()}") from error
        elif wrong := archive.wrong(path):
            raise CaptioningError(f"{path} has {wrong}: delete it, and the same command downloads it")
        unpack(path, archive.members, self.root)
        if not self.keep_archives:
            path.unlink()

    def _has(self, archive: Archive) -> bool:
        """Whether all is there that is unpacked of an archive."""
        return all(self._complete(self.root / target) for target in archive.members.values())

    def _complete(self, path: Path) -> bool:
        below = self._below(path)
        return path.is_file() or (bool(below) and not absent_files(below))

    def _below(self, path: Path) -> list[Path]:
        """The photographs in a folder that the splits name; none as long as the splits are not there."""
        file = self.root / self.splits
        if not self._named and file.exists():
            for photograph in KarpathyReader(self.root / self.photographs, file).photographs():
                self._named[photograph.parent].append(photograph)
        return [
            named for folder, all_named in self._named.items() if folder.is_relative_to(path) for named in all_named
        ]

    def _needed(self) -> int:
        """The bytes that are still to be written at the fullest moment.

        Photographs take as much room as their archive, since they hardly compress. An archive that is there already is
        left out: it is known exactly, and checked, when it is unpacked.
        """
        written = most = 0
        for archive in self.archives.values():
            path = self.root / archive.name
            if archive.size is None or path.exists() or self._has(archive):
                continue
            written += archive.size - length(partial(path))
            most = max(most, written + archive.size)
            written += archive.size if self.keep_archives else 0
        return most

    def _ways_out(self) -> str:
        """What can be done where an archive cannot be had."""
        missing = {
            key: archive
            for key, archive in self.archives.items()
            if not (self.root / archive.name).exists() and not self._has(archive)
        }
        by_hand = "; ".join(f"{archive.url} as {self.root / archive.name}" for archive in missing.values())
        return (
            "Nothing is lost: the same command goes on where it ended. Or get what is missing by other means and save "
            f"{by_hand}. Another address: data.archives.{next(iter(missing))}.url=URL"
        )

    def _count(self) -> int:
        named = self._below(self.root)
        absent = absent_files(named)
        if absent:
            names = ", ".join(str(path.relative_to(self.root)) for path in absent[:3])
            raise CaptioningError(
                f"{len(absent):,} of {len(named):,} photographs that {self.splits} names are not in {self.root}: "
                f"{names}{', ...' if len(absent) > 3 else ''}; the archives do not belong to these splits"
            )
        return len(named)
