from pathlib import Path

import pytest

from captioning.data.readers.files import read_json, read_lines
from captioning.errors import CaptioningError


def written(folder: Path, content: bytes) -> Path:
    path = folder / "file"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"one\ntwo", [(1, "one"), (2, "two")]),
        (b"one\r\n\r\n \t\ntwo\r\n", [(1, "one"), (4, "two")]),
        (b"\xef\xbb\xbfone\n", [(1, "one")]),
        ("a\x85b\u2028c\x0b d\re\n".encode(), [(1, "a\x85b\u2028c\x0b d\re")]),
        (b"", []),
    ],
    ids=["plain", "windows", "byte-order mark", "characters that end no line", "empty"],
)
def test_lines(tmp_path: Path, content: bytes, lines: list[tuple[int, str]]) -> None:
    path = written(tmp_path, content)
    assert read_lines(path) == [(f"{path}, line {number}", line) for number, line in lines]


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b"one\ntwo\ncaf\xe9\n", "line 3: the byte 0xe9 is not UTF-8"),  # Latin-1
        ("image,caption".encode("utf-16"), "line 1: the byte 0xff"),  # a spreadsheet's "Unicode text"
    ],
)
def test_bytes_that_are_not_utf8(tmp_path: Path, content: bytes, place: str) -> None:
    with pytest.raises(CaptioningError, match=f"file, {place}"):
        read_lines(written(tmp_path, content))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "file is not JSON: Expecting value"),
        (b'{"images": [', "file is not JSON"),
        (b'{"caption": "caf\xe9"}', "file is not JSON: .*byte 0xe9 in position 16"),
        (b"[" * 100_000, "file is nested too deeply"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "file is nested too deeply"),
    ],
    ids=["empty", "cut", "latin-1", "deep lists", "deep objects"],
)
def test_broken_json(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(CaptioningError, match=message):
        read_json(written(tmp_path, content))


def test_json_with_a_byte_order_mark(tmp_path: Path) -> None:
    assert read_json(written(tmp_path, b'\xef\xbb\xbf{"images": []}\r\n')) == {"images": []}


@pytest.mark.parametrize("read", [read_json, read_lines])
def test_files_that_cannot_be_read(tmp_path: Path, read: object) -> None:
    assert callable(read)
    for path, reason in ((tmp_path / "nothing", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(CaptioningError, match=rf"cannot read {path}: {reason}.*set data\.root"):
            read(path)
