"""Unpack wanted members of a zip archive below one folder."""

import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from captioning.download.fetch import check_free
from captioning.errors import CaptioningError
from captioning.progress import counter


def unpack(archive: Path, members: Mapping[str, str], folder: Path) -> None:
    """Write files or folders of a zip archive where `members` has them below `folder`.

    Each file is complete or absent, and no longer than the archive's directory says; existing files of their size stay.
    """
    wanted: dict[Path, zipfile.ZipInfo] = {}
    try:
        with zipfile.ZipFile(archive) as file:
            for member, target in members.items():
                found = {name: info for info in file.infolist() if (name := _inside(info, member))}
                if not found:
                    raise CaptioningError(f"{archive} has no member {member}: it was replaced by another archive")
                wanted |= {folder / target / name.relative_to(member): info for name, info in found.items()}
            missing = {p: i for p, i in wanted.items() if not p.is_file() or p.stat().st_size != i.file_size}
            needed = sum(info.file_size for info in missing.values())
            check_free(folder, needed, f"unpack {archive.name}")
            with counter(f"unpacking {archive.name}", needed, "B", unit_scale=True) as bar:
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
