"""The same photographs, as every system describes them: its panels of attention one above the other."""

import warnings
from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from captioning.errors import CaptioningError
from captioning.report.systems import System

MARGIN, HEAD = 8, 30
MOST_PIXELS = 2**27
"""Of a page: 400 MB of memory."""


def save_figures(folder: Path, systems: Sequence[System]) -> tuple[list[Path], list[str]]:
    """Joins the panels of each photograph that the first run of every system has drawn; files called as they are.

    Returns:
        the files, and a line on each photograph that is left out because of a panel that cannot be read.
    """
    sources = [system.runs[0].folder / "attention" for system in systems]
    names = sorted(set.intersection(*({path.name for path in _panels(source)} for source in sources)))
    if names:
        folder.mkdir(exist_ok=True)
    joined, left_out = [], []
    for name in names:
        try:
            page = _page(systems, [_read(source / name) for source in sources])
        except CaptioningError as error:
            left_out.append(f"panels called {name}: {error}")
            continue
        page.save(folder / name)
        joined.append(folder / name)
    return joined, left_out


def _panels(folder: Path) -> list[Path]:
    return [path for path in folder.glob("*.png") if path.is_file()]  # opening a pipe would wait for ever


def _read(panel: Path) -> Image.Image:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(panel, formats=["PNG"]) as file:
                return file.convert("RGB")
    except Exception as error:  # Pillow's decoders raise nearly every exception there is on a broken file
        raise CaptioningError(f"cannot read {panel}: {type(error).__name__}") from error


def _page(systems: Sequence[System], pictures: Sequence[Image.Image]) -> Image.Image:
    wide = max(picture.width for picture in pictures) + 2 * MARGIN
    high = sum(picture.height + HEAD for picture in pictures) + MARGIN
    if wide * high > MOST_PIXELS:
        raise CaptioningError(f"a page of {wide} x {high} pixels is too large")
    page = Image.new("RGB", (wide, high), "white")
    pen, font, down = ImageDraw.Draw(page), ImageFont.load_default(18), 0
    for system, picture in zip(systems, pictures, strict=True):
        pen.text((MARGIN, down + HEAD / 2), system.label, fill="#202020", font=font, anchor="lm")
        page.paste(picture, (MARGIN, down + HEAD))
        down += HEAD + picture.height
    return page
