"""Captions of a server of chats: a real one that answers, lies, stalls, limits and breaks off."""

import io
import re
import signal

import pytest
from chats import Reply, chatting, said
from json_files import read_json, read_lines
from pictures import noise, plain
from PIL import Image
from processes import CTRL_C, interrupt
from support import QUIET

from captioning import evaluate
from captioning.config.registry import CONF
from captioning.errors import SECRETS
from captioning.files import MAX_CHARACTERS
from captioning.report.compare.__main__ import main as compare
from experiments.chat_server import chat
from experiments.chat_server.caption import main
from experiments.chat_server.chat import LARGEST_ANSWER

pytestmark = QUIET
KEY = "key-of-the-test"
QUICK = ["backoff=0.001", "tries=2", "timeout=20", "size=32"]
SEARCHED = f"hydra.searchpath=['file://{CONF}']"


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
    (tmp_path / "captions.csv").write_text("\n".join(rows))
    return sorted((tmp_path / "images").iterdir())


@pytest.fixture
def ask(printed, elsewhere):
    """Runs the command on the folder `images`; gives the lines of its file."""

    def run(server, *settings, status=0):
        given = [server.setting, "images=images", *QUICK, *settings, SEARCHED]
        try:
            printed(main, *given)
            ended = 0
        except SystemExit as error:
            ended = error.code
        assert ended == status
        return read_lines("theirs.jsonl")

    return run


def is_red(file):
    red, _, blue = Image.open(io.BytesIO(file)).getpixel((0, 0))
    return red > blue


def contents(folder):
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def captions(lines):
    return [line["caption"] for line in lines]


def test_what_is_asked_once(ask, tmp_path):
    noise(tmp_path / "images" / "wide.png", (400, 100))
    files = []

    def reply(file, number):
        files.append(Image.open(io.BytesIO(file)))
        return Reply(said(" a dog\n runs ", None, "a cat", "a cow"))

    asked = ["prompt='What is it?'", "temperature=0.5", "seed=3", "n_best=2", "max_length=9"]
    given = [*asked, "size=200", "quality=50", "omit=[top_k]"]
    with chatting(reply) as server:
        for _ in range(2):  # the second has what the first has kept
            (line,) = ask(server, *given)
            assert line["image_id"] == line["photograph"] == "wide.png"
            assert [line["caption"], *line["alternatives"]] == ["a dog runs", "a cat"]
        assert sum(server.asked.values()) == 1
        ask(server, *given, "prompt=Who?", "omit=[seed]")
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
def test_one_bad_answer_among_good_ones(name, ask, images, tmp_path, monkeypatch, capsys):
    bad, requests, reason = BAD[name]
    monkeypatch.setattr(chat, "MAX_WAIT", 0.001)
    with chatting(lambda file, _: bad if is_red(file) else OK) as server:
        slow = bad.held or bad.raw or bad.endless
        lines = ask(server, *(["timeout=0.5"] if slow else []), status=1)
        asked = {is_red(file): number for file, number in server.asked.items()}
        assert asked == {True: requests, False: 1}
    out, err = capsys.readouterr()
    assert [line["image_id"] for line in lines] == [f"{i}.png" for i in range(6)]
    assert captions(lines) == ["", *5 * ["a dog runs"]]
    (warning,) = [line for line in (out + err).splitlines() if line.startswith("0.png: ")]
    assert re.search(reason, warning)
    about = read_json(tmp_path / "theirs.about.json")
    assert [*about["without_caption"].values()] == [1]
    place = server.address.removeprefix("http://")
    assert f"images are sent to {place}, to its model eyes:7b: 6" in out + err
    assert KEY not in out + err
    assert KEY.encode() not in contents(tmp_path)


@pytest.mark.parametrize("status, headers", [(429, {"Retry-After": "0"}), (503, {}), (200, {})])
def test_asked_again(status, headers, ask, images):
    first = Reply(said("a cat"), status, headers, missing=0 if headers or status > 200 else 5)
    with chatting(lambda _, number: OK if number else first) as server:
        assert {*captions(ask(server))} == {"a dog runs"}
        assert {*server.asked.values()} == {2}


def test_equal_images_are_asked_about_once(ask, tmp_path):
    for i in range(8):
        plain(tmp_path / "images" / f"{i}.png", (9, 9))
    with chatting(lambda *_: OK) as server:
        assert captions(ask(server)) == 8 * ["a dog runs"]
        assert {*server.asked.values()} == {1}


def test_an_image_that_cannot_be_read_has_no_line(ask, images, capsys):
    images[2].write_bytes(b"no image")
    with chatting(lambda *_: OK) as server:
        lines = ask(server, status=1)
    assert [line["image_id"] for line in lines] == [f"{i}.png" for i in (0, 1, 3, 4, 5)]
    assert "2.png: " in capsys.readouterr().out


@pytest.mark.parametrize("damage", ["empty", "cut", "garbage", "[]", "link", "loop"])
def test_a_damaged_answer_is_asked_again(damage, ask, tmp_path):
    plain(tmp_path / "images" / "one.png", (9, 9))
    with chatting(lambda *_: OK) as server:
        for number in (1, 2, 2):
            assert captions(ask(server)) == ["a dog runs"]
            assert sum(server.asked.values()) == number
            (file,) = (tmp_path / "cache").rglob("*.json")
            content = file.read_bytes()
            assert not file.is_symlink()
            if number == 1 and damage in ("link", "loop"):
                file.unlink()
                file.symlink_to("/dev/zero" if damage == "link" else file.name)
            elif number == 1:
                file.write_bytes({"empty": b"", "cut": content[:-9]}.get(damage, damage.encode()))


