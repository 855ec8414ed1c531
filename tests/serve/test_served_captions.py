"""Photographs posted to a server with two captioners: what is answered, and what is refused."""

import base64
import io
import json
import math
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image
from serving import CORNERS, GRID, HEAD, SAID, ask, post, served, two_captioners
from support import composed

from captioning.config.settings import check_settings
from captioning.serve.__main__ import ServeSettings, _caption_page
from captioning.serve.captions import ServedCaptioner
from captioning.serve.controls import decoding_choices, requested_decoding


@pytest.fixture(scope="module")
def server():
    with served(two_captioners(megabytes=0.5, megapixels=0.1)) as server:
        yield server


def file(image=None, kind="PNG", **settings):
    content = io.BytesIO()
    (image or Image.new("RGB", (60, 40), "teal")).save(content, kind, **settings)
    return content.getvalue()


def lines(answer):
    assert answer.status == 200, answer.content
    return [json.loads(line) for line in answer.content.splitlines()]


def test_without_a_checkpoint_it_is_the_bundled_captioner():
    with served(_caption_page(check_settings(ServeSettings, composed(name="serve")))) as server:
        assert b"bundled captioner" in ask(server, "/").content


def test_every_captioner_answers_with_words_scores_and_maps(server):
    shown, one, two = lines(post(server, file(), {"decoding": "beam", "width": 3, "n_best": 2}))
    assert shown["size"] == [60, 40]
    assert (one["column"], two["column"]) == (0, 1)
    best, other = one["captions"]
    assert (best["caption"], best["words"]) == (" ".join(SAID), list(SAID))
    # every token has the logit 3 and six others zero; the length penalty of 1, as of the run, makes
    # it the average
    assert best["score"] == pytest.approx(3 - math.log(math.exp(3) + 6), abs=1e-4)
    assert other["score"] < best["score"]
    assert best["confidence"] is None  # it was asked for another width than the run's
    assert best["maps"]["names"] == ["mean", "inter 1", "inter 2"]
    assert best["maps"]["grid"] == [GRID, GRID]
    cells = np.frombuffer(base64.b64decode(best["maps"]["maps"]), np.uint8).reshape(
        3, len(SAID), GRID * GRID
    )
    peaks = [divmod(int(cell), GRID) for cell in cells.argmax(-1).flatten()]
    assert peaks == [*CORNERS, *CORNERS, HEAD, HEAD, HEAD]
    assert [caption["maps"] for caption in two["captions"]] == [None, None]


def test_confidence_samples_filters_and_an_upright_photograph(server):
    _, one, _ = lines(
        post(server, file(), {"decoding": "beam", "n_best": 2})
    )  # the run's own search
    for caption in one["captions"]:
        assert caption["confidence"] == pytest.approx(
            min((caption["score"] + 3) / 2.5, 1), abs=0.02
        )
    exif = Image.Exif()
    exif[0x0112] = 6
    asked = {
        "decoding": "sample",
        "n": 7,
        "temperature": 3,
        "filters": {"forbidden": ["red"], "min_length": 2},
    }
    shown, one, _ = lines(post(server, file(kind="JPEG", exif=exif), asked))
    captions = [caption["words"] for caption in one["captions"]]
    assert len(captions) == 7
    assert not any("red" in words or len(words) < 2 for words in captions)
    assert shown["size"] == [40, 60]
    with Image.open(io.BytesIO(base64.b64decode(shown["photograph"].partition(",")[2]))) as image:
        assert (image.format, image.size) == ("JPEG", (40, 60))


