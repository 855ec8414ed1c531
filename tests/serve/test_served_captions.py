"""Photographs posted to a server with two captioners: what is answered, and what is refused."""

import base64
import io
import json
import math
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from serving import CORNERS, GRID, HEAD, SAID, Answer, ask, post, reciting, served

import captioning.serve.server as serve_server
from captioning.download.named import PRETRAINED, checkpoint_path
from captioning.runs.checkpoint import load, write_safetensors
from captioning.serve.captions import Captions, CaptionsHandler, load_captioners
from captioning.serve.controls import choices, decoding_of
from captioning.serve.server import Server

MEGABYTES, MEGAPIXELS = 0.5, 0.1


def page() -> Captions:
    return Captions(
        [reciting("one"), reciting("two", attends=False, max_tokens=12)],
        MEGABYTES,
        MEGAPIXELS,
        waiting=1,
    )


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with served(partial(CaptionsHandler, captions=page())) as server:
        yield server


def file(image: Image.Image | None = None, kind: str = "PNG", **settings: Any) -> bytes:
    content = io.BytesIO()
    (image or Image.new("RGB", (60, 40), "teal")).save(content, kind, **settings)
    return content.getvalue()


def lines(answer: Answer) -> list[Any]:
    assert answer.status == 200, answer.content
    return [json.loads(line) for line in answer.content.splitlines()]


def test_captioners_are_named_by_run_and_score(tmp_path: Path) -> None:
    bundled = checkpoint_path(PRETRAINED)
    saved = load(bundled)
    other = tmp_path / "mine.safetensors"
    write_safetensors(other, saved.config, saved.words, saved.networks, score="test/CIDEr 58.0")
    first, second = load_captioners([bundled, other], "cpu", [])
    assert [first.title, second.title] == ["the bundled captioner", "mine"]
    assert (saved.score or "parameters") in repr(first.networks[0])
    assert "test/CIDEr 58.0" in repr(second.networks[0])


def test_every_captioner_answers_with_words_scores_and_maps(server: Server) -> None:
    shown, one, two = lines(post(server, file(), {"decoding": "beam", "width": 3, "n_best": 2}))
    assert shown["size"] == [60, 40]
    assert (one["column"], two["column"]) == (0, 1)
    best, other = one["captions"]
    assert (best["caption"], best["words"]) == (" ".join(SAID), list(SAID))
    # every token has the logit 3 and six others zero; the length penalty of 1, as of the run, makes
    # it the average
    assert best["score"] == pytest.approx(3 - math.log(math.exp(3) + 6), abs=1e-4)
    assert other["score"] < best["score"]
    assert (best["confidence"], other["confidence"]) == (
        None,
        None,
    )  # it was asked for another width than the run's
    assert best["maps"]["names"] == ["mean", "inter 1", "inter 2"]
    assert best["maps"]["grid"] == [GRID, GRID]
    cells = np.frombuffer(base64.b64decode(best["maps"]["maps"]), np.uint8).reshape(
        3, len(SAID), GRID * GRID
    )
    peaks = [divmod(int(cell), GRID) for cell in cells.argmax(-1).flatten()]
    assert peaks == [*CORNERS, *CORNERS, HEAD, HEAD, HEAD]
    assert [caption["maps"] for caption in two["captions"]] == [None, None]


def test_vectors_without_a_place_on_the_photograph_have_no_maps() -> None:
    captioner = reciting("set").searching(decoding_of(page().choices, {"decoding": "greedy"}))
    picture = Image.new("RGB", (20, 20))
    assert captioner.told(picture)["captions"][0]["maps"] is not None
    captioner.networks[0].backbone.located = False  # as of two backbones side by side along=set
    assert captioner.told(picture)["captions"][0]["maps"] is None


def test_confidence_samples_filters_and_an_upright_photograph(server: Server) -> None:
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


def film(kind: str) -> bytes:
    frames = [Image.new("RGB", (9, 9), colour) for colour in ("red", "blue")]
    return file(frames[0], kind, save_all=True, append_images=frames[1:], duration=100)


