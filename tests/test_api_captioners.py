"""Captioners behind an address: a real server that answers, lies, stalls, limits and breaks off."""

import io
import json
import re
import signal
from functools import partial

import pytest
from chats import Reply, chatting, said
from json_files import read_json
from pictures import noise, plain
from PIL import Image
from processes import CTRL_C, interrupt
from refusals import refuses
from support import captions_of

import captioning
from captioning import evaluate, predict
from captioning.errors import SECRETS
from captioning.files import LARGEST_ANSWER, MAX_CHARACTERS
from captioning.report.published import untrained_rows
from captioning.runs.checkpoints import api

KEY = "key-of-the-test"
QUICK = {"backoff": 0.001, "tries": 2, "timeout": 20, "size": 32}
SETTINGS = [f"decoding.{name}={value}" for name, value in QUICK.items()]


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CAPTIONING_API_KEY", KEY)
    yield
    SECRETS.discard(KEY)


@pytest.fixture
def images(tmp_path):
    """Six different ones with captions; the first is red."""
    rows = ["image,caption"]
    for i in range(6):
        colour = ((250, 0, 0), (0, 40 * i, 250))[i > 0]
        plain(tmp_path / "images" / f"{i}.png", (40, 30), colour)
        rows.append(f"{i}.png,{'a dog runs' if i % 2 else 'two men talk'}")
    (tmp_path / "references.csv").write_text("\n".join(rows))
    return sorted((tmp_path / "images").iterdir())


def is_red(file):
    red, _, blue = Image.open(io.BytesIO(file)).getpixel((0, 0))
    return red > blue


def caption():
    """In a process of its own."""
    predict.main()


def contents(folder):
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_what_is_asked_once(tmp_path):
    noise(tmp_path / "wide.png", (400, 100))
    files = []

    def reply(file, number):
        files.append(Image.open(io.BytesIO(file)))
        return Reply(said(" a dog\n runs ", None, "a cat", "a cow"))

    asked = {"prompt": "What is it?", "temperature": 0.5, "seed": 3, "n_best": 2, "max_length": 9}
    given = {**QUICK, **asked, "size": 200, "quality": 50, "omit": ["top_k"]}
    with chatting(reply) as server:
        load = partial(captioning.load, server.checkpoint())
        for _ in range(2):  # the second has what the first has kept
            (prediction,) = load(decoding=given).caption(tmp_path / "wide.png")
            assert [prediction.caption, prediction.alternatives[0].caption] == [
                "a dog runs",
                "a cat",
            ]
        assert sum(server.asked.values()) == 1
        load(decoding={**given, "prompt": "Who?", "omit": ["seed"]}).caption(tmp_path / "wide.png")
        (headers, request), (_, other) = server.requests
    assert files[0].size == (200, 50)
    assert files[0].format == "JPEG"
    assert headers["Authorization"] == f"Bearer {KEY}"
    text = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {}}]
    fields = {"model": "eyes:7b", "temperature": 0.5, "seed": 3, "n": 2, "max_tokens": 9}
    messages = [{"role": "user", "content": text}]
    assert request == {"path": "/v1/chat/completions", "messages": messages, **fields}
    assert "seed" not in other


HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
ONE_CHUNK = b"%x\r\n%s\r\n0\r\n" % (len(said("a dog")), said("a dog"))


def endless(raw, repeated, pause=0.01):
    return Reply(b"", raw=raw, endless=repeated, pause=pause)