BEAM, GREEDY = {"decoding": "beam"}, {"decoding": "greedy"}
REFUSED = [
    (BEAM | {"widht": 3}, "decoding.widht"),
    (BEAM | {"width": 33}, "decoding.width"),
    (BEAM | {"width": True}, "decoding.width"),
    (BEAM | {"width": 2, "n_best": 3}, "n_best"),
    (BEAM | {"length_penalty": float("nan")}, "decoding.length_penalty"),
    (GREEDY | {"max_length": 13}, "decoding.max_length"),
    (GREEDY | {"filters": {"prefix": ["rde"]}}, "rde"),
    (GREEDY | {"filters": {"_target_": "os.system"}}, "decoding.filters._target_"),
    (GREEDY | {"filters": []}, "settings"),
    (GREEDY | {"_target_": "os.system"}, "decoding._target_"),
    ({"decoding": ["beam"]}, "decoding="),
    (["beam"], "decoding="),
]
REFUSED = [
    *(({"settings": settings}, 400, key) for settings, key in REFUSED),
    *(({"query": query}, 400, "settings") for query in ("", "settings=" + 30_000 * "[")),
    ({"content": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"}, 415, "JPEG"),
    ({"content": file(kind="JPEG")[:400]}, 422, "photograph"),
    ({"content": file(Image.new("F", (9, 9)), "TIFF")}, 422, "pixels"),
    *(
        ({"content": file(Image.new("1", (side, side)))}, 413, "0.1 million")
        for side in (400, 20_000)
    ),
    ({"Content_Length": str(10**9)}, 413, "1000.0 MB"),  # judged before it is read
    # posted completely, and the answer is still read
    ({"content": bytes(2_000_000)}, 413, "2.0 MB"),
    ({"content": b"", "Content_Length": None}, 411, "Content-Length"),
    ({"content": b"", "Content_Length": "-1"}, 400, ""),
    # pages elsewhere cannot post
    *(({"Origin": origin}, 403, "") for origin in (None, "http://evil.example")),
    ({"Origin": "http://evil.example", "Host": "evil.example"}, 400, "host"),
]


def test_refused(server):
    for request, status, key in REFUSED:
        answer = post(server, **({"content": file()} | request))
        assert (answer.status, key in answer.content.decode()) == (status, True), str(request)[:80]


def test_only_the_page_and_what_it_loads_is_there(server):
    page = ask(server, "/")
    assert page.status == 200
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
    assert b"<script>" not in page.content
    assert {ask(server, name).status for name in ("/page.css", "/page.js")} == {200}
    absent = ("/../conf/serve.yaml", "//[", "/page.html")
    assert {ask(server, name).status for name in absent} == {404}
    assert {ask(server, "/captions", method).status for method in ("GET", "OPTIONS")} == {405}


def test_200_uploads_at_once_get_a_caption_or_a_word_each(monkeypatch):
    """One is captioned at a time, a few wait, and further ones are sent away."""
    content = file()
    begun, going_on = threading.Barrier(2), threading.Event()
    caption_image = ServedCaptioner.caption_image

    def slow(captioner, image):
        if not going_on.is_set():
            begun.wait(60)
            going_on.wait(60)
        return caption_image(captioner, image)

    monkeypatch.setattr(ServedCaptioner, "caption_image", slow)
    with served(two_captioners(waiting=2)) as server, ThreadPoolExecutor(200) as pool:
        first = pool.submit(post, server, content)
        begun.wait(60)
        others = [pool.submit(post, server, content) for _ in range(200)]
        while sum(other.done() for other in others) < 198:
            threading.Event().wait(0.01)
        going_on.set()
        assert len(lines(first.result())) == 3
        answers = [other.result() for other in others]
        assert Counter(answer.status for answer in answers) == {200: 2, 503: 198}
        for answer in answers:
            assert answer.status == 503 or len(lines(answer)) == 3
            assert answer.content
        assert post(server, b"broken").status == 415
        assert post(server, content).status == 200  # every place is free again


def test_the_page_begins_with_the_first_checkpoints_search_and_labels_every_setting():
    found = decoding_choices(
        {"_target_": "captioning.decoding.sample", "n": 5, "max_length": 20}, longest=13
    )
    first, *others = found
    assert (first.name, first.node["n"], first.node["max_length"]) == ("sample", 5, 13)
    assert [choice.name for choice in others] == ["beam", "diverse_beam", "greedy"]
    usual = requested_decoding(others, {"decoding": "beam"})
    assert (usual["width"], usual["n_best"], usual["filters"]["min_length"]) == (3, 1, 0)
    schema = {control.name: control.schema for control in first.controls}
    assert (schema["n"]["minimum"], schema["n"]["maximum"]) == (1, 32)
    for choice in found:
        labels = [control.label for control in (*choice.controls, *choice.filters)]
        assert "_" not in "".join(labels)
        assert len(set(filter(None, labels))) == len(labels)
    described = {control.key: (control.label, control.hint) for control in first.filters}
    assert described["decoding.filters.prefix"] == ("first words", "every caption begins with them")
