"""Parallel text, and digests that sources change and nothing else does."""

from dataclasses import replace
from pathlib import Path

import pytest

from captioning.config.explain import explain
from captioning.data.example import Example, Reference, digest
from captioning.data.readers.parallel import ParallelReader
from captioning.errors import CaptioningError

BEFORE = "43432136aca32b9dff7ab976acec30dadbdf8694cce077b18526b993c65bef21"


def reader(folder: Path) -> ParallelReader:
    return ParallelReader(folder, "de", "en", {"train": "t.tok", "val": "v", "test": "v"})


def test_lines_belong_together_by_their_numbers(tmp_path: Path) -> None:
    for name in ("t.tok", "v"):
        (tmp_path / f"{name}.de").write_text(
            "\ufeffein hund .\n\nzwei\u2028hunde\n", encoding="utf-8"
        )
        (tmp_path / f"{name}.en").write_text("a dog .\r\n \r\ntwo  dogs", encoding="utf-8")
    found = reader(tmp_path)()
    path = tmp_path / "t.tok.de"
    assert found["train"] == [
        Example(1, path, (Reference("a dog .", ("a", "dog", ".")),), source=("ein", "hund", ".")),
        Example(3, path, (Reference("two dogs", ("two", "dogs")),), source=("zwei", "hunde")),
    ]
    (tmp_path / "v.en").write_text("a dog .\ntwo dogs", encoding="utf-8")
    with pytest.raises(CaptioningError, match=r"line 2 .*v\.de and .*v\.en"):
        reader(tmp_path)()
    (tmp_path / "v.en").write_bytes(b"caf\xe9")
    with pytest.raises(UnicodeDecodeError) as refusal:
        reader(tmp_path)()
    assert "v.en" in explain(refusal.value)


def test_the_digest_is_that_of_earlier_versions_unless_there_are_sources() -> None:
    example = Example(7, Path("a/7.jpg"), (Reference("A dog.", ("a", "dog")),))
    assert digest({"train": [example]}) == BEFORE
    assert digest({"train": [replace(example, source=("x",))]}) != digest({"train": [example]})
