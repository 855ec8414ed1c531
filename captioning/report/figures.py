"""The same photographs, as every system describes them: its panels of attention one above the other."""

import textwrap
import warnings
from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from captioning.errors import CaptioningError
from captioning.report.drawing import DPI
from captioning.report.systems import System

MARGIN, LINE, LETTERS = 16, 48, 32
"""Pixels: around the page, from line to line, and the size of letters."""
MOST_PIXELS = 2**27
"""Of a page: 400 MB of memory."""


def save_figures(folder: Path, systems: Sequence[System]) -> tuple[list[Path], list[str]]:
    """Joins the panels of each photograph that the first run of every system has drawn; PNG and PDF called as they are.

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
        for path in ((folder / name), (folder / name).with_suffix(".pdf")):
            page.save(path, resolution=DPI)
            joined.append(path)
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
    font = ImageFont.load_default(LETTERS)
    wide = max(picture.width for picture in pictures) + 2 * MARGIN
    across = max(8, int((wide - 2 * MARGIN) / font.getlength("0")))  # digits are wider than most letters
    labels = [textwrap.wrap(system.label, across) for system in systems]
    high = sum(picture.height + LINE * len(lines) for picture, lines in zip(pictures, labels, strict=True)) + MARGIN
    if wide * high > MOST_PIXELS:
        raise CaptioningError(f"a page of {wide} x {high} pixels is too large")
    page = Image.new("RGB", (wide, high), "white")
    pen, down = ImageDraw.Draw(page), 0
    for lines, picture in zip(labels, pictures, strict=True):
        for line in lines:
            pen.text((MARGIN, down + LINE / 2), line, fill="#202020", font=font, anchor="lm")
            down += LINE
        page.paste(picture, (MARGIN, down))
        down += picture.height
    return page
