"""Photographs of any content end in an image or in a sentence of ours; nothing is waited for, nothing else started."""

import io
import os
import socket
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps

from captioning.backbones.images import ImageTransform
from captioning.errors import CaptioningError

# Pillow warns of damage that it gets over.
pytestmark = pytest.mark.filterwarnings("ignore")

SIZE = 8
PICTURE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (SIZE, SIZE, 3), dtype=np.uint8))


def exif(orientation: int = 6) -> bytes:
    made = Image.Exif()
    made[0x0112], made[0x010F], made[0x8769] = orientation, "Maker", {0x9003: "2020:01:01 00:00:00"}
    return made.tobytes()


def saved(image: Image.Image, kind: str, **settings: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **settings)
    return file.getvalue()


LARGER = PICTURE.resize((40, 30))
FILES = {
    "baseline.jpg": saved(LARGER, "JPEG", exif=exif()),
    "progressive.jpg": saved(LARGER, "JPEG", progressive=True),
    "plain.png": saved(LARGER, "PNG", exif=exif()),
    "palette.png": saved(LARGER.quantize(9), "PNG"),
    "a.webp": saved(LARGER, "WEBP", exif=exif()),
    "a.gif": saved(LARGER, "GIF"),
    "a.tiff": saved(LARGER, "TIFF", exif=exif()),
    "a.bmp": saved(LARGER, "BMP"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("images")


def bytes_in_place_of(content: bytes) -> st.SearchStrategy[bytes]:
    """Some bytes changed, perhaps the end missing."""
    changes = st.dictionaries(st.integers(0, len(content) - 1), st.integers(0, 255), max_size=9)
    lengths = st.one_of(st.just(len(content)), st.integers(0, len(content)))
    return st.builds(
        lambda some, length: bytes(some.get(i, byte) for i, byte in enumerate(content))[:length], changes, lengths
    )


@given(st.data())
def test_a_mutated_photograph_is_read_or_refused_in_one_line(folder: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(FILES)))
    path = folder / name
    path.write_bytes(data.draw(bytes_in_place_of(FILES[name])))
    try:
        image = ImageTransform(SIZE).read(path)
    except CaptioningError as error:
        message = str(error)
    else:
        assert (image.shape, image.dtype) == ((3, SIZE, SIZE), torch.uint8)
        return
    assert message.startswith(f"cannot read the image {path}: ")
    assert "\n" not in message
    assert len(message) < len(str(path)) + 300


TURNED = [
    torch.from_numpy(np.array(ImageOps.exif_transpose(Image.open(io.BytesIO(saved(PICTURE, "PNG", exif=exif(n)))))))
    for n in range(1, 9)
]


@given(
    kind=st.sampled_from(["png", "webp"]),
    content=st.one_of(st.binary(min_size=1, max_size=200), bytes_in_place_of(exif()).filter(len)),
)
def test_no_damage_of_the_exif_data_costs_the_photograph(folder: Path, kind: str, content: bytes) -> None:
    path = folder / f"exif.{kind}"
    PICTURE.save(path, exif=content, **({"lossless": True} if kind == "webp" else {}))
    image = ImageTransform(SIZE).read(path)
    assert any(torch.equal(image.permute(1, 2, 0), turned) for turned in TURNED)


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jpg")
    (tmp_path / "link.jpg").symlink_to(tmp_path / "pipe.jpg")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket.jpg"))
        named = (tmp_path / f"{name}.jpg" for name in ("pipe", "link", "socket"))
        for path in (*named, Path("/dev/zero"), tmp_path):
            with pytest.raises(CaptioningError, match=f"^cannot read the image {path}: "):
                ImageTransform(SIZE).read(path)


def test_postscript_is_not_handed_to_ghostscript(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "gs"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path / 'started'}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    PICTURE.save(tmp_path / "a.jpg", "EPS")
    with pytest.raises(CaptioningError, match=r"cannot read the image .*a\.jpg"):
        ImageTransform(SIZE).read(tmp_path / "a.jpg")
    assert not (tmp_path / "started").exists()


def test_a_photograph_with_several_pictures_is_a_jpeg(tmp_path: Path) -> None:
    Image.new("RGB", (9, 9), "red").save(tmp_path / "a.jpg", "MPO", save_all=True, append_images=[PICTURE])
    assert ImageTransform(2).read(tmp_path / "a.jpg")[:, 0, 0].tolist() == pytest.approx([255, 0, 0], abs=2)


@pytest.mark.parametrize("name", ["a" * 300 + ".jpg", "a\0b.jpg", "a/" * 1500 + "b.jpg", "half a character \ud800.jpg"])
def test_impossible_names_are_quoted_in_part(name: str) -> None:
    with pytest.raises(CaptioningError, match=r"^cannot read the image ") as caught:
        ImageTransform(SIZE).read(Path(name))
    assert len(str(caught.value)) < 500
