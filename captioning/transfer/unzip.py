"""Unpack wanted members of a zip archive below one folder."""

import stat
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath

from captioning.errors import CaptioningError, quoted
from captioning.transfer.fetch import byte_bar, check_free, partial_file
from captioning.transfer.request import BLOCK


def unpack(archive: Path, members: Mapping[str, str], folder: Path) -> None:
    """Write members of a zip archive below `folder`, each complete or absent; existing files of their size stay.

    Args:
        archive: the zip file.
        members: files or folders of the archive, and where below `folder` they go.
        folder: nothing is written anywhere else.
    """
    with _reading(archive):
        file = zipfile.ZipFile(archive)
    with file:
        with _reading(archive):
            wanted = _wanted(file, members, folder)
        for member, target in members.items():
            if not any(path.is_relative_to(folder / target) for path in wanted):
                raise CaptioningError(f"{archive} has no member {member}: it was replaced by another archive")
        missing = {
            path: info for path, info in wanted.items() if not path.is_file() or path.stat().st_size != info.file_size
        }
        needed = sum(info.file_size for info in missing.values())
        check_free(folder, needed, f"unpack {archive.name}")
        with byte_bar(f"unpacking {archive.name}", needed) as bar:
            for path, info in missing.items():
                path.parent.mkdir(parents=True, exist_ok=True)
                part = partial_file(path)
                with part.open("wb") as target_file:
                    for block in _blocks(file, info, archive):
                        target_file.write(block)
                part.replace(path)
                bar.update(info.file_size)


def _wanted(file: zipfile.ZipFile, members: Mapping[str, str], folder: Path) -> dict[Path, zipfile.ZipInfo]:
    """Members by their files on disk; of several with one name the last."""
    wanted: dict[Path, zipfile.ZipInfo] = {}
    for info in file.infolist():
        name = PureWindowsPath(info.filename)  # both kinds of slashes separate its parts
        if name.anchor or ".." in name.parts or stat.S_ISLNK(info.external_attr >> 16):
            raise ValueError(f"the member {info.filename!r:.200} leaves the folder or is a link")
        inside = PurePosixPath(info.filename)
        for member, target in members.items():
            if inside.is_relative_to(member) and not info.is_dir():
                wanted[folder / target / inside.relative_to(member)] = info
    return wanted


def _blocks(file: zipfile.ZipFile, info: zipfile.ZipInfo, archive: Path) -> Iterator[bytes]:
    """Content of a member, at most the size in the archive's directory; its CRC is compared at the end."""
    with _reading(archive):
        member = file.open(info)
    with member:
        while True:
            with _reading(archive):
                block = member.read(BLOCK)
            if not block:
                return
            yield block


@contextmanager
def _reading(archive: Path) -> Iterator[None]:
    # Only the archive is read inside, so that a full disk is not taken for damage. `zipfile` and its decompressors
    # raise more than a dozen kinds of exceptions, from `IndexError` of a name to `RuntimeError` of a password.
    try:
        yield
    except Exception as error:
        raise zipfile.BadZipFile(
            f"{archive} is damaged or not a zip archive that can be read here ({quoted(error)}): delete it, and the "
            "same command downloads it again"
        ) from error
