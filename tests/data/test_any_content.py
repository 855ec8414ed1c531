"""Files of captions of any content: read right, or refused in a sentence; nothing of them can break a later file."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import VALUES, mutated, read_or_refused

from captioning.data.example import Splits
from captioning.data.readers.captions import read_captions, read_references
from captioning.data.readers.coco import CocoReader, CocoSplit
from captioning.data.readers.karpathy import KarpathyReader
from captioning.data.readers.splits import read
from captioning.data.readers.table import TableReader
from captioning.data.vocabulary import Vocabulary

SPLITS = ("train", "val", "test")
NAMES = [f"{i}.jpg" for i in range(3)]
SENTENCES = [{"raw": "A dog, gr\u00fcn.", "tokens": ["a", "dog", "gr\u00fcn"]}, {"raw": "cat"}]
KARPATHY = {
    "images": [
        {"filename": name, "filepath": "", "imgid": i, "cocoid": 7 + i, "split": split, "sentences": SENTENCES}
        for i, (name, split) in enumerate(zip(NAMES, SPLITS, strict=True))
    ]
}
COCO = {
    "images": [{"id": i, "file_name": name} for i, name in enumerate(NAMES)],
    "annotations": [{"image_id": i, "caption": text} for i in range(3) for text in ("A dog.", "gr\u00fcn cats")],
}
RESULTS = [{"image_id": i, "caption": "a dog", "references": ["A dog.", "cats"]} for i in (1, "2", 3)]
NASTY = VALUES | st.sampled_from(
    ["../1.jpg", "/etc/passwd", "a\0b", "0.jpg", "x" * 20_000, "", "train", 10**30, -1, True]
)


@st.composite
def changed(draw: st.DrawFn, content: Any) -> Any:
    """The content with something nasty, or nothing, in one to three of its places."""
    content = copy.deepcopy(content)
    for _ in range(draw(st.integers(1, 3))):
        node = content
        while True:
            keys = list(node) if isinstance(node, dict) else list(range(len(node)))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            if isinstance(node[key], dict | list) and draw(st.integers(0, 4)):
                node = node[key]
                continue
            if draw(st.booleans()):
                node[key] = draw(NASTY)
            else:
                del node[key]
            break
    return content


def saying(content: Any) -> st.SearchStrategy[bytes]:
    """Files with a changed content in them, or with changed bytes."""
    plain = json.dumps(content, ensure_ascii=False).encode()
    return changed(content).map(lambda value: json.dumps(value).encode()) | mutated(plain) | st.binary(max_size=30)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for name in NAMES:
        (folder / name).touch()
    return folder


def check_splits(folder: Path, reader: Callable[[], Splits]) -> None:
    splits, said = read_or_refused(lambda: read(reader))
    if splits is None:
        assert len(said or "") < 4 * len(str(folder)) + 1000
        return
    assert list(splits) == list(SPLITS)
    for example in (example for examples in splits.values() for example in examples):
        assert isinstance(example.image_id, int | str)
        assert not isinstance(example.image_id, bool)
        assert example.path.is_file()
        assert example.path.parent == folder
        assert example.references
        for text in (str(example.image_id), *(t for r in example.references for t in (r.text, *r.words))):
            assert len(text.encode()) <= 40_000
        assert all(reference.words for reference in example.references)
    words = Vocabulary.from_captions((r.words for example in splits["train"] for r in example.references), min_count=1)
    words.decode(words.encode(words.words)).encode()


@settings(max_examples=50)
@given(content=saying(KARPATHY))
def test_karpathy(folder: Path, content: bytes) -> None:
    path = folder / "data.json"
    path.write_bytes(content)
    reader = KarpathyReader(folder, path)
    check_splits(folder, reader)
    read_or_refused(reader.photographs)


@settings(max_examples=50)
@given(content=saying(COCO))
def test_coco(folder: Path, content: bytes) -> None:
    path = folder / "captions.json"
    path.write_bytes(content)
    shares = zip(SPLITS, ([0, 0.34], [0.34, 0.67], [0.67, 1]), strict=True)
    check_splits(folder, CocoReader({split: CocoSplit(folder, path, share) for split, share in shares}))


TABLES = [
    "image,caption\n" + "".join(f'{name},"A dog, gr\u00fcn."\n{name},cats\n' for name in NAMES),
    "".join(f"{name}#{i}\tA dog, gr\u00fcn.\n" for name in NAMES for i in range(2)),
]
LINES = st.lists(st.sampled_from(["image,caption", *NAMES, ",", '"', "#0\t", "\n", "A dog", "../", "\r"]), max_size=20)


@settings(max_examples=50)
@given(
    table=st.sampled_from(TABLES).flatmap(lambda table: mutated(table.encode()))
    | LINES.map(lambda lines: "".join(lines).encode())
)
def test_tables(folder: Path, table: bytes) -> None:
    path = folder / "captions.txt"
    path.write_bytes(table)
    check_splits(folder, TableReader(folder, path, {"train": [0, 0.34], "val": [0.34, 0.67], "test": [0.67, 1]}))


@settings(max_examples=50)
@given(names=mutated("\n".join(NAMES).encode()))
def test_lists(folder: Path, names: bytes) -> None:
    (folder / "captions.txt").write_text(TABLES[0])
    path = folder / "list.txt"
    path.write_bytes(names)
    check_splits(folder, TableReader(folder, folder / "captions.txt", dict.fromkeys(SPLITS, str(path))))


@pytest.mark.parametrize("read", [read_captions, read_references])
@settings(max_examples=50)
@given(content=saying(RESULTS) | saying(COCO), lines=st.booleans())
def test_captions_to_score(folder: Path, read: Callable[[Path], dict[Any, Any]], content: bytes, lines: bool) -> None:
    path = folder / f"file.json{'l' if lines else ''}"
    if lines and content.startswith(b"[{"):
        content = content[1:-1].replace(b"}, {", b"}\n{")
    path.write_bytes(content)
    found, said = read_or_refused(lambda: read(path))
    if found is None:
        assert len(said or "") < len(str(path)) + 1000
    else:
        json.dumps([list(found), list(found.values())], ensure_ascii=False, allow_nan=False).encode()
        assert all(isinstance(image_id, int | str) for image_id in found)
