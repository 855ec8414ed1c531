from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms.functional import normalize

from captioning.backbones.images import ImageTransform
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


def test_exif_rotation_is_applied(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise by a quarter when shown
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


def test_large_jpeg_is_decoded_small_with_the_same_result(tmp_path: Path) -> None:
    ramp = np.linspace(0, 255, 800).astype(np.uint8)
    picture = np.stack(np.broadcast_arrays(ramp[:, None], ramp[None, :], np.uint8(90)), axis=-1)
    Image.fromarray(picture).save(tmp_path / "a.jpg", quality=95)
    image = ImageTransform(16).read(tmp_path / "a.jpg").numpy()
    wanted = np.linspace(0, 255, 16, endpoint=False) + 255 / 32
    np.testing.assert_allclose(image[0], np.broadcast_to(wanted[:, None], (16, 16)), atol=4)
    np.testing.assert_allclose(image[1], np.broadcast_to(wanted[None, :], (16, 16)), atol=4)


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    four_colours().resize((64, 64)).save(tmp_path / "cut.jpg")
    (tmp_path / "cut.jpg").write_bytes((tmp_path / "cut.jpg").read_bytes()[:400])
    (tmp_path / "text.jpg").write_text("no image")
    Image.new("F", (2, 2)).save(tmp_path / "float.tiff")
    for name in ("cut.jpg", "text.jpg", "float.tiff", "absent.jpg"):
        with pytest.raises(CaptioningError, match=rf"cannot read the image .*{name}"):
            ImageTransform(2).read(tmp_path / name)


def test_normalise_is_torchvisions() -> None:
    images = torch.randint(0, 256, (2, 3, 5, 7), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    transform = ImageTransform(5, (0.1, 0.2, 0.3), (0.5, 0.6, 0.7))
    expected = normalize(images / 255, list(transform.mean), list(transform.std))
    torch.testing.assert_close(transform.normalise(images), expected)


def test_settings_tell_transforms_apart() -> None:
    transforms = (ImageTransform(5), ImageTransform(7), ImageTransform(5, std=(1, 1, 1)), ImageTransform(5, (0, 0, 0)))
    assert len({transform.settings for transform in transforms}) == 4
    assert ImageTransform(5).settings == ImageTransform(5).settings
