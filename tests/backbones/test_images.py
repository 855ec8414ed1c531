import struct
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils._python_dispatch import TorchDispatchMode
from torchvision.transforms.v2.functional import center_crop, normalize, pil_to_tensor, resize

from captioning.backbones.images import ImageTransform, Resize
from captioning.data.views import Change
from captioning.errors import CaptioningError

RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)


def colours(path: Path, size: int = 2) -> list[tuple[int, ...]]:
    """Pixels in row order."""
    image = ImageTransform(size).read(path)
    assert image.dtype == torch.uint8
    assert image.shape == (3, size, size)
    return [tuple(pixel) for pixel in image.permute(1, 2, 0).reshape(-1, 3).tolist()]


def four_colours() -> Image.Image:
    return Image.fromarray(np.array([[RED, GREEN], [BLUE, WHITE]], dtype=np.uint8))


def test_channels_are_red_green_blue_in_row_order(tmp_path: Path) -> None:
    four_colours().save(tmp_path / "a.png")
    assert colours(tmp_path / "a.png") == [RED, GREEN, BLUE, WHITE]


def test_left_and_right_of_what_is_shown_are_exchanged_by_mirroring(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # lies on its side in the file
    four_colours().save(tmp_path / "a.png", exif=exif)
    mirrored = ImageTransform(2, view=Change(mirror=True))
    pixels = mirrored.read(tmp_path / "a.png").permute(1, 2, 0).reshape(4, 3).tolist()
    assert pixels == [list(RED), list(BLUE), list(GREEN), list(WHITE)]
    assert mirrored.settings != ImageTransform(2).settings


UPRIGHT = {
    # orientation, as the EXIF standard words it (where row 0 and column 0 of the file are when shown): pixels shown
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
def test_exif_rotation_is_applied(orientation: int, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    four_colours().save(tmp_path / "a.png", exif=exif)
    assert colours(tmp_path / "a.png") == UPRIGHT[orientation]
    with Image.open(tmp_path / "a.png") as image:
        assert ImageTransform(2).read(image).permute(1, 2, 0).reshape(4, 3).tolist() == [
            *map(list, UPRIGHT[orientation])
        ]


def test_damaged_exif_costs_neither_the_photograph_nor_its_rotation(tmp_path: Path) -> None:
    rotated = struct.pack("<HHLL", 0x0112, 3, 1, 6)
    width = struct.pack("<HHLf", 0x0100, 11, 1, 1.5)  # no number that a width can be
    exif = b"Exif\0\0II*\0" + struct.pack("<LH", 8, 2) + width + rotated + bytes(4)
    four_colours().save(tmp_path / "a.png", exif=exif)
    assert colours(tmp_path / "a.png") == [BLUE, RED, WHITE, GREEN]


def test_every_mode_becomes_rgb(tmp_path: Path) -> None:
    half = [(128, 128, 128)] * 4
    expected = {
        "1": [WHITE] * 4,
        "L": half,
        "P": [RED] * 4,
        "CMYK": [RED] * 4,
        "I;16": half,
        "RGBA": [(255, 127, 127)] * 4,
        "LA": [(191, 191, 191)] * 4,
    }
    images = {
        "1": Image.new("1", (2, 2), 1),
        "L": Image.new("L", (2, 2), 128),
        "P": Image.new("RGB", (2, 2), RED).quantize(4),
        "CMYK": Image.new("CMYK", (2, 2), (0, 255, 255, 0)),
        "I;16": Image.fromarray(np.full((2, 2), 128 * 257, dtype=np.uint16)),
        "RGBA": Image.new("RGBA", (2, 2), (*RED, 128)),
        "LA": Image.new("LA", (2, 2), (128, 128)),
    }
    for mode, image in images.items():
        path = tmp_path / f"{mode[0]}{len(mode)}.tiff"
        image.save(path)
        with Image.open(path) as saved:
            assert saved.mode == mode
        np.testing.assert_allclose(colours(path), expected[mode], atol=1, err_msg=mode)


def test_sixteen_bits_of_all_sizes_and_directions(tmp_path: Path) -> None:
    """A scale of 65,536 greys, not the lowest 256 of it; also turned."""
    exif = Image.Exif()
    exif[0x0112] = 3
    greys = np.array([[0, 20000], [40000, 65535]], dtype=np.uint16)
    Image.fromarray(greys).save(tmp_path / "a.png")
    Image.fromarray(greys).save(tmp_path / "turned.png", exif=exif)
    expected = [(value,) * 3 for value in (0, 77, 155, 255)]
    assert colours(tmp_path / "a.png") == expected
    assert colours(tmp_path / "turned.png") == expected[::-1]
    Image.fromarray(np.array([[-5, 20000], [40000, 70000]], dtype=np.int32)).save(tmp_path / "a.tiff")
    assert colours(tmp_path / "a.tiff") == expected


@pytest.mark.parametrize("kind", ["jpg", "png", "webp", "gif", "bmp", "tiff"])
def test_kinds_of_files(kind: str, tmp_path: Path) -> None:
    large = four_colours().resize((64, 64), Image.Resampling.NEAREST)  # JPEG and WebP blur colours over a few pixels
    large.save(tmp_path / f"a.{kind}", **({"quality": 95} if kind in ("jpg", "webp") else {}))
    corners = np.array(colours(tmp_path / f"a.{kind}", 16)).reshape(16, 16, 3)[::15, ::15]
    np.testing.assert_allclose(corners.reshape(4, 3), [RED, GREEN, BLUE, WHITE], atol=12)


def test_cmyk_jpeg(tmp_path: Path) -> None:
    Image.new("CMYK", (64, 64), (0, 255, 255, 0)).save(tmp_path / "a.jpg", quality=95)
    np.testing.assert_allclose(colours(tmp_path / "a.jpg"), [RED] * 4, atol=3)


def test_of_an_animation_the_first_picture(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (2, 2), colour) for colour in (BLUE, RED, GREEN)]
    for name in ("a.gif", "a.webp", "a.png"):
        frames[0].save(tmp_path / name, save_all=True, append_images=frames[1:])
        with Image.open(tmp_path / name) as saved:
            assert saved.n_frames == 3
        np.testing.assert_allclose(colours(tmp_path / name), [BLUE] * 4, atol=3)


@pytest.mark.parametrize("mode", ["RGB", "L", "I;16"])
@pytest.mark.parametrize("size", [(1, 1), (1, 3000), (8000, 6000)])
def test_one_pixel_to_forty_eight_million(mode: str, size: tuple[int, int], tmp_path: Path) -> None:
    wanted = {"RGB": RED, "L": (100, 100, 100), "I;16": (100, 100, 100)}[mode]
    Image.new(mode, size, {"RGB": RED, "L": 100, "I;16": 25700}[mode]).save(tmp_path / "a.png", compress_level=1)
    assert colours(tmp_path / "a.png") == [wanted] * 4
    if mode != "I;16":
        Image.new(mode, size, {"RGB": RED, "L": 100}[mode]).save(tmp_path / "a.jpg", quality=95)
        np.testing.assert_allclose(colours(tmp_path / "a.jpg"), [wanted] * 4, atol=3)


def test_images_in_memory_are_read_as_files_are_and_left_as_they_were(tmp_path: Path) -> None:
    ramp = np.linspace(0, 255, 800).astype(np.uint8)
    image = Image.fromarray(np.stack(np.broadcast_arrays(ramp[:, None], ramp[None, :], np.uint8(90)), axis=-1))
    image.save(tmp_path / "a.jpg", quality=95)
    with Image.open(tmp_path / "a.jpg") as opened:
        whole = ImageTransform(16).read(opened)
        assert opened.size == (800, 800)
        assert np.asarray(opened).shape == (800, 800, 3)
    drafted = ImageTransform(16).read(tmp_path / "a.jpg")
    torch.testing.assert_close(whole.float(), drafted.float(), atol=3, rtol=0)
    with pytest.raises(CaptioningError, match=r"cannot read the image <PIL\.Image\.Image image mode=F"):
        ImageTransform(16).read(Image.new("F", (2, 2)))


def test_transparent_palette_is_laid_over_white(tmp_path: Path) -> None:
    image = Image.new("P", (2, 2), 0)
    image.putpalette([*RED, *BLUE])
    image.putpixel((1, 1), 1)
    image.save(tmp_path / "a.png", transparency=0)
    assert colours(tmp_path / "a.png") == [WHITE, WHITE, WHITE, BLUE]


def test_resize_squashes_and_averages(tmp_path: Path) -> None:
    stripes = np.zeros((4, 64, 3), dtype=np.uint8)
    stripes[:, 1::2] = 255
    Image.fromarray(stripes).save(tmp_path / "a.png")
    np.testing.assert_allclose(colours(tmp_path / "a.png"), np.full((4, 3), 127.5), atol=2)


def thirds(width: int = 30, height: int = 10) -> Image.Image:
    """Red, green and blue from left to right."""
    pixels = np.repeat(np.array([[RED, GREEN, BLUE]], dtype=np.uint8), width // 3, axis=1)
    return Image.fromarray(np.repeat(pixels, height, axis=0))


def test_crop_takes_the_square_in_the_middle() -> None:
    for image in (thirds(), thirds().transpose(Image.Transpose.ROTATE_90)):
        found = ImageTransform(5, resize="crop").read(image)
        assert torch.equal(found, pil_to_tensor(center_crop(resize(image, [5]), [5])))
        assert (found[:, 1:-1, 1:-1] == torch.tensor(GREEN)[:, None, None]).all()


def test_pad_keeps_all_of_the_photograph_and_says_where_it_lies() -> None:
    image = ImageTransform(9, mean=(0.2, 0.4, 1.0), resize="pad").read(thirds())
    beside = torch.ones(9, 9, dtype=torch.bool)
    beside[3:6] = False
    assert torch.equal(image[3], torch.where(beside, 0, 255).to(torch.uint8))
    assert (image[:3, beside] == torch.tensor([[51], [102], [255]])).all()
    assert image[:3, 4, [0, 4, 8]].T.tolist() == [list(RED), list(GREEN), list(BLUE)]
    mirrored = ImageTransform(9, mean=(0.2, 0.4, 1.0), view=Change(mirror=True), resize="pad").read(thirds())
    assert torch.equal(mirrored, image.flip(-1))


def test_square_photographs_are_whole_however_they_are_resized() -> None:
    square = thirds(30, 30)
    squashed = ImageTransform(7).read(square)
    assert torch.equal(ImageTransform(7, resize="crop").read(square), squashed)
    padded = ImageTransform(7, resize="pad").read(square)
    assert torch.equal(padded[:3], squashed)
    assert (padded[3] == 255).all()


def test_frame_is_where_the_square_lies_on_the_upright_photograph(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # lies on its side in the file: 10 wide and 30 high when shown
    thirds().save(tmp_path / "a.png", exif=exif)
    assert ImageTransform(5, resize="crop").frame(tmp_path / "a.png") == pytest.approx((0, 1 / 3, 1, 2 / 3))
    assert ImageTransform(5, resize="pad").frame(tmp_path / "a.png") == pytest.approx((-1, 0, 2, 1))
    assert ImageTransform(5).frame(tmp_path / "absent.png") == (0, 0, 1, 1)


def test_large_jpeg_is_decoded_small_with_the_same_result(tmp_path: Path) -> None:
    ramp = np.linspace(0, 255, 800).astype(np.uint8)
    picture = np.stack(np.broadcast_arrays(ramp[:, None], ramp[None, :], np.uint8(90)), axis=-1)
    Image.fromarray(picture).save(tmp_path / "a.jpg", quality=95)
    image = ImageTransform(16).read(tmp_path / "a.jpg").numpy()
    wanted = np.linspace(0, 255, 16, endpoint=False) + 255 / 32
    np.testing.assert_allclose(image[0], np.broadcast_to(wanted[:, None], (16, 16)), atol=4)
    np.testing.assert_allclose(image[1], np.broadcast_to(wanted[None, :], (16, 16)), atol=4)


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    cut = [f"cut.{kind}" for kind in ("jpg", "png", "webp", "gif", "bmp", "tiff")]
    for name in cut:
        Image.fromarray(noise).save(tmp_path / name)
        whole = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.jpg").write_text("no image")
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "folder.jpg").mkdir()
    Image.new("F", (2, 2)).save(tmp_path / "float.tiff")
    for name in (*cut, "text.jpg", "empty.jpg", "folder.jpg", "float.tiff", "absent.jpg"):
        with pytest.raises(CaptioningError, match=rf"cannot read the image .*{name}"):
            ImageTransform(2).read(tmp_path / name)


def test_decompression_bomb_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    Image.new("1", (20_000, 20_000)).save(tmp_path / "bomb.png")
    assert (tmp_path / "bomb.png").stat().st_size < 100_000
    with pytest.raises(CaptioningError, match=r"cannot read the image .*bomb\.png: .*400000000 pixels"):
        ImageTransform(2).read(tmp_path / "bomb.png")


def test_normalise_is_torchvisions() -> None:
    images = torch.randint(0, 256, (2, 3, 5, 7), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    transform = ImageTransform(5, (0.1, 0.2, 0.3), (0.5, 0.6, 0.7))
    expected = normalize(images / 255, list(transform.mean), list(transform.std))
    torch.testing.assert_close(transform.normalise(images), expected)


class HostTensors(TorchDispatchMode):
    """Counts the tensors that are made of Python numbers: a GPU is waited for while each is copied to it."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func is torch.ops.aten.lift_fresh.default
        return func(*args, **(kwargs or {}))


def test_normalise_copies_nothing_to_the_device_as_torchvisions_does() -> None:
    images, transform = torch.zeros(2, 3, 5, 7, dtype=torch.uint8, device="meta"), ImageTransform(5)
    with HostTensors() as ours:
        transform.normalise(images)
    with HostTensors() as theirs:
        normalize(images / 255, list(transform.mean), list(transform.std))
    assert (ours.count, theirs.count) == (0, 2)


def test_settings_tell_transforms_apart() -> None:
    transforms = (ImageTransform(5), ImageTransform(7), ImageTransform(5, std=(1, 1, 1)), ImageTransform(5, (0, 0, 0)))
    transforms += tuple(ImageTransform(5, resize=how) for how in ("crop", "pad"))
    assert len({transform.settings for transform in transforms}) == 6
    assert ImageTransform(5).settings == ImageTransform(5).settings


def test_interpolation() -> None:
    photograph = Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8))
    found = ImageTransform(16, interpolation="bicubic")
    expected = torch.from_numpy(np.array(photograph.resize((16, 16), Image.Resampling.BICUBIC))).permute(2, 0, 1)
    assert torch.equal(found.read(photograph), expected)
    assert not torch.equal(ImageTransform(16).read(photograph), expected)
    assert found.settings != ImageTransform(16).settings


def test_the_whole_photograph_has_its_own_aspect_ratio_and_bounded_size(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # it lies on its side
    halves = Image.new("RGB", (90, 40), BLUE)
    halves.paste(RED, (0, 0, 45, 40))
    halves.save(tmp_path / "a.png", exif=exif)
    for square in get_args(Resize):
        transform = ImageTransform(5, resize=square)
        assert transform.whole(tmp_path / "a.png", 200).shape == (3, 90, 40)
        small = transform.whole(tmp_path / "a.png", 45)
        assert small.shape == (3, 45, 20)
        assert [tuple(small[:, row, 10].tolist()) for row in (5, 40)] == [RED, BLUE]
    with pytest.raises(CaptioningError, match=r"cannot read the image .*absent\.png"):
        ImageTransform(5).whole(tmp_path / "absent.png", 45)