HTML = b"<html><body>Welcome</body></html>"
OK = Reply(said("a dog runs"))
AFTER = {"Retry-After": "86400"}
BAD = {
    "html": (Reply(HTML), 1, "HTTP 200, .*Welcome"),
    "other JSON": (Reply(b'{"error": {"message": "no"}}'), 1, "HTTP 200, .*no"),
    "no choice": (Reply(said()), 1, "an empty answer"),
    "null": (Reply(said(None)), 1, "an empty answer"),
    "a number": (Reply(said(7)), 1, "string"),
    "half a character": (Reply(b'{"choices": [{"message": {"content": "\\ud800"}}]}'), 1, "JSON"),
    "deep": (Reply(b'{"choices": ' + b"[" * 10**5), 1, "JSON"),
    "refused": (Reply(said(None, refusal="I cannot")), 1, "refused"),
    "long": (Reply(said("a" * (MAX_CHARACTERS + 1))), 1, "at most"),
    "giant": (Reply(said("a" * LARGEST_ANSWER)), 2, "too large"),
    "breaks": (Reply(said("a dog"), missing=9), 2, "IncompleteRead"),
    "stalls": (Reply(b"", held=True), 2, "timed out"),
    "promises": (Reply(b"", raw=HEAD + b"Content-Length: 1000000000000\r\n\r\n"), 2, "."),
    "a header by bytes": (endless(HEAD + b"X: ", b"y"), 2, "too long|timed out"),
    "goes on": (endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), 2, "too long|timed out"),
    "goes on fast": (
        endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0),
        2,
        "too large|timed out",  # whichever a machine reaches first
    ),
    "a size by bytes": (endless(CHUNKED, b"1"), 2, "too long|timed out"),
    "a size at once": (endless(CHUNKED, b"1" * 10_000, 0), 2, "."),
    "trailers": (endless(CHUNKED + ONE_CHUNK, b"X: y\r\n"), 2, "too long|timed out"),
    "choices": (Reply(b'{"choices":[%s]}' % b",".join(69_000 * [b'{"message":{}}'])), 1, "1000"),
    "not for it": (Reply(b"no picture", 400), 1, "HTTP 400, no picture"),
    "its key": (Reply(f"wrong key {KEY}".encode(), 401), 1, r"wrong key \*\*\*"),
    "broken": (Reply(b"sorry", 500), 2, "HTTP 500"),
    "limited": (Reply(b"later", 429, AFTER), 2, "HTTP 429"),
    "limited for ever": (Reply(b"later", 429, {"Retry-After": "soon"}), 2, "Retry-After"),
}


@pytest.mark.parametrize("name", BAD)
def test_one_bad_answer_among_good_ones(name, images, monkeypatch, capsys, printed):
    bad, requests, reason = BAD[name]
    monkeypatch.setattr(api, "MAX_WAIT", 0.001)
    with chatting(lambda file, _: bad if is_red(file) else OK) as server:
        slow = bad.held or bad.raw or bad.endless
        settings = [*SETTINGS, "decoding.timeout=0.5"] if slow else SETTINGS
        with pytest.raises(SystemExit):
            printed(predict.main, "images", f"checkpoint={server.checkpoint()}", *settings)
        asked = {is_red(file): number for file, number in server.asked.items()}
        assert asked == {True: requests, False: 1}
    out, err = capsys.readouterr()
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["image"] for line in lines] == [f"images/{i}.png" for i in range(1, 6)]
    assert {line["caption"] for line in lines} == {"a dog runs"}
    (error,) = [line for line in err.splitlines() if line.startswith("error: ")]
    assert error.startswith("error: images/0.png: ")
    assert re.search(reason, error)
    assert KEY not in out + err
    assert f"sent to {server.address.removeprefix('http://')}, to its model eyes:7b: 6" in err
    assert KEY.encode() not in contents(images[0].parents[1])


@pytest.mark.parametrize("status, headers", [(429, {"Retry-After": "0"}), (503, {}), (200, {})])
def test_asked_again(status, headers, images):
    first = Reply(said("a cat"), status, headers, missing=0 if headers or status > 200 else 5)
    with chatting(lambda _, number: OK if number else first) as server:
        predictions = captioning.load(server.checkpoint(), decoding=QUICK).caption(images)
        assert {*server.asked.values()} == {2}
    assert {prediction.caption for prediction in predictions} == {"a dog runs"}


def test_equal_images_are_asked_about_once(tmp_path):
    for i in range(8):
        plain(tmp_path / f"{i}.png", (9, 9))
    with chatting(lambda *_: OK) as server:
        captioner = captioning.load(server.checkpoint(), decoding=QUICK)
        predictions = captioner.caption(sorted(tmp_path.glob("*.png")), batch_size=8)
        assert {*server.asked.values()} == {1}
    assert [prediction.caption for prediction in predictions] == 8 * ["a dog runs"]


@pytest.mark.parametrize("damage", ["empty", "cut", "garbage", "[]", "link", "loop"])
def test_a_damaged_answer_is_asked_again(damage, images, tmp_path):
    with chatting(lambda *_: OK) as server:
        for number in (1, 2, 2):
            (prediction,) = captioning.load(server.checkpoint(), decoding=QUICK).caption(images[0])
            assert prediction.caption == "a dog runs"
            assert sum(server.asked.values()) == number
            (file,) = (tmp_path / "cache").rglob("*.json")
            content = file.read_bytes()
            assert not file.is_symlink()
            if number == 1 and damage in ("link", "loop"):
                file.unlink()
                file.symlink_to("/dev/zero" if damage == "link" else file.name)
            elif number == 1:
                file.write_bytes({"empty": b"", "cut": content[:-9]}.get(damage, damage.encode()))


