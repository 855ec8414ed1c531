"""Numbers about photographs, and those that are broken or there twice.

P photographs, H = W = 8 pixels.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL.Image import Transpose as T

from captioning.backbones.images import FULL_RANGE, ImageTransform
from captioning.data.example import Splits, photographs, single_images
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


class Photograph(NamedTuple):
    """The content of a file."""

    split: str
    name: str
    format: str | None
    mode: str
    size: tuple[int, int]  # width and height, upright
    turned: bool  # by its EXIF data
    extrema: tuple[int, int] | None  # least and largest value of a 16-bit image
    digest: bytes
    pixels: np.ndarray  # `[3, H, W]` uint8, upright


def describe_photographs(
    splits: Splits, root: str | Path | None, drawn: bool
) -> tuple[dict[str, Any], Locations]:
    """Numbers of all photographs, and places of what is wrong.

    Scenes that are `drawn` may look alike.
    """
    files = [
        (split, name, example.path)
        for split, described in splits.items()
        for examples in [single_images(described)]
        for example, name in zip(examples, photographs(examples, root), strict=True)
    ]
    missing = {*absent_files(path for *_, path in files)}
    locations = Locations(
        list, missing=[f"{split} {name}" for split, name, path in files if path in missing]
    )
    files = [file for file in files if file[2] not in missing]
    with ThreadPoolExecutor() as pool:  # Pillow releases the GIL while decoding
        results = list(
            progress_bar(
                "photographs read",
                len(files),
                "photograph",
                iterable=pool.map(_look, files),
                delay=2,
            )
        )
    locations["broken"] = [result for result in results if isinstance(result, str)]
    good = [result for result in results if isinstance(result, Photograph)]
    for kind, one, other in _pairs(good, drawn):
        where = "within a split" if one.split == other.split else "between splits"
        locations[f"{kind} {where}"].append(f"{one.split} {one.name} = {other.split} {other.name}")
    deep = [photograph for photograph in good if photograph.extrema]
    extrema = [value for photograph in deep for value in photograph.extrema or ()]
    low, high = (min(extrema), max(extrema)) if extrema else FULL_RANGE
    if low < high and (high - low < PART * FULL_RANGE[1] or low < 0 or high > FULL_RANGE[1]):
        locations["16 bits"] = [f"{photograph.split} {photograph.name}" for photograph in deep]
    shapes = [photograph.size[0] / photograph.size[1] for photograph in good]
    sizes = Counter(photograph.size for photograph in good)
    return {
        "read": len(good),
        "drawn": drawn,
        "formats": dict(Counter(str(photograph.format) for photograph in good).most_common()),
        "modes": dict(Counter(photograph.mode for photograph in good).most_common()),
        "without colour": sum(
            int(np.ptp(photograph.pixels, 0).max()) <= GREY for photograph in good
        ),
        "16-bit range": (low, high) if deep else None,
        "turned by EXIF": sum(photograph.turned for photograph in good),
        "sizes": [(f"{width} x {height}", n) for (width, height), n in sizes.most_common(LISTED)],
        "different sizes": len(sizes),
        "longer side": quantiles([max(photograph.size) for photograph in good]),
        "width / height": quantiles(shapes),
        "shapes": dict(
            sorted(Counter(f"{min(max(shape, 0.1), 9):.1f}" for shape in shapes).items())
        ),
    }, locations


def _look(file: tuple[str, str, Path]) -> Photograph | str:
    """Read a file, or say why it cannot be read."""
    split, name, path = file
    try:
        with open_image(path) as image:
            turned = turn(image)
            size = image.size[::-1] if turned in SIDEWAYS else image.size
            extrema: Any = image.getextrema() if image.mode.startswith("I") else None
            header = split, name, image.format, image.mode, size, turned is not None, extrema
        with open_source(path) as source:
            digest = hashlib.sha256(source.read()).digest()
        return Photograph(*header, digest, SMALL.read(path).numpy())
    except CaptioningError as error:
        return str(error)


def _pairs(good: Sequence[Photograph], drawn: bool) -> Iterator[tuple[str, Photograph, Photograph]]:
    """Copies, by their bytes, and unless they are drawn pairs that look alike."""
    first: dict[bytes, Photograph] = {}
    for photograph in good:
        earlier = first.setdefault(photograph.digest, photograph)
        if earlier is not photograph:
            yield "copies", earlier, photograph
    different = [] if drawn else list(first.values())
    pixels = np.array([photograph.pixels for photograph in different], np.float32)
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
