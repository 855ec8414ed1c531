"""Files that are whole or not there, whatever happens while they are written."""

import os
import resource
from pathlib import Path

import pytest

from captioning.errors import CaptioningError
from captioning.files import atomic_write, read_state, to_json, write_json, write_text


def texts(folder: Path) -> dict[str, str]:
    return {each.name: each.read_text() for each in folder.iterdir()}


def test_what_was_there_stays_until_the_new_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_text(path, "old")
    for failure in (KeyboardInterrupt, ValueError):
        with pytest.raises(failure), atomic_write(path) as file:  # noqa: PT012 - it fails while it is written
            file.write(b"new")
            raise failure
        assert texts(tmp_path) == {"file": "old"}
    with atomic_write(path, keep=tmp_path / "kept") as file:
        file.write(b"new")
        assert path.read_text() == "old"
    assert texts(tmp_path) == {"file": "new", "kept": "old"}


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    """A full disk, a folder that nobody can write to, no file, and half a character."""
    path = tmp_path / "scores.json"
    write_json(path, [1])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))  # Python ignores the signal, so that write fails
    with pytest.raises(CaptioningError, match=r"cannot write .*scores\.json: File too large"):
        write_json(path, ["x" * 2000])
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert texts(tmp_path) == {"scores.json": to_json([1], indent=2) + "\n"}
    path.unlink()
    with pytest.raises(CaptioningError, match=r"cannot write /sys/scores\.json: "):
        write_json(Path("/sys/scores.json"), {})
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "a dog \ud83d")
    assert not list(tmp_path.iterdir())
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(CaptioningError, match=f"cannot write .*{name}: "):
            write_text(tmp_path / name, "text")
    assert (tmp_path / "pipe").is_fifo()
    assert len(list(tmp_path.iterdir())) == 2


def test_numbers_that_json_has_not_are_null() -> None:
    nan, inf = float("nan"), float("inf")
    assert to_json({"a": nan, "b": [1.5, (-inf, {"c": inf})]}) == '{"a": null, "b": [1.5, [null, {"c": null}]]}'
    assert to_json({"word": "gr\u00fcn", "x": nan}, ensure_ascii=False) == '{"word": "gr\u00fcn", "x": null}'


def test_an_error_quotes_little_of_a_damaged_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("x" * 10_000)

    def parse(text: str) -> None:
        raise ValueError(f"what is\n{text}")

    with pytest.raises(CaptioningError, match=r"\(what is x+ \.\.\. x+\): mend it$") as caught:
        read_state(path, parse, "mend it")
    assert len(str(caught.value)) < len(str(path)) + 300
    with pytest.raises(CaptioningError, match=r"\(it has 10,000 bytes\)"):
        read_state(path, str, "mend it", largest=9_999)
    with pytest.raises(CaptioningError, match=r"\(it is a folder\)"):
        read_state(tmp_path, str, "mend it")
