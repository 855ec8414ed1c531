"""Archives that are damaged, hostile or half unpacked."""

import zipfile
from pathlib import Path

import pytest

from captioning.download.unzip import unpack
from captioning.errors import CaptioningError

MEMBERS = {"Photographs": "images", "splits/a.json": "a.json"}
WANTED = {"Photographs/1": b"one", "Photographs/below/2": b"two", "splits/a.json": b"{}"}


def archive(folder: Path, contents: dict[str, bytes]) -> Path:
    path = folder / "archive.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.mkdir("Photographs")
        for name, content in contents.items():
            file.writestr(name, content)
    return path


def unpacked(path: Path, folder: Path) -> dict[str, bytes]:
    folder.mkdir(exist_ok=True)
    unpack(path, MEMBERS, folder)
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_wanted_members_alone_go_where_they_belong(tmp_path: Path) -> None:
    others = ("Photographs_of_others/3", "splits/b.json", "other/Photographs/4", "../out", "/out", "C:\\out")
    path = archive(tmp_path, WANTED | dict.fromkeys(others, b"out"))
    assert unpacked(path, tmp_path / "data") == {"images/1": b"one", "images/below/2": b"two", "a.json": b"{}"}
    assert sorted(tmp_path.iterdir()) == [path, tmp_path / "data"]


def test_complete_files_stay_and_others_are_replaced(tmp_path: Path) -> None:
    path, images = archive(tmp_path, WANTED), tmp_path / "data" / "images"
    (images / "below").mkdir(parents=True)
    (images / "1").write_bytes(b"ONE")
    (images / "below" / "2").write_bytes(b"t")
    (tmp_path / "data" / "a.json.part").write_bytes(b"longer than the file")
    assert unpacked(path, tmp_path / "data") == {"images/1": b"ONE", "images/below/2": b"two", "a.json": b"{}"}


@pytest.mark.parametrize("name", ["Photographs/../../out", "Photographs\\..\\..\\out", "Photographs/a/../1"])
def test_members_that_leave_the_folder(tmp_path: Path, name: str) -> None:
    path = archive(tmp_path, WANTED | {name: b"out"})
    with pytest.raises(zipfile.BadZipFile, match="leaves the folder"):
        unpacked(path, tmp_path / "data")
    assert sorted(tmp_path.rglob("*")) == [path, tmp_path / "data"]


@pytest.mark.parametrize(("place", "byte"), [(47, ord("!")), (None, 0)], ids=["another byte", "empty"])
def test_archives_that_cannot_be_read(tmp_path: Path, place: int | None, byte: int) -> None:
    path = tmp_path / "archive.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("Photographs/1", b"a photograph" * 20)
        file.writestr("splits/a.json", b"{}")
    content = bytearray(path.read_bytes() if place else b"")
    content[place or 0 : (place or 0) + 1] = bytes([byte])
    path.write_bytes(content)
    with pytest.raises(zipfile.BadZipFile) as refused:
        unpacked(path, tmp_path / "data")
    assert str(path) in refused.value.__notes__[0]
    assert not (tmp_path / "data" / "images" / "1").exists()


def test_a_member_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(CaptioningError, match=r"splits/a\.json"):
        unpacked(archive(tmp_path, {"Photographs/1": b"one"}), tmp_path / "data")
    assert not (tmp_path / "data" / "images").exists()


@pytest.mark.parametrize(("size", "error"), [(10**18, "1000000000.00 GB are needed"), (2, None)])
def test_no_more_comes_than_the_directory_says(tmp_path: Path, size: int, error: str | None) -> None:
    path = tmp_path / "archive.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("Photographs/1", b"one")
        file.writestr("splits/a.json", b"{}")
        file.filelist[0].file_size = size  # written at the end
    with pytest.raises((CaptioningError, zipfile.BadZipFile), match=error):
        unpacked(path, tmp_path / "data")
    assert not (tmp_path / "data" / "images" / "1").exists()
