"""The page of small runs in a headless Chromium of the system."""

import numpy as np
import pytest
from browser import CARDS, brightest
from json_files import read_lines, write_lines
from written import (
    ATTENDS,
    CORNERS,
    GREY,
    HEAD,
    SAID,
    SOFT,
    keep_maps,
    looks,
    page_of,
    write_photographs,
    write_run,
)

from captioning.runs.evaluation.attention_file import AttentionRecord, write

IMAGES = 60
STRANGE = "<script>document.title='harmed'</script> <b>\"quoted\"</b> שלום עולם 🐎"
FIRST = ".card:first-child li[data-system='{}'] .caption"
WORD = FIRST + " span:nth-child({})"
PICTURE = ".card:first-child .picture"
READOUT = "document.querySelector('.card .readout').textContent"
NAMES = (
    "[...document.querySelectorAll('.table > .scroll tbody th')].map(e => "
    "(e.querySelector('a') ?? e).textContent.trim())"
)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Sixty grey photographs; CIDEr of one system rises with their number, that of the other
    falls.
    """
    home = tmp_path_factory.mktemp("page")
    images, runs = write_photographs(home / "images", IMAGES), home / "runs"
    said = [SAID[i % 3] for i in range(IMAGES)]
    ciders = [float(i) for i in range(IMAGES)]
    keep_maps(write_run(runs, "sat_soft", 1, 21.0, said, ciders, images, scores=ATTENDS), said)
    others = [STRANGE, *["a zebra" if i == 30 else "a man" for i in range(1, IMAGES)]]
    lstm = (
        write_run(runs, "lstm", 1, 18.5, others, [500.0 - 2 * i for i in range(IMAGES)], images)
        / "captions.jsonl"
    )
    lines = read_lines(lstm)
    for i, line in enumerate(lines):
        line["scores"]["absent objects"] = float(i)
    write_lines(lstm, lines)
    page_of(runs, home / "report")
    return home / "report" / "index.html"


def test_a_heading_sorts_and_what_has_no_number_comes_last(tab):
    quoted = f"quoted {SOFT}, [SAT] Table 1"
    assert tab.run(NAMES) == ["lstm", SOFT, quoted]
    heading = "thead th[title='BLEU-4'] button"
    tab.click(heading)
    assert tab.run(NAMES) == [SOFT, quoted, "lstm"]
    tab.run(f"""document.querySelector("{heading}").focus()""")
    tab.run("document.activeElement.click()")  # as Enter does
    assert tab.run(NAMES) == ["lstm", quoted, SOFT]
    assert tab.run("document.querySelector('[aria-sort]').getAttribute('aria-sort')") == "ascending"
    tab.click("thead .name button")  # not by the numbers before the names
    assert tab.run(NAMES) == ["lstm", quoted, SOFT]
    tab.click("thead th[title='CIDEr'] button")
    assert tab.run(NAMES)[-1] == quoted


def test_a_row_tells_what_it_differs_in_and_two_are_compared(tab):
    assert tab.run(
        "[...document.querySelectorAll('.panel')].every(e => e.hidden)"
    )  # no boxes of instructions alone
    for row, told in ((1, "model.width4 → 8"), (0, "is the first")):
        tab.point(f"tbody tr[data-system='{row}'] th")
        assert told in tab.run("document.querySelector('.differs').textContent")
        tab.click(f"tbody tr[data-system='{row}'] input")
    text = tab.run("document.querySelector('.compared').innerText")
    # means: 500 - 59 and 29.5; p is the same after a correction for one pair
    assert "CIDEr\t+411.5\t[+398.0, +425.0]\t<0.001\t<0.001\n" in text
    tab.click("tbody tr[data-system='0'] input")
    assert "which other?" in tab.run("document.querySelector('.compared').innerText")
    tab.click("tbody tr[data-system='1'] input")
    assert tab.run("document.querySelector('.compared').hidden") is True


def test_a_matrix_has_each_pair_both_ways_by_the_chosen_score(tab):
    shown = "[...document.querySelectorAll('.pairs table:not([hidden]) td')].map(e => e.{})"
    assert tab.run(shown.format("textContent")) == ["", "+411.5", "-411.5", ""]
    assert tab.run(shown.format("className")) == ["", "above", "below", ""]
    (title,) = tab.run(shown.format("title"))[2:3]
    assert title == f"{SOFT} minus lstm: [-425.0, -398.0], p <0.001, corrected <0.001"
    tab.click(".pairs table:not([hidden]) [data-pair='1-0']")
    text = tab.run("document.querySelector('.pairs .compared').innerText")
    assert "CIDEr\t-411.5\t[-425.0, -398.0]\t<0.001\t<0.001\n" in text
    assert tab.run("document.querySelector('[data-system] td:last-child').textContent") == "none"


def test_photographs_are_searched_and_ordered_and_come_in_pieces(tab):
    assert tab.run(CARDS)[:3] == [1, 2, 3]
    assert len(tab.run(CARDS)) < IMAGES
    tab.wait(f"window.scrollTo(0, document.body.scrollHeight) || {CARDS}.length === {IMAGES}")
    tab.run("document.querySelector('.tools [name=words]').focus()")
    tab.call("Input.insertText", text="ZEB")
    assert tab.run(CARDS) == [31]
    assert tab.run("document.querySelector('[name=count]').value") == "1 of 60 images"
    tab.choose(words="ebra")  # no word begins so
    assert tab.run(CARDS) == []
    tab.choose(words="")
    for order, system, first in (("worst", "0", 60), ("best", "1", 60), ("worst", "1", 1)):
        tab.choose(one=system, order=order)
        assert tab.run(CARDS)[0] == first
    tab.choose(metric="1", one="0")  # absent objects, of which the least are the best
    for order, first in (("best", 1), ("worst", 60)):
        tab.choose(order=order)
        assert tab.run(CARDS)[0] == first
    tab.choose(metric="0", one="1", order="disagreement")
    assert tab.run(CARDS)[:2] == [1, 2]
    tab.choose(order="tested")
    assert tab.run(CARDS)[:2] == [1, 2]


def test_systems_are_switched_off_everywhere_and_markup_in_a_caption_is_text(tab):
    seen = """[...document.querySelectorAll(".cards li[data-system='0']")]
        .some(e => e.getClientRects().length > 0)"""
    for shown in (False, True):
        tab.click("[data-show='0']")
        assert tab.run(seen) is shown
    caption = f"""document.querySelector("{FIRST.format(0)}")"""
    assert tab.run(f"[{caption}.textContent, {caption}.childElementCount]") == [STRANGE, 0]
    assert tab.run("document.title").startswith("Captioning systems")


def test_the_photograph_is_lit_where_the_word_looked(tab, page, tmp_path):
    for word, corner in enumerate(CORNERS[:3], start=1):
        tab.point(WORD.format(1, word))
        assert brightest(tab.picture(PICTURE)) == corner
    # 255/330 and fifteen times 5/330 have 1.15 nats; even maps of 16 places ln 16 = 2.77
    assert tab.run(READOUT) == f"{SOFT}: “rides” · entropy 1.2 of 2.8 nats"
    tab.point(".card:first-child h4")
    assert tab.picture(PICTURE).getpixel((5, 5)) == (GREY, GREY, GREY)
    tab.run(f"""document.querySelector("{FIRST.format(1)}").focus({{preventScroll: true}})""")
    tab.press("ArrowRight")
    assert brightest(tab.picture(PICTURE)) == CORNERS[1]
    tab.press("ArrowDown")
    assert brightest(tab.picture(PICTURE)) == HEAD
    assert "inter 1 1" in tab.run(READOUT)
    tab.press("ArrowDown", "End", "ArrowRight")
    assert brightest(tab.picture(PICTURE)) == CORNERS[2]
    tab.press("Escape")
    assert tab.run("document.querySelector('.card canvas').hidden") is True
    # of a photograph twice as wide as high the network saw the square in the middle, and there its
    # top left corner
    text = page.read_text().replace(
        '"frame": [0.0, 0.0, 1.0, 1.0]', '"frame": [0.25, 0.0, 0.75, 1.0]'
    )
    (tmp_path / "index.html").write_text(text)
    tab.open(tmp_path / "index.html")
    tab.point(WORD.format(1, 1))
    picture = tab.picture(PICTURE).convert("L")
    unseen, lit = (
        picture.getpixel((int(picture.width * x), picture.height // 8)) for x in (0.1, 0.3)
    )
    assert unseen < 20
    assert lit > GREY


def show(tab, runs):
    page_of(runs, runs.parent / "report")
    tab.open(runs.parent / "report" / "index.html")


def test_a_language_without_blanks_is_written_without_and_found_within(chromium, tmp_path):
    images, runs, said = write_photographs(tmp_path / "images", 1), tmp_path / "runs", "一只狗t恤"
    run = write_run(runs, "sat_soft", 1, 1.0, [said], [2.0], images, scores=ATTENDS)
    maps = {"mean": np.stack([looks(HEAD)] * 5)}
    write(run / "attention.npz", [AttentionRecord(1, ("一", "只", "狗", "t", "恤"), maps)])
    show(chromium, runs)
    caption = f"""document.querySelector("{FIRST.format(0)}")"""
    assert chromium.run(f"[{caption}.textContent, {caption}.childElementCount]") == [said, 5]
    chromium.point(WORD.format(0, 3))
    assert "“狗”" in chromium.run(READOUT)
    for sought, found in (("狗", [1]), ("t恤", [1]), ("wo", [])):
        chromium.choose(words=sought)
        assert chromium.run(CARDS) == found


def open_small(tab, home):
    """One photograph and three systems: hard attention, soft attention that is nearly even at
    first, and none.
    """
    images, runs = write_photographs(home / "images", 1), home / "runs"
    keep_maps(
        write_run(runs, "sat_hard", 1, 1.0, SAID[:1], [3.0], images, scores=ATTENDS),
        SAID[:1],
        attended=True,
    )
    run = write_run(runs, "sat_soft", 1, 1.0, ["a dog"], [2.0], images, scores=ATTENDS)
    even = np.full((4, 4), 1 / 16, np.float32)
    even[0, 0] = 1.1 / 16
    write(
        run / "attention.npz",
        [AttentionRecord(1, ("a", "dog"), {"mean": np.stack([even, looks(HEAD)])})],
    )
    write_run(runs, "lstm", 1, 1.0, SAID[:1], [1.0], images)
    show(tab, runs)


def test_hard_attention_has_a_frame_and_a_path_and_a_map_that_is_nearly_even_no_peak(
    chromium, tmp_path
):
    open_small(chromium, tmp_path)
    chromium.point(WORD.format(0, 2))
    # the cell in row and column 1 of 4, on a photograph twice as wide as high: 320 x 160 units
    frame = ["x", "y", "width", "height"]
    marks = "document.querySelector('.card:first-child .marks')"
    chromium.wait(f"!!{marks}.querySelector('polyline')")  # a busy machine draws it later
    found = chromium.run(
        f"{frame}.map(a => Number({marks}.querySelector('.taken').getAttribute(a)))"
    )
    assert found == [80, 40, 80, 40]
    assert (
        chromium.run(f"{marks}.querySelector('polyline').getAttribute('points')") == "40,20 120,60"
    )
    picture = chromium.picture(PICTURE)
    lit, dark = (
        picture.getpixel((picture.width * 7 // 8, picture.height * y // 8))[0] for y in (1, 7)
    )
    assert lit > GREY > dark  # the light is where the weight is
    red, green, blue = picture.getpixel((int(picture.width * 3 / 8), picture.height // 4))
    assert min(red, green) > 150 > 100 > blue
    assert "took the frame, weight 0.02" in chromium.run(READOUT)
    for number, alike in ((1, True), (2, False)):
        chromium.point(WORD.format(1, number))
        assert chromium.run(f"{marks}.childElementCount") == 0
        picture = chromium.picture(".card:first-child canvas").convert("L")
        low, high = picture.crop(
            (8, 8, picture.width - 8, picture.height - 8)
        ).getextrema()  # its corners are round
        assert (high - low < 10) is alike
        assert (
            "everywhere alike, entropy 2.8 of 2.8 nats" in chromium.run(READOUT)
        ) is alike  # ln 16 = 2.77


def test_vectors_without_a_place_are_bars_under_their_labels(chromium, tmp_path):
    runs = tmp_path / "runs"
    run = write_run(runs, "yao_soft", 1, 1.0, ["a dog"], [2.0], scores=ATTENDS)
    maps = {"mean": np.array([[[0.1, 0.7, 0.2, 0.0]], [[0.25] * 4]], np.float32)}
    labels = ("ein", "Hund", "ist", "da")
    write(run / "attention.npz", [AttentionRecord(1, ("a", "dog"), maps, labels)])
    show(chromium, runs)
    chromium.point(WORD.format(0, 1))
    assert "entropy 0.8 of 1.4 nats · most on Hund" in chromium.run(READOUT)
    picture = np.asarray(chromium.picture(".card:first-child canvas").convert("RGB")).astype(int)
    lit = (picture[..., 0] > 200) & (picture[..., 2] < 100)
    heights = [int(column.any(axis=1).sum()) for column in np.array_split(lit, 4, axis=1)]
    assert heights[3] == 0 < heights[0] < heights[2] < heights[1]
    chromium.point(WORD.format(0, 2))
    assert "everywhere alike, entropy 1.4 of 1.4 nats" in chromium.run(READOUT)


def test_it_reads_without_a_script_and_no_width_scrolls_sideways(chromium, page):
    chromium.open(page, width=390, script=False)
    assert chromium.picture("h1").getextrema() != ((0, 0), (0, 0), (0, 0))
    found = chromium.run("document.querySelectorAll('.cards .card').length")
    shown = chromium.run("[...document.querySelectorAll('[data-script]')].every(e => e.hidden)")
    assert (found, shown) == (12, True)
    for width in (1200, 700, 360):
        chromium.open(page, width=width)
        assert chromium.run("document.documentElement.scrollWidth") <= width
