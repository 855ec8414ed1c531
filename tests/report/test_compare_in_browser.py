"""The page of a comparison in a headless Chromium of the system."""

import json

import pytest
from browser import CARDS
from pictures import plain
from support import called

from captioning.report.compare.__main__ import main

IMAGES = 60
STRANGE = "<i>odd</i>"
ROWS = (
    "[...document.querySelectorAll('#terms-{} tbody tr')].map(r => [...r.cells].map(c => "
    "c.textContent))"
)
FIRST = "document.querySelector('.card:first-child {}').{}"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """CIDEr of one system rises with the image's number, that of the other does not; both name an
    absent dog.
    """
    home = tmp_path_factory.mktemp("compare")
    said = {("a", 3): "a dog rides", ("a", 7): f"a {STRANGE} rides", ("b", 9): "dogs ride"}
    for side in ("a", "b"):
        lines = []
        for i in range(1, IMAGES + 1):
            caption = said.get((side, i), "a man rides")
            line = {
                "image_id": i,
                "caption": caption,
                "references": ["a man"],
                "photograph": f"{i}.png",
                "scores": {"CIDEr": 10.0 * i if side == "a" else 100.0, "METEOR": 50.0},
                "hallucinated": ["dog"] if "dog" in caption else [],
            }
            lines.append(json.dumps(line) + "\n")
        (home / side).mkdir()
        (home / side / "captions.jsonl").write_text("".join(lines))
    plain(home / "3.png", (40, 20))
    settings = [f"files=[{home / 'a'},{home / 'b'}]", "metrics=[]"]
    settings += [f"images={home}", "page.image_size=64", "page.embed_mb=1"]
    called(main, *settings, f"output={home}")
    return home / "index.html"


def test_images_are_ordered_by_the_difference_of_any_score_both_ways(tab):
    assert tab.run(CARDS)[:2] == [60, 59]
    assert len(tab.run(CARDS)) < IMAGES
    assert "+500.0" in tab.run(FIRST.format("h4", "textContent"))
    tab.choose(one="1", other="0")
    assert tab.run(CARDS)[:2] == [1, 2]
    assert "+90.0" in tab.run(FIRST.format("h4", "textContent"))
    told = "document.querySelector('.histogram .hint').textContent"
    assert "a is higher on 50, b on 9; without difference are 1," in tab.run(told)
    assert tab.run(
        "[...document.querySelectorAll('.histogram rect')].some(bar => "
        "Number(bar.getAttribute('height')))"
    )
    tab.choose(metric="1")
    assert "METEOR, a minus b" in tab.run(told)
    assert "without difference are 60," in tab.run(told)


def test_a_word_leads_to_the_images_where_one_alone_says_it(tab):
    rows = tab.run(ROWS.format(0))
    one = ["+1", "[−1, +1]"]  # of the one image, of which either might be the only one to say it
    assert rows[:2] == [["a", "60", "59", *one], ["dog", "1", "0", *one]]
    assert ["odd", "1", "0", *one] in rows
    tab.click("#terms-0 tbody tr:nth-child(2) button")
    assert tab.run(CARDS) == [3]
    assert tab.run("[...document.querySelectorAll('.cards mark')].map(e => e.textContent)") == [
        "dog",
        "man",
    ]
    assert tab.run(FIRST.format("img", "naturalWidth")) == 40
    tab.choose(one="1", other="0", word=" ODD ")  # of b
    assert tab.run(CARDS) == []
    tab.choose(one="0", other="1")
    assert tab.run(CARDS) == [7]
    assert (
        tab.run(FIRST.format('[data-system="0"] .caption', "textContent")) == f"a {STRANGE} rides"
    )
    assert tab.run(FIRST.format("mark", "childElementCount")) == 0


def test_an_object_that_is_not_there_leads_to_its_images(tab):
    assert tab.run(ROWS.format(1)) == []  # as often by either
    for one, other, expected in (("0", "1", [3]), ("1", "0", [9])):
        tab.choose(one=one, other=other, object="dog")
        assert tab.run(CARDS) == expected
    assert tab.run(FIRST.format("small", "textContent")) == "hallucinated: dog"


def test_scores_and_first_captions_need_no_script(tab, page):
    tab.open(page, script=False)
    text = tab.run("document.body.textContent")
    assert "a man rides" in text
    assert "CIDEr (x 100)" in text
    assert "95 % intervals, images only" in text
    assert "p is below 0.05 for CIDEr" in text
