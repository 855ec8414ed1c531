"""Photographs of any content become the image that they show, or one sentence; nothing is waited
for or started.
"""

import io
import os
import re
import socket
import struct
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from PIL import Image
from refusals import refuses
from torch.testing import assert_close
from torchvision.transforms.v2.functional import center_crop, pil_to_tensor, resize

from captioning.backbones.images import ImageTransform, Resize
from captioning.data.views import Transform
from captioning.errors import CaptioningError

RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)
FOUR = Image.fromarray(np.array([[RED, GREEN], [BLUE, WHITE]], dtype=np.uint8))
NOISE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8))
RAMP = np.linspace(0, 255, 800).astype(np.uint8)
GRADIENT = Image.fromarray(
    np.stack(np.broadcast_arrays(RAMP[:, None], RAMP[None, :], np.uint8(90)), axis=-1)
)


def pixels(source, size=2, **settings):
    """In row order."""
    image = ImageTransform(size, **settings).read(source)
    assert (image.dtype, image.shape) == (torch.uint8, (3, size, size))
    return [tuple(pixel) for pixel in image.permute(1, 2, 0).reshape(-1, 3).tolist()]


def turned(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


UPRIGHT = {
    # orientation, as the EXIF standard words it (where row 0 and column 0 of the file are when
    # shown): pixels shown
    0: [RED, GREEN, BLUE, WHITE],  # not in the standard, and written by some cameras
    1: [RED, GREEN, BLUE, WHITE],  # top, left
    2: [GREEN, RED, WHITE, BLUE],  # top, right
    3: [WHITE, BLUE, GREEN, RED],  # bottom, right
    4: [BLUE, WHITE, RED, GREEN],  # bottom, left
    5: [RED, BLUE, GREEN, WHITE],  # left, top
    6: [BLUE, RED, WHITE, GREEN],  # right, top
    7: [WHITE, GREEN, BLUE, RED],  # right, bottom
    8: [GREEN, WHITE, RED, BLUE],  # left, bottom
}


@pytest.mark.parametrize("orientation", UPRIGHT)
def test_photographs_are_turned_upright_and_mirrored_then(orientation, tmp_path):
    path = tmp_path / "a.png"
    FOUR.save(path, exif=turned(orientation))
    assert pixels(path) == UPRIGHT[orientation]
    with Image.open(path) as image:
        assert pixels(image) == UPRIGHT[orientation]
    one, two, three, four = UPRIGHT[orientation]
    assert pixels(path, view=Transform(mirror=True)) == [two, one, four, three]


IMAGES = {
    "1": (Image.new("1", (2, 2), 1), [WHITE] * 4),
    "L": (Image.new("L", (2, 2), 128), [(128, 128, 128)] * 4),
    "P": (Image.new("RGB", (2, 2), RED).quantize(4), [RED] * 4),
    "CMYK": (Image.new("CMYK", (2, 2), (0, 255, 255, 0)), [RED] * 4),
    "I;16": (Image.fromarray(np.full((2, 2), 128 * 257, dtype=np.uint16)), [(128, 128, 128)] * 4),
    "RGBA": (Image.new("RGBA", (2, 2), (*RED, 128)), [(255, 127, 127)] * 4),
    "LA": (Image.new("LA", (2, 2), (128, 128)), [(191, 191, 191)] * 4),
}


@pytest.mark.parametrize("mode", IMAGES)
def test_every_mode_becomes_rgb(mode, tmp_path):
    image, expected = IMAGES[mode]
    image.save(tmp_path / "a.tiff")
    with Image.open(tmp_path / "a.tiff") as saved:
        assert saved.mode == mode
    assert_allclose(pixels(tmp_path / "a.tiff"), expected, atol=1)


def test_a_part_of_sixteen_bits_becomes_black_to_white(tmp_path):
    """As of 12 bits: other values are cut off, 8 bits stay as they are, and features have another
    digest.
    """
    Image.fromarray(np.array([[0, 1000], [4095, 60000]], dtype=np.uint16)).save(tmp_path / "a.png")
    assert pixels(tmp_path / "a.png") == [(0,) * 3, (3,) * 3, (15,) * 3, (233,) * 3]
    assert pixels(tmp_path / "a.png", pixel_range=(0, 4095)) == [(0,) * 3, (62,) * 3, WHITE, WHITE]
    cut = pixels(tmp_path / "a.png", pixel_range=(1000, 4095))
    assert cut == [(0,) * 3, (0,) * 3, WHITE, WHITE]
    assert pixels(FOUR, pixel_range=(0, 4095)) == [RED, GREEN, BLUE, WHITE]
    shown = ImageTransform(2, pixel_range=(0, 4095)).whole(tmp_path / "a.png", 2)
    assert shown[0].flatten().tolist() == [0, 62, 255, 255]
    ranges = ((0, 65535), (0, 4095), (1, 4095))
    assert len({ImageTransform(2, pixel_range=each).settings for each in ranges}) == 3
    assert ImageTransform(2, pixel_range=(0, 65535)) == ImageTransform(2)


@pytest.mark.parametrize("kind", ["jpg", "png", "webp", "gif", "bmp", "tiff", "mpo"])
def test_kinds_of_files(kind, tmp_path):
    # JPEG and WebP blur colours over a few pixels
    large = FOUR.resize((64, 64), Image.Resampling.NEAREST)
    settings = {"quality": 95} if kind in ("jpg", "webp", "mpo") else {}
    if kind in ("png", "webp", "gif", "mpo"):
        # of an animation the first picture counts, as of a photograph with several
        settings |= {"save_all": True, "append_images": [large.rotate(90)]}
    large.save(tmp_path / f"a.{kind}", **settings)
    corners = np.array(pixels(tmp_path / f"a.{kind}", 16)).reshape(16, 16, 3)[::15, ::15]
    assert_allclose(corners.reshape(4, 3), [RED, GREEN, BLUE, WHITE], atol=12)


def test_images_in_memory_are_read_as_files_are_and_left_as_they_were(tmp_path):
    """Of a file, a large JPEG is decoded small, with the same result."""
    GRADIENT.save(tmp_path / "a.jpg", quality=95)
    with Image.open(tmp_path / "a.jpg") as opened:
        whole = ImageTransform(16).read(opened)
        assert np.asarray(opened).shape == (800, 800, 3)
    drafted = ImageTransform(16).read(tmp_path / "a.jpg")
    assert_close(whole.float(), drafted.float(), atol=3, rtol=0)
    wanted = np.linspace(0, 255, 16, endpoint=False) + 255 / 32
    assert_allclose(drafted[0], np.broadcast_to(wanted[:, None], (16, 16)), atol=4)
    assert_allclose(drafted[1], np.broadcast_to(wanted[None, :], (16, 16)), atol=4)


def thirds(width=30, height=10):
    """Red, green and blue from left to right."""
    row = np.repeat(np.array([[RED, GREEN, BLUE]], dtype=np.uint8), width // 3, axis=1)
    return Image.fromarray(np.repeat(row, height, axis=0))


def test_squash_averages_and_crop_takes_the_square_in_the_middle():
    stripes = np.zeros((4, 64, 3), dtype=np.uint8)
    stripes[:, 1::2] = 255
    assert_allclose(pixels(Image.fromarray(stripes)), np.full((4, 3), 127.5), atol=2)
    for image in (thirds(), thirds().transpose(Image.Transpose.ROTATE_90)):
        found = ImageTransform(5, resize="crop").read(image)
        assert torch.equal(found, pil_to_tensor(center_crop(resize(image, [5]), [5])))
        assert (found[:, 1:-1, 1:-1] == torch.tensor(GREEN)[:, None, None]).all()


def test_pad_keeps_all_of_the_photograph_and_says_where_it_lies():
    image = ImageTransform(9, mean=(0.2, 0.4, 1.0), resize="pad").read(thirds())
    beside = torch.ones(9, 9, dtype=torch.bool)
    beside[3:6] = False
    assert torch.equal(image[3], torch.where(beside, 0, 255).to(torch.uint8))
    assert (image[:3, beside] == torch.tensor([[51], [102], [255]])).all()
    assert image[:3, 4, [0, 4, 8]].T.tolist() == [list(RED), list(GREEN), list(BLUE)]
    square = thirds(30, 30)  # is whole however it is resized
    squashed, cropped, padded = (
        ImageTransform(7, resize=how).read(square) for how in get_args(Resize)
    )
    assert torch.equal(cropped, squashed)
    assert torch.equal(padded[:3], squashed)
    assert (padded[3] == 255).all()


def test_frame_and_whole_are_of_the_upright_photograph(tmp_path):
    path = tmp_path / "a.png"
    thirds().save(
        path, exif=turned(6)
    )  # lies on its side in the file: 10 wide and 30 high when shown
    assert ImageTransform(5, resize="crop").frame(path) == pytest.approx((0, 1 / 3, 1, 2 / 3))
    assert ImageTransform(5, resize="pad").frame(path) == pytest.approx((-1, 0, 2, 1))
    assert ImageTransform(5).frame(tmp_path / "absent.png") == (0, 0, 1, 1)
    for square in get_args(Resize):
        transform = ImageTransform(5, resize=square)
        assert transform.whole(path, 200).shape == (3, 30, 10)
        small = transform.whole(path, 15)
        assert small.shape == (3, 15, 5)
        assert small[:, [2, 7, 12], 2].argmax(dim=0).tolist() == [0, 1, 2]


def test_settings_tell_transforms_apart():
    others = [{}, {"size": 7}, {"std": (1, 1, 1)}, {"mean": (0, 0, 0)}]
    others += [{"resize": "crop"}, {"resize": "pad"}, {"interpolation": "bicubic"}]
    others += [{"view": Transform(mirror=True)}]
    transforms = [ImageTransform(**{"size": 5} | other) for other in others]
    assert len({transform.settings for transform in transforms}) == 8
    bicubic = NOISE.resize((16, 16), Image.Resampling.BICUBIC)
    assert torch.equal(
        ImageTransform(16, interpolation="bicubic").read(NOISE), pil_to_tensor(bicubic)
    )


KINDS = ("baseline.jpg", "progressive.jpg", "a.png", "a.webp", "a.gif", "a.tiff", "a.bmp")
CONTENTS = {}
for name in KINDS:
    file = io.BytesIO()
    NOISE.save(
        file,
        Path(name).suffix[1:].replace("jpg", "jpeg"),
        progressive=name[0] == "p",
        exif=turned(6),
    )
    CONTENTS[name] = file.getvalue()


@pytest.mark.filterwarnings("ignore")  # Pillow warns of damage that it gets over
def test_a_mutated_photograph_is_read_or_refused_in_one_line(tmp_path):
    random = np.random.default_rng(0)
    for name in KINDS * 40:
        path, content = tmp_path / name, bytearray(CONTENTS[name])
        for place in random.integers(0, len(content), 9):
            content[place] = random.integers(256)
        path.write_bytes(content[: random.integers(len(content) // 2, 2 * len(content))])
        try:
            assert ImageTransform(8).read(path).shape == (3, 8, 8)
        except CaptioningError as error:
            message = str(error)
            assert re.fullmatch(rf"cannot read the image {path}: .{{1,280}}", message)


def test_damaged_exif_data_do_not_cost_the_rotation(tmp_path):
    rotated = struct.pack("<HHLL", 0x0112, 3, 1, 6)
    width = struct.pack("<HHLf", 0x0100, 11, 1, 1.5)  # no number that a width can be
    FOUR.save(
        tmp_path / "a.png",
        exif=b"Exif\0\0II*\0" + struct.pack("<LH", 8, 2) + width + rotated + bytes(4),
    )
    assert pixels(tmp_path / "a.png") == UPRIGHT[6]


def test_what_is_no_photograph_is_refused_and_named(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe.jpg")
    (tmp_path / "link.jpg").symlink_to(tmp_path / "pipe.jpg")
    (tmp_path / "text.jpg").write_text("no image")
    (tmp_path / "empty.jpg").touch()
    Image.new("F", (2, 2)).save(tmp_path / "float.tiff")
    Image.new("1", (20_000, 20_000)).save(tmp_path / "bomb.png")
    assert (tmp_path / "bomb.png").stat().st_size < 100_000
    program = tmp_path / "gs"  # Pillow hands PostScript to it
    program.write_text(f"#!/bin/sh\ntouch {tmp_path / 'started'}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    NOISE.save(tmp_path / "postscript.jpg", "EPS")
    names = ["pipe", "link", "socket", "text", "empty", "postscript", "absent", "a" * 300]
    names = [f"{name}.jpg" for name in (*names, "a\0b", "a/" * 1500 + "b", "half \ud800")]
    names += ["float.tiff", "bomb.png", ".", "/dev/zero"]
    for name, content in CONTENTS.items():
        (tmp_path / f"cut.{name}").write_bytes(content[: len(content) // 2])
    names += [f"cut.{name}" for name in KINDS]
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket.jpg"))
        for name in names:
            with refuses(r"^cannot read the image ") as caught:
                ImageTransform(2).read(tmp_path / name)
            assert len(str(caught.value)) < 600
    assert not (tmp_path / "started").exists()
    with refuses("mode=F"):
        ImageTransform(16).read(Image.new("F", (2, 2)))
    with refuses("has 400 megapixels; at most 179 "):
        ImageTransform(2).read(tmp_path / "bomb.png")


def test_a_photograph_of_a_phone_is_named_as_what_it_is_or_read(tmp_path):
    """HEIC, whether or not the library that reads it is there."""
    begin = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic"
    (tmp_path / "cut.jpg").write_bytes(begin + bytes(500))
    with refuses("cut.jpg: .*(HEIC|incomplete)"):
        ImageTransform(2).read(tmp_path / "cut.jpg")
    (tmp_path / "film.jpg").write_bytes(begin.replace(b"heic", b"isom"))
    with refuses("another kind than JPEG"):
        ImageTransform(2).read(tmp_path / "film.jpg")
    library = pytest.importorskip("pillow_heif")
    library.from_pillow(FOUR.resize((64, 64), Image.Resampling.NEAREST)).save(tmp_path / "a.heic")
    corners = np.array(pixels(tmp_path / "a.heic", 16)).reshape(16, 16, 3)[::15, ::15]
    assert_allclose(corners.reshape(4, 3), [RED, GREEN, BLUE, WHITE], atol=12)


def test_a_tiff_of_too_many_bands_is_named_with_their_number(tmp_path):
    path = tmp_path / "satellite.tif"
    Image.new("RGB", (4, 4)).save(path)
    three, eight = (struct.pack("<HHIH", 277, 3, 1, bands) for bands in (3, 8))
    path.write_bytes(path.read_bytes().replace(three, eight))
    with refuses("TIFF of 8 bands"):
        ImageTransform(8).read(path)