def test_the_key_goes_to_no_other_host(images, elsewhere, refused, monkeypatch):
    with chatting(lambda *_: OK) as other:
        moved = Reply(b"", 307, {"Location": f"{other.address}/v1/chat/completions"})
        monkeypatch.setenv("http_proxy", other.address)
        with chatting(lambda *_: moved) as server:
            given = [server.setting, "images=images", *QUICK, SEARCHED]
            assert "307" in refused(main, *given, out=None)
            assert server.requests
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
def test_addresses_that_are_refused(address, elsewhere, images, refused):
    sentence = refused(main, f"address={address}", "images=images", SEARCHED)
    assert ("without encryption" if "example" in address else "address=") in sentence


@pytest.mark.parametrize(
    "settings, key",
    [
        (["size=1000000"], "size="),
        (["budget=0"], "budget="),
        (["output=captions.csv"], "output="),
        (["images=null"], "images="),
        (["images=absent"], "images="),
        (["data=csv", "data.root=."], "images="),
    ],
)
def test_settings_that_are_refused(settings, key, images, elsewhere, refused):
    given = ["address=http://localhost/v1#m", "images=images", *settings, SEARCHED]
    assert key in refused(main, *given)


def test_a_server_that_answers_nothing_is_left(tmp_path, elsewhere, refused):
    for i in range(30):
        plain(tmp_path / "images" / f"{i}.png", (9, 9), (8 * i, 9, 9))
    with chatting(lambda *_: Reply(b"wrong key", 401)) as server:
        given = [server.setting, "images=images", *QUICK, "requests=2", SEARCHED]
        sentence = refused(main, *given, out=None)
        assert sentence.startswith("10 images in a row: HTTP 401, wrong key")
        assert len(server.requests) <= 12
    assert not (tmp_path / "theirs.jsonl").exists()


def test_captioned_in_instalments_and_scored(images, ask, elsewhere, printed, refused):
    def reply(file, number):
        return Reply(said("")) if is_red(file) else OK

    with chatting(reply) as server:
        given = [server.setting, "images=images", *QUICK, SEARCHED]
        assert "budget" in refused(main, *given, "budget=4", out=None)
        assert len(server.requests) == 4
        assert captions(ask(server, status=1)) == ["", *5 * ["a dog runs"]]
        assert {*server.asked.values()} == {1}
    about = read_json("theirs.about.json")
    assert about["without_caption"] == {"an empty answer": 1}
    assert about["address"] == f"{server.address}/v1#eyes:7b"
    assert about["prompt"]
    printed(evaluate.main, "captions=theirs.jsonl", "references=captions.csv", "metrics=[BLEU]")
    record = read_json("runs/evaluate/scores.json")
    assert record["provenance"]["images"] == 6
    shown = printed(
        compare, "runs/evaluate", "theirs.jsonl", "images=images", "metrics=[]", "score=length"
    )
    assert "\n6 images; the caption is the same for 6 of them" in shown
    nothing = Reply(b"sorry", 500)
    with chatting(lambda *_: nothing) as server:
        given[0] = server.setting
        assert "nothing is written" in refused(main, *given, out=None)
    assert KEY.encode() not in contents(elsewhere)


def test_the_split_of_a_data_set_has_its_references(images, tmp_path, printed, elsewhere):
    for name, kept in {"train": "0", "val": "1", "test": "2345"}.items():
        (tmp_path / f"{name}.txt").write_text("\n".join(f"{i}.png" for i in kept))
    (tmp_path / "captions.csv").rename("captions.txt")
    with chatting(lambda *_: OK) as server:
        printed(
            main,
            server.setting,
            *QUICK,
            "data=csv",
            "data.root=.",
            "output=split.jsonl",
            SEARCHED,
        )
    lines = read_lines("split.jsonl")
    assert [line["photograph"] for line in lines] == [f"{i}.png" for i in range(2, 6)]
    assert [line["references"] for line in lines] == 2 * [["two men talk"], ["a dog runs"]]
    printed(evaluate.main, "captions=split.jsonl", "metrics=[BLEU]")
    scores = read_json("runs/evaluate/scores.json")["scores"]
    assert scores["BLEU-1"] == pytest.approx(50)  # 6 of 12 words are those of the references


@pytest.mark.parametrize("how", [signal.SIGKILL, CTRL_C])
def test_resumed(how, images, tmp_path, ask):
    """The answers before the end are kept, and what was not answered is asked about."""
    answered, held = [], tmp_path / "held"

    def reply(file, number):
        if len(answered) >= 3 and not server.go_on.is_set():
            held.touch()
            return Reply(b"", held=True)
        answered.append(file)
        return OK

    with chatting(reply) as server:
        settings = [server.setting, "images=images", *QUICK, "requests=1", SEARCHED]
        environment = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "CAPTIONING_API_KEY": KEY}
        # which a signal does not wait for
        given = {"arguments": [*settings, "timeout=3600"], "environment": environment}
        ended = interrupt(command, tmp_path, held.exists, how, **given)
        assert ended.status in (-signal.SIGKILL, 128 + signal.SIGINT)
        server.go_on.set()
        assert captions(ask(server, "requests=1")) == 6 * ["a dog runs"]
    assert len(answered) == len({*answered}) == 6
    assert KEY not in ended.said


def command():
    """In a process of its own."""
    main()