BEAM, GREEDY = {"decoding": "beam"}, {"decoding": "greedy"}
REFUSED = [
    *(
        ({"settings": settings}, 400, key)
        for settings, key in (
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
            (["beam"], "settings"),
        )
    ),
    *(
        ({"query": query}, 400, "settings")
        for query in ("", "settings=" + 30_000 * "[", "settings={}&settings={}")
    ),
    ({"content": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"}, 415, "JPEG"),
    ({"content": file(kind="JPEG")[:400]}, 422, "photograph"),
    ({"content": file(Image.new("F", (9, 9)), "TIFF")}, 422, "pixels"),
    *(
        ({"content": file(Image.new("1", (side, side)))}, 413, "0.1 million")
        for side in (400, 20_000)
    ),
    *(({"content": film(kind)}, 415, "animation") for kind in ("GIF", "PNG", "WEBP")),
    ({"Content_Length": str(10**9)}, 413, "1000.0 MB"),  # judged before it is read
    (
        {"content": bytes(2_000_000)},
        413,
        "2.0 MB",
    ),  # posted completely, and the answer is still read
    *(
        ({"content": b"", "Content_Length": length}, 411, "Content-Length")
        for length in (None, "-1")
    ),
    ({"content": b"", "Transfer_Encoding": "chunked"}, 411, "Content-Length"),
    # pages elsewhere cannot post
    *(({"Origin": origin}, 403, "") for origin in (None, "http://evil.example")),
    ({"Origin": "http://evil.example", "Host": "evil.example"}, 403, ""),
    ({"Content_Type": "multipart/form-data; boundary=x"}, 415, ""),
]


def test_refused(server: Server) -> None:
    for request, status, key in REFUSED:
        answer = post(server, **({"content": file()} | request))
        assert (answer.status, key in json.loads(answer.content)["error"]) == (status, True), str(
            request
        )[:80]


def test_only_the_page_and_what_it_loads_is_there(server: Server) -> None:
    found = ask(server, "/")
    assert found.status == 200
    assert (
        "default-src 'none'; script-src 'self'; style-src 'self'"
        in found.headers["Content-Security-Policy"]
    )
    assert b"<script>" not in found.content
    assert {ask(server, name).status for name in ("/page.css", "/page.js")} == {200}
    assert {
        ask(server, name).status
        for name in ("/captions", "/../conf/serve.yaml", "//[", "/page.html")
    } == {404}
    assert ask(server, "/captions", "OPTIONS").status == 405


def test_one_at_a_time_a_few_wait_and_further_ones_are_sent_away() -> None:
    captions = page()
    with (
        served(partial(CaptionsHandler, captions=captions)) as server,
        ThreadPoolExecutor(2) as pool,
    ):
        with captions.turn:  # as if one were being captioned that takes long
            waiting = [pool.submit(post, server, file()) for _ in range(2)]
            while captions.places._value:
                time.sleep(0.01)
            assert post(server, file()).status == 503
            assert not any(each.done() for each in waiting)
        assert [len(lines(each.result())) for each in waiting] == [3, 3]
        assert post(server, b"broken").status == 415
        assert post(server, file()).status == 200  # every place is free again


SLOW_GET = "GET / HTTP/1.0\r\nHost: 127.0.0.1\r\nX: "
SLOW_POST = (
    "POST /captions?settings=%7B%22decoding%22:%22greedy%22%7D HTTP/1.0\r\nHost: "
    "127.0.0.1:{port}\r\n"
    "Origin: http://127.0.0.1:{port}\r\nContent-Type: application/octet-stream\r\nContent-Length: "
    "9999\r\n\r\n"
)


@pytest.mark.parametrize("begin", [SLOW_GET, SLOW_POST], ids=["head", "body"])
def test_slow_visitors_shut_nobody_out(begin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve_server, "CONNECTIONS", 3)
    monkeypatch.setattr(serve_server, "HEAD_SECONDS", 0.5)

    def drip(port: int) -> None:
        """Until the server has had enough."""
        with (
            socket.create_connection(("127.0.0.1", port), timeout=0.05) as connection,
            suppress(ConnectionError),
        ):
            connection.sendall(begin.format(port=port).encode())
            while True:
                connection.sendall(b"a")
                with suppress(TimeoutError):
                    if not connection.recv(1000):
                        return

    with served(partial(CaptionsHandler, captions=page())) as server, ThreadPoolExecutor(3) as pool:
        for _ in pool.map(drip, [server.port] * 3):
            pass
        assert ask(server, "/").status == 200
        assert post(server, file()).status == 200


def test_the_page_begins_with_the_first_checkpoints_search_and_labels_every_setting() -> None:
    found = choices(
        {"_target_": "captioning.decoding.sample", "n": 5, "max_length": 20}, longest=13
    )
    first, *others = found
    assert (first.name, first.node["n"], first.node["temperature"], first.node["max_length"]) == (
        "sample",
        5,
        1.0,
        13,
    )
    assert [choice.name for choice in others] == ["beam", "diverse_beam", "greedy"]
    usual = decoding_of(others, {"decoding": "beam"})
    assert (usual["width"], usual["n_best"], usual["filters"]["min_length"]) == (3, 1, 0)
    schema = {control.name: control.schema for control in first.controls}
    assert (
        schema["n"]["minimum"],
        schema["n"]["maximum"],
        schema["top_p"]["exclusiveMinimum"],
    ) == (1, 32, 0)
    for choice in found:
        labels = [control.label for control in (*choice.controls, *choice.filters)]
        assert "_" not in choice.label + "".join(labels)
        assert len(set(filter(None, labels))) == len(labels)
