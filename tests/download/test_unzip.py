"""Archives that are damaged, hostile or half unpacked."""

import zipfile
from pathlib import Path

import pytest

from captioning.download.data_set import unpack
from captioning.errors import CaptioningError

MEMBERS = {"Photographs": "images", "splits/a.json": "a.json"}
WANTED = {"Photographs/1": b"one", "Photographs/below/2": b"two", "splits/a.json": b"{}"}


def archive(folder, contents):
    path = folder / "archive.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as file:
        file.mkdir("Photographs")
        for name, content in contents.items():
            file.writestr(name, content)
    return path


def unpacked(path, folder):
    folder.mkdir(exist_ok=True)
    unpack(path, MEMBERS, folder)
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file()
    }


def test_wanted_members_alone_go_where_they_belong_and_complete_files_stay(tmp_path):
    others = (
        "Photographs_of_others/3",
        "splits/b.json",
        "other/Photographs/4",
        "../out",
        "/out",
        "C:\\out",
    )
    path, folder = archive(tmp_path, WANTED | dict.fromkeys(others, b"out")), tmp_path / "data"
    assert unpacked(path, folder) == {"images/1": b"one", "images/below/2": b"two", "a.json": b"{}"}
    (folder / "images" / "1").write_bytes(b"ONE")
    (folder / "images" / "below" / "2").write_bytes(b"t")
    (folder / "a.json").rename(folder / "a.json.part").write_bytes(b"longer than the file")
    assert unpacked(path, folder) == {"images/1": b"ONE", "images/below/2": b"two", "a.json": b"{}"}
    assert sorted(tmp_path.iterdir()) == [path, folder]


def with_size(path, size):
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("splits/b.json", b"{}")
        file.getinfo("Photographs/1").file_size = size  # written at the end


@pytest.mark.parametrize(
    "contents, damage, error",
    [
        *(
            (WANTED | {name: b"out"}, Path.exists, "leaves the folder")
            for name in ("Photographs/../../out", "Photographs\\..\\..\\out", "Photographs/a/../1")
        ),
        ({"Photographs/1": b"one"}, Path.exists, r"no member splits/a\.json"),
        (WANTED, lambda path: path.write_bytes(path.read_bytes().replace(b"one", b"0ne")), "CRC"),
        (WANTED, lambda path: path.write_bytes(b""), "not a zip file"),
        (WANTED, lambda path: with_size(path, 2), "CRC"),  # no more comes than the directory says
        (WANTED, lambda path: with_size(path, 10**18), r"1000000000\.00 GB are needed"),
    ],
    ids=range(8),
)
def test_archives_that_cannot_be_unpacked(contents, damage, error, tmp_path):
    path = archive(tmp_path, contents)
    damage(path)
    with pytest.raises((CaptioningError, zipfile.BadZipFile), match=error) as refused:
        unpacked(path, tmp_path / "data")
    assert isinstance(refused.value, CaptioningError) or str(path) in refused.value.__notes__[0]
    assert not (tmp_path / "data" / "images" / "1").exists()
    assert not (tmp_path / "out").exists()
