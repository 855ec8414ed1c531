"""Archives that are damaged, hostile or half unpacked."""

import stat
import zipfile
from pathlib import Path

import pytest

from captioning.errors import CaptioningError
from captioning.transfer.unpack import unpack

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


def test_what_is_whole_stays_and_what_is_not_is_replaced(tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    "name", ["../out", "Photographs/../../out", "/out", "..\\out", "C:\\out", "Photographs/a/../1"]
)
def test_paths_that_leave_the_folder(tmp_path: Path, name: str) -> None:
    path = archive(tmp_path, **WANTED)
    with zipfile.ZipFile(path, "a") as file:
        file.writestr(name, b"out")
    folder = tmp_path / "data"
    folder.mkdir()
    with pytest.raises(CaptioningError, match=r"leaves the folder or is a link, so nothing of it is unpacked"):
        unpack(path, MEMBERS, folder)
    assert not list(folder.iterdir())
    assert sorted(tmp_path.iterdir()) == [path, folder]


def test_links(tmp_path: Path) -> None:
    path = archive(tmp_path, **WANTED)
    link = zipfile.ZipInfo("Photographs/link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(path, "a") as file:
        file.writestr(link, b"/etc/passwd")
    with pytest.raises(CaptioningError, match="leaves the folder or is a link"):
        unpack(path, MEMBERS, tmp_path)
    assert list(tmp_path.iterdir()) == [path]


def test_damage_is_seen_and_leaves_no_file_under_its_name(tmp_path: Path) -> None:
    path = tmp_path / "archive.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("Photographs/1", b"a photograph")
        file.writestr("splits/a.json", b"{}")
    path.write_bytes(path.read_bytes().replace(b"a photograph", b"a photo4raph"))
    with pytest.raises(CaptioningError, match=r"archive\.zip is damaged or no zip archive .*Photographs/1.*delete it"):
        unpack(path, MEMBERS, tmp_path)
    assert not (tmp_path / "images" / "1").exists()


@pytest.mark.parametrize(
    ("method", "damage", "said"),
    [
        (zipfile.ZIP_STORED, {6: 1}, "File .*Photographs/1.* is encrypted"),
        (zipfile.ZIP_STORED, {8: 99}, "That compression method is not supported"),
        (zipfile.ZIP_STORED, {4: 99}, "zip file version 9.9"),
        (zipfile.ZIP_LZMA, dict.fromkeys(range(47, 60), 255), "[A-Za-z]"),
        (zipfile.ZIP_BZIP2, dict.fromkeys(range(50, 60), 255), "Invalid data stream"),
    ],
    ids=["encrypted", "unknown compression", "newer version", "damaged lzma", "damaged bzip2"],
)
def test_members_that_cannot_be_read(tmp_path: Path, method: int, damage: dict[int, int], said: str) -> None:
    """The damage is to bytes of the first member: of its header, which the directory repeats 2 bytes later, or behind
    it."""
    path = tmp_path / "archive.zip"
    with zipfile.ZipFile(path, "w", method) as file:
        file.writestr("Photographs/1", b"a photograph" * 20)
        file.writestr("splits/a.json", b"{}")
    content = bytearray(path.read_bytes())
    for place, byte in damage.items():
        content[place] = byte
        if place < 30:
            content[content.find(b"PK\1\2") + place + 2] = byte
    path.write_bytes(content)
    with pytest.raises(CaptioningError, match=rf"archive\.zip is damaged or no zip archive .*\({said}.*\): del"):
        unpack(path, MEMBERS, tmp_path)
    assert not (tmp_path / "images" / "1").exists()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("n" * 230, "more than 200 bytes"),
        ("a\nb", "odd name"),
        ("1.part", "as files are that are not whole"),
        ("1/2", "lies in a file"),
    ],
)
def test_badly_named_members(tmp_path: Path, name: str, said: str) -> None:
    path = archive(tmp_path, **WANTED, **{f"Photographs__{name}": b""})
    with pytest.raises(CaptioningError, match=rf"has a member .* {said}.*nothing of it is unpacked") as refused:
        unpack(path, MEMBERS, tmp_path)
    assert len(str(refused.value)) < 500
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("content", [b"", b"<html>please log in</html>"])
def test_no_zip_archive(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(CaptioningError, match=r"a\.zip is damaged or no zip archive"):
        unpack(tmp_path / "a.zip", MEMBERS, tmp_path)


def test_a_member_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(CaptioningError, match=r"archive\.zip has no member splits/a\.json"):
        unpack(archive(tmp_path, Photographs__1=b"one"), MEMBERS, tmp_path)
    assert not (tmp_path / "images").exists()


def test_more_than_fits_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "archive.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("Photographs/1", b"one")
        file.writestr("splits/a.json", b"{}")
        file.filelist[0].file_size = 10**18  # as the directory says it, which is written at the end
    with pytest.raises(
        CaptioningError, match=r"1000000000\.00 GB are needed to unpack archive\.zip, and .* GB are free"
    ):
        unpack(path, MEMBERS, tmp_path)
    assert list(tmp_path.iterdir()) == [path]
