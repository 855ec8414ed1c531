"""The same photographs, as every system describes them: its panels of attention one above the other."""

from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from captioning.report.systems import System

MARGIN, HEAD = 8, 30


def save_figures(folder: Path, systems: Sequence[System]) -> list[Path]:
    """Joins the panels of each photograph that the first run of every system has drawn; files called as they are."""
    sources = [system.runs[0].folder / "attention" for system in systems]
    names = sorted(set.intersection(*({path.name for path in source.glob("*.png")} for source in sources)))
    if names:
        folder.mkdir(exist_ok=True)
    return [_joined(folder / name, systems, [source / name for source in sources]) for name in names]


def _joined(path: Path, systems: Sequence[System], panels: Sequence[Path]) -> Path:
    pictures = []
    for panel in panels:
        with Image.open(panel) as file:
            pictures.append(file.convert("RGB"))
    wide = max(picture.width for picture in pictures) + 2 * MARGIN
    page = Image.new("RGB", (wide, sum(picture.height + HEAD for picture in pictures) + MARGIN), "white")
    pen, font, down = ImageDraw.Draw(page), ImageFont.load_default(18), 0
    for system, picture in zip(systems, pictures, strict=True):
        pen.text((MARGIN, down + HEAD / 2), system.label, fill="#202020", font=font, anchor="lm")
        page.paste(picture, (MARGIN, down + HEAD))
        down += HEAD + picture.height
    page.save(path)
    return path
