"""Archives that are damaged, hostile or half unpacked."""

import stat
import zipfile
from pathlib import Path

import pytest

from captioning.errors import CaptioningError
from captioning.transfer.unzip import unpack

MEMBERS = {"Photographs": "images", "splits/a.json": "a.json"}


def archive(folder: Path, **contents: bytes) -> Path:
    """Member names are given with "__" for "/"."""
    path = folder / "archive.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.mkdir("Photographs")
        for name, content in contents.items():
            file.writestr(name.replace("__", "/"), content)
    return path


WANTED = {"Photographs__1": b"one", "Photographs__below__2": b"two", "splits__a.json": b"{}"}


def unpacked(path: Path, folder: Path) -> dict[str, bytes]:
    unpack(path, MEMBERS, folder)
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_wanted_members_go_where_they_belong(tmp_path: Path) -> None:
    others = {"Photographs_of_others__3": b"", "splits__b.json": b"", "other__Photographs__4": b""}
    path = archive(tmp_path, **WANTED, **others)
    folder = tmp_path / "data"
    folder.mkdir()
    assert unpacked(path, folder) == {"images/1": b"one", "images/below/2": b"two", "a.json": b"{}"}


def test_complete_files_stay_and_others_are_replaced(tmp_path: Path) -> None:
    path = archive(tmp_path, **WANTED)
    images = tmp_path / "data" / "images"
    images.mkdir(parents=True)
    (images / "1").write_bytes(b"ONE")
    (images / "1.part").write_bytes(b"o")
    (images / "below").mkdir()
    (images / "below" / "2").write_bytes(b"t")
    (tmp_path / "data" / "a.json.part").write_bytes(b"longer than the file")
    written = unpacked(path, tmp_path / "data")
    assert written == {"images/1": b"ONE", "images/1.part": b"o", "images/below/2": b"two", "a.json": b"{}"}


LINK = zipfile.ZipInfo("Photographs/link")
LINK.external_attr = (stat.S_IFLNK | 0o777) << 16


@pytest.mark.parametrize(
    "name", ["../out", "Photographs/../../out", "/out", "..\\out", "C:\\out", "Photographs/a/../1", LINK]
)
def test_members_that_leave_the_folder(tmp_path: Path, name: str | zipfile.ZipInfo) -> None:
    path = archive(tmp_path, **WANTED)
    with zipfile.ZipFile(path, "a") as file:
        file.writestr(name, b"out")
    folder = tmp_path / "data"
    folder.mkdir()
    with pytest.raises(zipfile.BadZipFile, match="leaves the folder"):
        unpack(path, MEMBERS, folder)
    assert not list(folder.iterdir())
    assert sorted(tmp_path.iterdir()) == [path, folder]


STORED = zipfile.ZIP_STORED
DAMAGES = {
    "another byte": (STORED, {47: ord("!")}),
    "encrypted": (STORED, {6: 1}),
    "unknown compression": (STORED, {8: 99}),
    "newer version": (STORED, {4: 99}),
    "damaged lzma": (zipfile.ZIP_LZMA, dict.fromkeys(range(47, 60), 255)),
    "damaged bzip2": (zipfile.ZIP_BZIP2, dict.fromkeys(range(50, 60), 255)),
    "empty": (STORED, None),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_archives_that_cannot_be_read(tmp_path: Path, kind: str) -> None:
    """The damage is to bytes of the first member: of its header, which the directory repeats 2 bytes later, or of its
    content."""
    method, damage = DAMAGES[kind]
    path = tmp_path / "archive.zip"
    with zipfile.ZipFile(path, "w", method) as file:
        file.writestr("Photographs/1", b"a photograph" * 20)
        file.writestr("splits/a.json", b"{}")
    content = bytearray(path.read_bytes())
    for place, byte in (damage or {}).items():
        content[place] = byte
        if place < 30:
            content[content.find(b"PK\1\2") + place + 2] = byte
    path.write_bytes(content if damage else b"")
    with pytest.raises(zipfile.BadZipFile, match=r"archive\.zip is damaged"):
        unpack(path, MEMBERS, tmp_path)
    assert not (tmp_path / "images" / "1").exists()


def test_a_member_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(CaptioningError, match=r"splits/a\.json"):
        unpack(archive(tmp_path, Photographs__1=b"one"), MEMBERS, tmp_path)
    assert not (tmp_path / "images").exists()


def test_more_than_fits_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "archive.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("Photographs/1", b"one")
        file.writestr("splits/a.json", b"{}")
        file.filelist[0].file_size = 10**18  # as the directory says it, which is written at the end
    with pytest.raises(CaptioningError, match=r"1000000000\.00 GB are needed"):
        unpack(path, MEMBERS, tmp_path)
    assert list(tmp_path.iterdir()) == [path]
