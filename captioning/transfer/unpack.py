"""Unpacking a zip archive: only what is wanted, only below one folder, each file whole or not at all."""

import stat
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath

from captioning.errors import CaptioningError, quoted
from captioning.transfer.archive import BLOCK
from captioning.transfer.disk import check_free
from captioning.transfer.progress import byte_bar

LONGEST_NAME = 200
"""Bytes of a file's name, of which file systems allow 255, with room for `.part`."""

LONGEST_PATH = 1000
"""Bytes of a name with those of its folders, of which systems allow 4,096 with the folder that it goes to."""


def unpack(archive: Path, members: Mapping[str, str], folder: Path) -> None:
    """Writes the members of a zip archive below `folder`; those that lie there in their full size already stay.

    Args:
        archive: the file.
        members: what is unpacked, and where to below `folder`: a file, or all in a folder of the archive.
        folder: nothing is written anywhere else.

    Raises:
        CaptioningError: it is no zip archive, is damaged, holds a member that leaves the folder, is a link or badly
            named, or lacks one; or there is too little room.
        OSError: a file cannot be written.
    """
    with _reading(archive):
        file = zipfile.ZipFile(archive)
    with file:
        with _reading(archive):
            wanted = _wanted(file, members, folder)
        missing = {
            path: info for path, info in wanted.items() if not path.is_file() or path.stat().st_size != info.file_size
        }
        needed = sum(info.file_size for info in missing.values())
        check_free(folder, needed, f"unpack {archive.name}")
        with byte_bar(f"unpacking {archive.name}", needed) as bar:
            for path, info in missing.items():
                path.parent.mkdir(parents=True, exist_ok=True)
                part = path.with_name(f"{path.name}.part")
                with part.open("wb") as target:
                    for block in _blocks(file, info, archive):
                        target.write(block)
                part.replace(path)
                bar.update(info.file_size)


def _blocks(file: zipfile.ZipFile, info: zipfile.ZipInfo, archive: Path) -> Iterator[bytes]:
    """The content of a member, whose CRC is compared at the end."""
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
    """Nothing but the archive is read in it, so that no error of the disk that is written to is taken for damage.

    Raises:
        CaptioningError: for whatever `zipfile` and its decompressors raise of bytes that are no whole zip archive: more
            than a dozen kinds, from `IndexError` of a name to `RuntimeError` of a password and `OSError` of bzip2.
    """
    try:
        yield
    except CaptioningError:
        raise
    except Exception as error:
        raise CaptioningError(
            f"{archive} is damaged or no zip archive that can be read here ({quoted(error)}): delete it, and the "
            "same command downloads it again; if it comes the same again, unpack it by other means"
        ) from error


def _wanted(file: zipfile.ZipFile, members: Mapping[str, str], folder: Path) -> dict[Path, zipfile.ZipInfo]:
    """What is wanted, by where it goes; of members of one name the last, which is the one that was added later."""
    wanted: dict[Path, zipfile.ZipInfo] = {}
    for info in file.infolist():
        _check_harmless(file, info)
        if info.is_dir():
            continue
        inside = PurePosixPath(info.filename)
        for member, target in members.items():
            if inside.is_relative_to(member):
                _check_name(file, inside)
                wanted[folder / target / inside.relative_to(member)] = info
    for member, target in members.items():
        if not any(path.is_relative_to(folder / target) for path in wanted):
            raise CaptioningError(f"{file.filename} has no member {member}; was it replaced by another archive?")
    for path in wanted:
        if not wanted.keys().isdisjoint(path.parents):
            raise _not_meant(file, str(path.relative_to(folder)), "lies in a file")
    return wanted


def _check_harmless(file: zipfile.ZipFile, info: zipfile.ZipInfo) -> None:
    path = PureWindowsPath(info.filename)  # to which both kinds of slashes separate, so that it serves everywhere
    if path.anchor or ".." in path.parts or stat.S_ISLNK(info.external_attr >> 16):
        raise _not_meant(file, info.filename, "leaves the folder or is a link")


def _check_name(file: zipfile.ZipFile, inside: PurePosixPath) -> None:
    name = str(inside)
    lengths = [len(part.encode()) for part in inside.parts]
    if not name.isprintable() or max(lengths) > LONGEST_NAME or sum(lengths) > LONGEST_PATH:
        raise _not_meant(file, name, f"has an odd name, or one of more than {LONGEST_NAME} bytes")
    if any(part.endswith(".part") for part in inside.parts):
        raise _not_meant(file, name, "is called as files are that are not whole")


def _not_meant(file: zipfile.ZipFile, name: str, what: str) -> CaptioningError:
    return CaptioningError(
        f"{file.filename} has a member {name!r:.200} that {what}, so nothing of it is unpacked: it is not the "
        "archive that was meant; delete it"
    )
