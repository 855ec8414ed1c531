"""Panels of several systems over one photograph, under each other.

captioning predict PHOTOGRAPH checkpoint=CHECKPOINT attention=true panels=FOLDER   # for each system
python experiments/page/words.py words.jpg "SYSTEM=FOLDER/PHOTOGRAPH.png" ...
"""

import sys
from pathlib import Path

from matplotlib import font_manager
from PIL import Image, ImageDraw, ImageFont

WIDTH, GAP = 1000, 12
LETTERS = 20


def main(output: Path, *given: str) -> None:
    """Writes `output`; above each panel stands its system."""
    font = ImageFont.truetype(font_manager.findfont("DejaVu Sans"), LETTERS)
    names, panels = zip(*(each.split("=", 1) for each in given), strict=True)
    pictures = [Image.open(panel).convert("RGB") for panel in panels]
    scale = WIDTH / max(picture.width for picture in pictures)  # one for all, so that letters are of one size
    pictures = [p.resize((round(p.width * scale), round(p.height * scale)), Image.Resampling.LANCZOS) for p in pictures]
    page = Image.new("RGB", (WIDTH, sum(p.height + LETTERS + 2 * GAP for p in pictures)), "white")
    draw, top = ImageDraw.Draw(page), 0
    for name, picture in zip(names, pictures, strict=True):
        draw.text((GAP, top + GAP), name, fill="#666666", font=font)
        page.paste(picture, (0, top + LETTERS + 2 * GAP))
        top += picture.height + LETTERS + 2 * GAP
    page.save(output, quality=88, optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
