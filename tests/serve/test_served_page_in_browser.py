"""The page in a headless Chromium of the system: a photograph is chosen, captions and their maps
appear.
"""

import pytest
from browser import brightest
from pictures import plain
from serving import CORNERS, HEAD, SAID, reciting, served, two_captioners

from captioning.serve.captions import CaptionUploads, upload_page

BEST = ".column:first-child li:first-child .caption"


@pytest.fixture(scope="module")
def server():
    with served(two_captioners()) as server:
        yield server


@pytest.fixture
def tab(chromium, server):
    """The page, opened anew; afterwards it has asked nobody else for anything."""
    chromium.open(server.url)
    yield chromium
    assert all(address.startswith((server.url, "data:")) for address in chromium.requests)


def choose(tab, path):
    document = tab.call("DOM.getDocument")["root"]["nodeId"]
    field = tab.call("DOM.querySelector", nodeId=document, selector="#photograph")["nodeId"]
    tab.call("DOM.setFileInputFiles", nodeId=field, files=[str(path)])


def captioned(tab):
    """All words of both columns are there."""
    tab.wait("[...document.querySelectorAll('.answers')].every(e => e.children.length)")
    tab.wait(
        "!document.querySelector('.coming') && document.querySelector('.column canvas').hidden"
    )


@pytest.fixture
def photograph(tmp_path):
    plain(tmp_path / "grey.png", (80, 40), "grey")
    return tmp_path / "grey.png"


def test_captions_appear_and_words_move_the_map(tab, photograph):
    def lit():
        """Where the first column's photograph is lit most, of the square in its middle that the
        network saw.
        """
        picture = tab.picture(".column:first-child .picture")
        return brightest(picture, (picture.width - picture.height) / 2)

    choose(tab, photograph)
    captioned(tab)
    assert tab.run(f"document.querySelector('{BEST}').textContent") == " ".join(
        SAID
    )  # with its markup as text
    assert tab.run("document.querySelectorAll('.column:first-child li').length") == 3  # n-best
    assert (
        tab.run("document.querySelector('.told').textContent")
        == f"one: {' '.join(SAID)}. two: {' '.join(SAID)}. "
    )
    for word, cell in enumerate(CORNERS, start=1):
        tab.point(f"{BEST} span:nth-child({word})")
        assert lit() == cell
    assert tab.run("document.querySelector('.readout').textContent").startswith(
        f"“{SAID[-1]}” · entropy "
    )
    tab.point("h1")
    assert tab.run("document.querySelector('.column canvas').hidden") is True
    tab.run(f"document.querySelector('{BEST}').focus({{preventScroll: true}})")
    tab.press("ArrowRight", "ArrowUp")  # from the mean to the last head
    assert lit() == HEAD
    assert (
        tab.run("document.querySelector('.column:last-child .blind').textContent") == "no attention"
    )
    assert tab.run("document.querySelectorAll('.column:last-child .caption[tabindex]').length") == 0
    for width in (1200, 700, 360):  # none scrolls sideways
        tab.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        assert tab.run("document.documentElement.scrollWidth") <= width
    assert tab.complaints == []


def test_settings_decode_anew_and_refusals_are_sentences(tab, photograph, tmp_path):
    choose(tab, photograph)
    captioned(tab)
    field = "document.querySelector('.settings:not([hidden]) [name={}]')"
    change = "({0}).value = '{1}', ({0}).dispatchEvent(new Event('change', {{bubbles: true}}))"
    tab.run(change.format(field.format("n_best"), 1))
    tab.wait("document.querySelectorAll('.column:last-child li').length === 1")
    tab.run(change.format("document.querySelector('[name=decoding]')", "greedy"))
    assert tab.run(field.format("n_best")) is None
    tab.run(change.format(field.format("max_length"), 2))
    tab.wait(f"document.querySelector('{BEST}')?.textContent === '{' '.join(SAID[:2])}'")
    tab.run(change.format(field.format("prefix"), "rde"))
    error = "document.querySelector('.error').textContent"
    tab.wait(f"{error}.includes('rde')")
    tab.run(change.format(field.format("prefix"), ""))
    tab.wait(f"{error} === ''")
    (tmp_path / "text.jpg").write_text("no photograph")
    choose(tab, tmp_path / "text.jpg")
    tab.wait(f"{error}.includes('AVIF')")
    for left in (
        ".answers li",
        ".seen:not([hidden])",
        ".how:not([hidden])",
    ):  # of the photograph before
        assert tab.run(f"document.querySelectorAll('{left}').length") == 0
    (tmp_path / "large.jpg").write_bytes(bytes(1_100_000))
    choose(tab, tmp_path / "large.jpg")
    tab.wait(f"{error}.includes('1.1 MB')")


@pytest.mark.parametrize("width, height", [(1200, 900), (390, 844)])
def test_photograph_and_best_caption_are_seen_without_scrolling(chromium, tmp_path, width, height):
    """Of one captioner, and a photograph that is twice as high as wide."""
    plain(tmp_path / "high.png", (150, 300))
    uploads = CaptionUploads([reciting("one")], megabytes=1, megapixels=1, waiting=2)
    with served(upload_page(uploads)) as server:
        chromium.open(server.url, width=width, height=height, mobile=width < 400)
        choose(chromium, tmp_path / "high.png")
        captioned(chromium)
        for part in (".picture", BEST):
            assert chromium.in_sight(part)


def test_a_photograph_is_dropped_or_pasted_or_an_example(tab):
    picture = """const canvas = new OffscreenCanvas(8, 8); canvas.getContext("2d");
        const blob = await canvas.convertToBlob(); const files = new DataTransfer();
        files.items.add(new File([blob], "dropped.png", {type: "image/png"}));"""
    assert tab.run("document.querySelectorAll('.examples img').length") == 12
    assert tab.run("document.querySelector('.search').open") is False
    below = (
        "document.querySelector('.columns')"
        ".compareDocumentPosition(document.querySelector('.search'))"
    )
    assert tab.run(f"{below} & Node.DOCUMENT_POSITION_FOLLOWING") != 0
    tab.click(".examples button:nth-child(2)")
    captioned(tab)
    for event in (
        "new DragEvent('drop', {dataTransfer: files, cancelable: true})",
        "new ClipboardEvent('paste', {clipboardData: files})",
    ):
        tab.run("document.querySelectorAll('.answers').forEach(e => e.replaceChildren())")
        tab.run(f"(async () => {{ {picture} document.dispatchEvent({event}); }})()")
        captioned(tab)
    assert tab.complaints == []
    several = (
        picture
        + """files.items.add(new File(["text"], "notes.txt"));
        files.items.add(new File([blob], "last.png", {type: "image/png"}));"""
    )
    tab.run(
        f"(async () => {{ {several} document.dispatchEvent(new DragEvent('drop', {{dataTransfer: "
        "files})); })()"
    )
    tab.wait(
        "document.querySelectorAll('.answers > li').length === 12"
    )  # three of two captioners, of two of the files
    assert tab.run("document.querySelector('.error').textContent").startswith(
        " notes.txt: this is not a photograph"
    )
    tab.run(
        f"(async () => {{ {picture} document.dispatchEvent(new DragEvent('drop', {{dataTransfer: "
        "files})); })()"
    )
    tab.wait("document.querySelectorAll('.answers').length === 2")
    captioned(tab)
