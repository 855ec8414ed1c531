"""Photographs of a page: found where the runs' data lie, scaled down, put into the page or into a folder beside it."""

import base64
import hashlib
import io
import warnings
from dataclasses import dataclass
from pathlib import Path, PurePath

from PIL import Image, ImageOps

from captioning.config.settings import read_settings
from captioning.files import FORMATS, atomic_write

QUALITY = 72
MEGABYTE = 1_000_000


@dataclass(frozen=True, slots=True)
class Photograph:
    """A scaled JPEG."""

    jpeg: bytes
    width: int
    height: int

    def data_uri(self) -> str:
        """For a page that holds it."""
        return f"data:image/jpeg;base64,{base64.b64encode(self.jpeg).decode()}"

    def save(self, folder: Path) -> str:
        """Writes it below its digest; gives its address as seen from the page beside the folder."""
        name = f"{hashlib.sha256(self.jpeg).hexdigest()[:20]}.jpg"
        if not (folder / name).is_file():
            with atomic_write(folder / name) as file:
                file.write(self.jpeg)
        return f"{folder.name}/{name}"


def root_of(run: Path, chosen: str) -> Path | None:
    """The folder that a run's photographs lie in: the one `chosen`, or with `auto` that of its data."""
    if chosen != "auto":
        return Path(chosen).expanduser()
    data = read_settings(run / "config.yaml").get("data")
    reader = data.get("reader") if isinstance(data, dict) else None
    root = reader.get("root") if isinstance(reader, dict) else None
    return Path(root).expanduser() if isinstance(root, str) and "\0" not in root else None


def read_photograph(root: Path, name: str, side: int) -> Photograph | None:
    """The photograph called `name` below `root`, or at the absolute path `name`, its longer side at most `side` pixels.

    Returns:
        None where there is none that can be read, or `name` leads out of `root`: the page does without.
    """
    if ".." in PurePath(name).parts or "\0" in name:
        return None
    try:
        path = root / name
        if not path.is_file():  # opening a pipe would wait for ever
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path, formats=FORMATS) as image:
                image.draft("RGB", (side, side))
                upright = ImageOps.exif_transpose(image).convert("RGB")
        upright.thumbnail((side, side))
    except Exception:  # Pillow's decoders raise nearly every exception there is on a broken file
        return None
    return as_jpeg(upright)


def as_jpeg(image: Image.Image) -> Photograph:
    """An RGB image of the size that it is to have."""
    content = io.BytesIO()
    image.save(content, "JPEG", quality=QUALITY, optimize=True)
    return Photograph(content.getvalue(), *image.size)


def addresses(photographs: list[Photograph | None], folder: Path, inside: float) -> list[str | None]:
    """What the page writes for each: itself, if all together have at most `inside` MB, else its place in `folder`."""
    found = [each for each in photographs if each is not None]
    if sum(len(each.jpeg) for each in found) * 4 / 3 <= inside * MEGABYTE:  # base64 has 4 letters for 3 bytes
        return [None if each is None else each.data_uri() for each in photographs]
    folder.mkdir(exist_ok=True)
    return [None if each is None else each.save(folder) for each in photographs]
