"""Numbers about photographs, and those that are broken or there twice.

P photographs, H = W = 8 pixels.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL.Image import Transpose as T

from captioning.backbones.images import FULL_RANGE, ImageTransform
from captioning.data.example import Splits, image_names, single_images
from captioning.data.images import open_image
from captioning.data.pixels import turn
from captioning.data.readers.on_disk import absent_files
from captioning.data.rows import open_source
from captioning.describe.captions import Locations, quantiles
from captioning.errors import CaptioningError
from captioning.progress import progress_bar

SMALL = ImageTransform(8)
SIDEWAYS = {T.ROTATE_90, T.ROTATE_270, T.TRANSPOSE, T.TRANSVERSE}
LISTED = 12  # sizes
# One photograph in two sizes and compressions differs by up to 0.1 standard deviations of its
# pixels in the mean, and in its colours by up to 2 of 255 (260 photographs of Flickr8k); two
# photographs by 0.18 and more.
ALIKE, NEAR, GREY = 0.1, 2, 4
PART = 0.5  # of the range of 16 bits: images that use less were made with fewer bits (D)


Pairs = dict[str, list[tuple[Path, Path]]]
"""Files of two photographs that look the same, in the order of their locations."""


class ImageFile(NamedTuple):
    """The content of a file."""

    split: str
    name: str
    path: Path
    format: str | None
    mode: str
    size: tuple[int, int]  # width and height, upright
    turned: bool  # by its EXIF data
    extrema: tuple[int, int] | None  # least and largest value of a 16-bit image
    digest: bytes
    pixels: np.ndarray  # `[3, H, W]` uint8, upright


def describe_images(
    splits: Splits, root: str | Path | None, drawn: bool
) -> tuple[dict[str, Any], Locations, Pairs]:
    """Numbers of all photographs, places of what is wrong, and pairs that look the same.

    Scenes that are `drawn` may look alike.
    """
    files = []
    for split, examples in splits.items():
        single = single_images(examples)
        for example, name in zip(single, image_names(single, root), strict=True):
            files.append((split, name, example.path))
    absent = {*absent_files(path for _, _, path in files)}
    present = [file for file in files if file[2] not in absent]
    with ThreadPoolExecutor() as pool:  # Pillow releases the GIL while decoding
        looks = pool.map(_look, present)
        bar = progress_bar("photographs read", len(present), "photograph", iterable=looks, delay=2)
        results = list(bar)
    good = [result for result in results if isinstance(result, ImageFile)]
    locations = Locations(list)
    locations["missing"] = [f"{split} {name}" for split, name, path in files if path in absent]
    locations["broken"] = [result for result in results if isinstance(result, str)]
    pairs: Pairs = defaultdict(list)
    for kind, one, other in _pairs(good, drawn):
        kind += " within a split" if one.split == other.split else " between splits"
        locations[kind].append(f"{one.split} {one.name} = {other.split} {other.name}")
        pairs[kind].append((one.path, other.path))
    numbers = _numbers(good, drawn)
    low, high = numbers["16-bit range"] or FULL_RANGE
    narrow = high - low < PART * FULL_RANGE[1]
    if low < high and (narrow or low < 0 or high > FULL_RANGE[1]):
        deep = [image for image in good if image.extrema]
        locations["16 bits"] = [f"{image.split} {image.name}" for image in deep]
    return numbers, locations, pairs


def _numbers(good: Sequence[ImageFile], drawn: bool) -> dict[str, Any]:
    """What is counted of the photographs that can be read."""
    formats = Counter(str(image.format) for image in good)
    modes = Counter(image.mode for image in good)
    sizes = Counter(image.size for image in good)
    sides = np.reshape([image.size for image in good], (-1, 2))
    shapes = sides[:, 0] / sides[:, 1]
    rounded = Counter(f"{shape:.1f}" for shape in shapes.clip(0.1, 9))
    extrema = [value for image in good for value in image.extrema or ()]
    grey = [image for image in good if np.ptp(image.pixels, 0).max() <= GREY]
    return {
        "read": len(good),
        "drawn": drawn,
        "formats": dict(formats.most_common()),
        "modes": dict(modes.most_common()),
        "without colour": len(grey),
        "16-bit range": (min(extrema), max(extrema)) if extrema else None,
        "turned by EXIF": sum(image.turned for image in good),
        "sizes": [(f"{width} x {height}", n) for (width, height), n in sizes.most_common(LISTED)],
        "different sizes": len(sizes),
        "longer side": quantiles(sides.max(1)),
        "width / height": quantiles(shapes),
        "shapes": dict(sorted(rounded.items())),
    }


def _look(file: tuple[str, str, Path]) -> ImageFile | str:
    """Read a file, or say why it cannot be read."""
    path = file[-1]
    try:
        with open_image(path) as image:
            turned = turn(image)
            size = image.size[::-1] if turned in SIDEWAYS else image.size
            extrema: Any = image.getextrema() if image.mode.startswith("I") else None
            header = *file, image.format, image.mode, size, turned is not None, extrema
        with open_source(path) as source:
            digest = hashlib.sha256(source.read()).digest()
        return ImageFile(*header, digest, SMALL.read(path).numpy())
    except CaptioningError as error:
        return str(error)


def _pairs(good: Sequence[ImageFile], drawn: bool) -> Iterator[tuple[str, ImageFile, ImageFile]]:
    """Copies, by their bytes, and unless they are drawn pairs that look alike."""
    first: dict[bytes, ImageFile] = {}
    for image in good:
        earlier = first.setdefault(image.digest, image)
        if earlier is not image:
            yield "copies", earlier, image
    different = [] if drawn else list(first.values())
    pixels = np.array([image.pixels for image in different], np.float32)
    small = pixels.reshape(-1, 3, 2, 4, 2, 4)
    order = small.mean((1, 2, 3, 4, 5)).argsort()
    coarse, flat = small[order].mean((3, 5)).reshape(-1, 12), small[order].reshape(-1, 192)
    mean, deviation = flat.mean(1), flat.std(1)
    # each with its next neighbour by mean colour, with the one after that, ...
    for step in range(1, len(order)):
        near = mean[step:] - mean[:-step] <= NEAR
        if not near.any():
            return
        (one,) = np.nonzero(near & (np.abs(coarse[step:] - coarse[:-step]).max(1) <= 2 * NEAR))
        difference = np.abs(flat[one + step] - flat[one]).mean(1)
        for i in one[difference < ALIKE * np.minimum(deviation[one], deviation[one + step])]:
            yield "alike", *(different[index] for index in sorted(order[[i, i + step]]))
