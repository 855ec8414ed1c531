"""A data set in the Karpathy layout, from archives on servers to files in a folder."""

import os
import shutil
import zipfile
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import BaseModel, model_validator

from captioning.config.registry import CONF
from captioning.config.settings import Settings
from captioning.config.types import GivenPath
from captioning.data.readers.karpathy import KarpathyReader
from captioning.data.readers.on_disk import absent_files
from captioning.errors import CaptioningError, listed
from captioning.pretrained.fetch import (
    STRICT,
    Connection,
    RemoteFile,
    Unavailable,
    check_free,
    fetch,
    length,
)
from captioning.progress import progress_bar

SOURCES = CONF / "download"  # a root of its own: in `conf` itself `data` is what a run reads


class Archive(RemoteFile):
    """A zip archive; `members` maps its files or folders to places below the data set's folder."""

    members: dict[str, str]


class Source(BaseModel):
    """Archives of a data set (splits first), its photograph folder and its splits file."""

    model_config = STRICT
    archives: dict[str, Archive]
    photographs: str
    splits: str


class DownloadedDataSet(Settings):
    """A data set in its folder, by the settings of `captioning download`.

    No record is kept of what is complete: a file has its name only when it is complete, and the
    splits name the photographs that there must be.
    """

    data: Source
    root: GivenPath
    """folder for the data set; captioning run takes it as data.root"""
    keep_archives: bool
    """true: keep archives after unpacking"""
    connection: Connection

    @model_validator(mode="before")
    @classmethod
    def _is_chosen(cls, settings: Any) -> Any:
        if settings.get("data") is None:
            names = sorted(path.stem for path in (SOURCES / "data").glob("[!_]*.yaml"))
            raise ValueError(
                f"data is not set and has no default: add data=NAME, one of {', '.join(names)}"
            )
        return settings

    def download(self) -> int:
        """Download and unpack missing files; return the number of photographs in the splits."""
        self.root.mkdir(parents=True, exist_ok=True)
        for archive in self.data.archives.values():
            if self._has(archive):
                print(f"{', '.join(archive.members.values())}: already there")
                continue
            path = self.root / archive.name
            if path.exists():  # got by other means
                archive.check(path, "delete it, and the same command downloads it")
            else:
                self._fetch(archive, path)
            unpack(path, archive.members, self.root)
            if not self.keep_archives:
                path.unlink()
        named = self._named_below(self.root)
        if absent := absent_files(named):
            names = listed([str(path.relative_to(self.root)) for path in absent])
            raise CaptioningError(
                f"{len(absent):,} of {len(named):,} photographs in {self.data.splits} are missing "
                f"from {self.root}: {names}; the archives do not belong to these splits"
            )
        return len(named)

    def _fetch(self, archive: Archive, path: Path) -> None:
        missing = {
            key: other
            for key, other in self.data.archives.items()
            if not (self._has(other) or (self.root / other.name).exists())
        }
        sizes = [other.size or 0 for other in missing.values()]
        # photographs hardly compress: all of them, and the archives, or the largest at the end
        archives = sum(sizes) if self.keep_archives else max(sizes)
        needed = sum(sizes) + archives
        for other in missing.values():
            needed -= length(self.root / f"{other.name}.part")
        check_free(self.root, needed, "download and unpack what is missing")
        try:
            fetch(archive, path, self.connection)
        except Unavailable as error:
            files = (f"{other.url} as {self.root / other.name}" for other in missing.values())
            raise CaptioningError(
                f"{error}. Nothing is lost: the same command continues the download. Or get what "
                f"is missing by other means and save {'; '.join(files)}. Another address: "
                f"data.archives.{next(iter(missing))}.url=URL"
            ) from error

    def _has(self, archive: Archive) -> bool:
        """Tell whether all that is unpacked of an archive is there."""
        for member in archive.members.values():
            path = self.root / member
            named = self._named_below(path)
            if not path.is_file() and (not named or absent_files(named)):
                return False
        return True

    def _named_below(self, folder: Path) -> list[Path]:
        """Photographs below a folder that the splits name; empty until there are splits."""
        if not (self.root / self.data.splits).exists():
            return []
        return [path for path in self._named if str(path).startswith(f"{folder}{os.sep}")]

    @cached_property
    def _named(self) -> list[Path]:
        photographs, splits = self.root / self.data.photographs, self.root / self.data.splits
        return KarpathyReader(photographs, splits).image_paths()


def unpack(archive: Path, members: Mapping[str, str], folder: Path) -> None:
    """Write files or folders of a zip archive where `members` has them below `folder`.

    Each file is complete or absent, and no longer than the archive's directory says; existing files
    of their size stay.
    """
    missing = {}
    try:
        with zipfile.ZipFile(archive) as file:
            for member, target in members.items():
                inside = {info: name for info in file.infolist() if (name := _inside(info, member))}
                if not inside:
                    raise CaptioningError(
                        f"{archive} has no member {member}: it was replaced by another archive"
                    )
                for info, name in inside.items():
                    path = folder / target / name.relative_to(member)
                    if length(path) != info.file_size or not path.is_file():
                        missing[path] = info
            needed = sum(info.file_size for info in missing.values())
            check_free(folder, needed, f"unpack {archive.name}")
            with progress_bar(f"unpacking {archive.name}", needed, "B", unit_scale=True) as bar:
                for path, info in missing.items():
                    path.parent.mkdir(parents=True, exist_ok=True)
                    part = Path(f"{path}.part")
                    with file.open(info) as content, part.open("wb") as target_file:
                        shutil.copyfileobj(content, target_file)
                    part.replace(path)
                    bar.update(info.file_size)
    except zipfile.BadZipFile as error:
        error.add_note(f"{archive} is damaged: delete it, and the same command downloads it again")
        raise


def _inside(info: zipfile.ZipInfo, member: str) -> PurePosixPath | None:
    """The name of a file that is `member` or below it."""
    name = PurePosixPath(info.filename.replace("\\", "/"))
    if info.is_dir() or not name.is_relative_to(member):
        return None
    if ".." in name.parts:
        raise zipfile.BadZipFile(f"the member {info.filename!r:.200} leaves the folder")
    return name