def test_the_key_goes_to_no_other_host(images, monkeypatch):
    with chatting(lambda *_: OK) as other:
        moved = Reply(b"", 307, {"Location": f"{other.address}/v1/chat/completions"})
        monkeypatch.setenv("http_proxy", other.address)
        with chatting(lambda *_: moved) as server:
            (prediction,) = captioning.load(server.checkpoint(), decoding=QUICK).caption(images[0])
            assert server.requests
    assert prediction.caption == ""
    assert "307" in prediction.decoded.problem
    assert not other.requests


@pytest.mark.parametrize(
    "address",
    [
        "http://example.org/v1#m",
        "http://127.0.0.1.example.org/v1#m",
        "ftp://localhost#m",
        "http://localhost/v1",
        "http://user:password@localhost/v1#m",
        "https:///v1#m",
    ],
)
def test_addresses_that_are_refused(address):
    with refuses("without encryption" if "example" in address else "is not allowed"):
        captioning.load(f"api:{address}")


def test_settings_that_are_refused(images):
    for decoding, message in (
        ({"width": 3}, "decoding.width"),
        ({"size": 10**6}, "decoding.size"),
        ({"budget": 0}, "decoding.budget"),
    ):
        with refuses(message):
            captioning.load("api:http://localhost/v1#m", decoding=decoding)


def test_a_server_that_answers_nothing_is_left(tmp_path):
    for i in range(30):
        plain(tmp_path / f"{i}.png", (9, 9), (8 * i, 9, 9))
    with chatting(lambda *_: Reply(b"wrong key", 401)) as server:
        captioner = captioning.load(server.checkpoint(), decoding={**QUICK, "requests": 2})
        with refuses("10 images in a row: HTTP 401, wrong key"):
            captioner.caption(sorted(tmp_path.iterdir()), batch_size=30)
        assert len(server.requests) <= 12


def test_evaluated_in_instalments(images, elsewhere, printed, refused):
    given = ["images=images", "references=references.csv", "metrics=[BLEU]", "name=api"]

    def reply(file, number):
        return Reply(said("")) if is_red(file) else OK

    with chatting(reply) as server:
        command = [f"checkpoint={server.checkpoint()}", *given, *SETTINGS]
        sentence = refused(evaluate.main, *command, "decoding.budget=4", out=None)
        assert "decoding.budget" in sentence
        assert len(server.requests) == 4
        printed(evaluate.main, *command)
        assert {*server.asked.values()} == {1}
    folder = elsewhere / "runs" / "api-2"
    record = read_json(folder / "scores.json")
    known = record["provenance"]
    assert known["without_caption"] == {"an empty answer": 1}
    assert known["checkpoint"]["file"] == server.checkpoint()
    assert known["decoding"]["prompt"]
    assert [line["caption"] for line in captions_of(folder)] == ["", *5 * ["a dog runs"]]
    ((digest, row),) = untrained_rows(elsewhere / "runs")
    assert (digest, row.source) == (known["data_digest"], "not trained here")
    assert row.system == server.checkpoint().removeprefix("api:")
    assert KEY.encode() not in contents(elsewhere)
    nothing = Reply(b"sorry", 500)
    with chatting(lambda *_: nothing) as server:
        command[0] = f"checkpoint={server.checkpoint()}"
        assert "nothing is scored" in refused(evaluate.main, *command, out=None)


@pytest.mark.parametrize("how", [signal.SIGKILL, CTRL_C])
def test_resumed(how, images, tmp_path, printed):
    """The answers before the end are kept, and what was not answered is asked about."""
    answered, held = [], tmp_path / "held"

    def reply(file, number):
        if len(answered) >= 3 and not server.go_on.is_set():
            held.touch()
            return Reply(b"", held=True)
        answered.append(file)
        return OK

    with chatting(reply) as server:
        settings = ["images", f"checkpoint={server.checkpoint()}", *SETTINGS, "decoding.requests=1"]
        environment = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "CAPTIONING_API_KEY": KEY}
        # which a signal does not wait for
        given = {"arguments": [*settings, "decoding.timeout=3600"], "environment": environment}
        ended = interrupt(caption, tmp_path, held.exists, how, **given)
        assert ended.status in (-signal.SIGKILL, 128 + signal.SIGINT)
        server.go_on.set()
        lines = printed(predict.main, *settings).splitlines()
    assert len(lines) == len(answered) == len({*answered}) == 6
    assert KEY not in ended.said
