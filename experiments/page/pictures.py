"""The pictures of the first page: maps of words, `captioning serve` and a report. `README.md` has
the command.
"""

import base64
import io
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from browser import Browser, browser
from PIL import Image
from torch.nn.functional import interpolate
from torchvision.transforms.functional import pil_to_tensor

import captioning
from captioning.report.figures import DPI, figure
from captioning.report.panels import overlay

PHOTOGRAPH = Path(__file__).parents[1] / "photographs" / "000000214753.jpg"
WORDS = ("people", "riding", "horses", "beach")
WIDTH, GAP, LINE = 8.2, 0.1, 0.3  # inches: the picture, the space between parts, a line of letters
INK = "#1c1e21"
QUALITY = 90
SIZE = 900, 640  # pixels of a browser's window


def draw_words(photograph: Path, words: Sequence[str], to: Path) -> None:
    """The photograph, its caption, and 2 x 2 maps of words at half the photograph's size."""
    captioner = captioning.load()
    (prediction,) = captioner.caption([photograph])
    assert prediction.attention is not None
    pixels = pil_to_tensor(Image.open(photograph).convert("RGB"))[None] / 255
    aspect = pixels.shape[2] / pixels.shape[3]
    # height = large * aspect + LINE = 2 * (small * aspect + LINE) + GAP
    large = (WIDTH - 4 * GAP + (LINE + GAP) / aspect) / 2
    small = (WIDTH - 4 * GAP - large) / 2
    height = large * aspect + LINE + 2 * GAP
    page = figure(WIDTH, height)

    def place(left: float, top: float, width: float, picture: Image.Image) -> None:
        area = (left / WIDTH, 1 - (top + width * aspect) / height, width / WIDTH)
        axes = page.add_axes((*area, width * aspect / height))
        axes.imshow(picture, aspect="auto", interpolation="lanczos")
        axes.set_axis_off()

    def write(x: float, y: float, text: str, size: float, align: str) -> None:
        at = x / WIDTH, 1 - y / height
        page.text(*at, text, fontsize=size, color=INK, ha=align, va="center", parse_math=False)

    write(GAP, GAP + LINE / 2 - 0.03, prediction.caption, 12, "left")
    place(GAP, GAP + LINE, large, Image.open(photograph).convert("RGB"))
    shape = round(DPI * small * aspect), round(DPI * small)
    scaled = interpolate(pixels, shape, mode="bicubic", antialias=True)[0].clamp(0, 1)
    for number, word in enumerate(words):
        row, column = divmod(number, 2)
        step = prediction.words.index(word)
        (lit,) = overlay(scaled, prediction.attention[step : step + 1].float())
        left = 2 * GAP + large + column * (small + GAP)
        top = GAP + row * (small * aspect + LINE + GAP)
        write(left + small / 2, top + LINE / 2 - 0.03, word, 12, "center")
        shown = Image.fromarray((255 * lit.permute(1, 2, 0)).byte().numpy())
        place(left, top + LINE, small, shown)
    page.savefig(to, dpi=DPI, facecolor="white", pil_kwargs={"quality": QUALITY})


@contextmanager
def served() -> Iterator[str]:
    """The address of `captioning serve`."""
    command = [sys.executable, "-m", "captioning", "serve", "port=0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            yield process.stdout.readline().split()[1].rstrip(";")
        finally:
            process.terminate()


def shoot_serve(tab: Browser, photograph: Path, word: str, to: Path) -> None:
    """The page of a captioner after a photograph was dropped, with the map of a word."""
    with served() as address:
        tab.open(address, width=SIZE[0], height=SIZE[1])
        document = tab.call("DOM.getDocument")["root"]["nodeId"]
        field = tab.call("DOM.querySelector", nodeId=document, selector="#photograph")["nodeId"]
        tab.call("DOM.setFileInputFiles", nodeId=field, files=[str(photograph)])
        tab.wait("document.querySelector('.answers')?.children.length")
        tab.wait("!document.querySelector('.coming')")
        caption = tab.run("document.querySelector('.column .caption').textContent").split()
        tab.run("document.querySelector('.column .caption').focus({preventScroll: true})")
        tab.press(*["ArrowRight"] * caption.index(word))
        tab.wait("!document.querySelector('.column canvas').hidden")
        tab.run("scrollTo({top: 0, behavior: 'instant'})")
        shoot(tab, to)


def shoot_report(tab: Browser, page: Path, query: str, word: str, to: Path) -> None:
    """The images of a report whose captions contain `query`, with the map of `word`."""
    tab.open(page, width=SIZE[0], height=SIZE[1])
    field = "document.querySelector('input[type=search]')"
    tab.run(f"{field}.value = {json.dumps(query)}")
    tab.run(f"{field}.dispatchEvent(new Event('input', {{bubbles: true}}))")
    found = f"e => e.textContent.split(' ').includes({json.dumps(word)})"
    caption = f"[...document.querySelectorAll('.cards .caption')].find({found})"
    tab.wait(f"!!{caption}")
    said = tab.run(f"{caption}.textContent").split()
    tab.run(f"{caption}.focus({{preventScroll: true}})")
    tab.press(*["ArrowRight"] * said.index(word))
    tab.run(f"{caption}.closest('.card').scrollIntoView({{behavior: 'instant'}})")
    tab.run("scrollBy({top: -document.querySelector('.tools').offsetHeight, behavior: 'instant'})")
    shoot(tab, to)


def shoot(tab: Browser, to: Path) -> None:
    """What the window shows."""
    content = tab.call("Page.captureScreenshot", format="png")
    Image.open(io.BytesIO(base64.b64decode(content["data"]))).convert("RGB").save(
        to, quality=QUALITY
    )


def main(report: Path, chapter: Path, to: Path) -> None:
    """`report` and `chapter` are the `index.html` of the demo's report and of chapter 6's."""
    draw_words(PHOTOGRAPH, WORDS, to / "words.jpg")
    with browser() as tab:
        shoot_serve(tab, PHOTOGRAPH, WORDS[2], to / "serve.jpg")
        shoot_report(tab, report, "below", "circle", to / "report.jpg")
        shoot_report(tab, chapter, "moon", "moon", to / "skies.jpg")
    print(json.dumps({path.name: path.stat().st_size for path in sorted(to.glob("*.jpg"))}))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
