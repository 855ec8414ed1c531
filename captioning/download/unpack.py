"""Unpacking a zip archive: only what is wanted, only below one folder, each file whole or not at all."""

import shutil
import stat
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath

from captioning.download.archive import BLOCK
from captioning.download.disk import check_free
from captioning.download.progress import byte_bar
from captioning.errors import CaptioningError


def unpack(archive: Path, members: Mapping[str, str], folder: Path) -> None:
    """Writes the members of a zip archive below `folder`; those that lie there in their full size already stay.

    Args:
        archive: the file.
        members: what is unpacked, and where to below `folder`: a file, or all in a folder of the archive.
        folder: nothing is written anywhere else.

    Raises:
        CaptioningError: it is no zip archive, is damaged, holds a path that leaves the folder or a link, or lacks a
            member; or there is too little room.
        OSError: a file cannot be written.
    """
    try:
        with zipfile.ZipFile(archive) as file:
            wanted = _wanted(file, members, folder)
            missing = {
                info: path
                for info, path in wanted.items()
                if not path.is_file() or path.stat().st_size != info.file_size
            }
            needed = sum(info.file_size for info in missing)
            check_free(folder, needed, f"unpack {archive.name}")
            with byte_bar(f"unpacking {archive.name}", needed) as bar:
                for info, path in missing.items():
                    path.parent.mkdir(parents=True, exist_ok=True)
                    part = path.with_name(f"{path.name}.part")
                    with file.open(info) as source, part.open("wb") as target:
                        shutil.copyfileobj(source, target, BLOCK)  # which compares the CRC at the end
                    part.replace(path)
                    bar.update(info.file_size)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise CaptioningError(
            f"{archive} is damaged or no zip archive ({error}): delete it, and the same command downloads it again"
        ) from error


def _wanted(file: zipfile.ZipFile, members: Mapping[str, str], folder: Path) -> dict[zipfile.ZipInfo, Path]:
    """Where each member goes that is wanted."""
    wanted: dict[zipfile.ZipInfo, Path] = {}
    for info in file.infolist():
        _check_harmless(file, info)
        if info.is_dir():
            continue
        inside = PurePosixPath(info.filename)
        for member, target in members.items():
            if inside.is_relative_to(member):
                wanted[info] = folder / target / inside.relative_to(member)
    for member, target in members.items():
        if not any(path.is_relative_to(folder / target) for path in wanted.values()):
            raise CaptioningError(f"{file.filename} has no member {member}; was it replaced by another archive?")
    return wanted


def _check_harmless(file: zipfile.ZipFile, info: zipfile.ZipInfo) -> None:
    path = PureWindowsPath(info.filename)  # to which both kinds of slashes separate, so that it serves everywhere
    if path.anchor or ".." in path.parts or stat.S_ISLNK(info.external_attr >> 16):
        raise CaptioningError(
            f"{file.filename} has a member {info.filename!r} that leaves the folder or is a link, so nothing of it is "
            "unpacked: it is not the archive that was meant; delete it"
        )
