"""Files that are refused: `(reader, content, exception, what the message names)`."""

import json
from pathlib import Path

import pytest
from json_files import write_json
from pydantic import ValidationError
from shares import choose

from captioning.config.explain import explain
from captioning.data.example import SPLITS
from captioning.data.readers.captions import read_captions, read_references
from captioning.data.readers.coco import CocoSplit
from captioning.data.readers.karpathy import KarpathyReader
from captioning.data.readers.reading import run_reader
from captioning.data.readers.table import TableReader
from captioning.errors import CaptioningError
from experiments.languages_flickr8k.languages import LanguagesReader

DOG = {"raw": "A dog.", "tokens": ["a", "dog"]}
KARPATHY = [
    {"filename": f"{i}.jpg", "split": s, "imgid": i, "sentences": [DOG]}
    for i, s in enumerate(SPLITS)
]
IMAGE = {"id": 1, "file_name": "1.jpg"}
CAPTION = {"image_id": 1, "caption": "A dog."}
RESULT = {"image_id": 1, "caption": "a", "references": ["a"]}
TABLE = "image,caption\n1.jpg,A dog runs .\n"
TOKENS = "1.jpg#0\tA dog runs .\n"
LONG = "x" * 10_001
NAMES = ("../1", "/a/../../1", "a\0", LONG)
BROKEN = ["", b'{"a": "caf\xe9"}', "[" * 100_000, '{"images": [3]}']


def karpathy(path):
    return KarpathyReader(path.parent, path)()


def coco(path):
    return CocoSplit(path.parent, path)()


def languages(path):
    english = path.with_name("english.json")
    write_json(english, {"images": KARPATHY})
    return LanguagesReader(path.parent, english, {"de": path}, "de")()


def table(path):
    return TableReader(path.parent, path, {split: [0, 1] for split in SPLITS})()


def chosen(path):
    return choose(path, [3, 4], Path("captions.json"))


def lines(read):
    return lambda path: read(path.rename(path.with_suffix(".jsonl")))


def first(**change):
    return {"images": [KARPATHY[0] | change, *KARPATHY[1:]]}


def both(*images, annotations=(CAPTION,)):
    return {"images": images, "annotations": annotations}


REFUSED = [
    *((karpathy, content, ValueError, "read as") for content in BROKEN),
    (coco, BROKEN[2], ValueError, "read as"),
    (lines(read_references), "{\n", ValidationError, ", line 1"),
    (karpathy, {"images": []}, CaptioningError, "no images for train, val, test"),
    (karpathy, both(IMAGE), ValidationError, "Karpathy's layout"),
    (karpathy, first(split="mine"), CaptioningError, "images[0].split"),
    *((karpathy, first(filename=n), ValidationError, "images[0].filename") for n in NAMES),
    (karpathy, first(filepath="../1"), ValidationError, "images[0].filepath"),
    (karpathy, first(imgid=1.5), ValidationError, "images[0].imgid"),
    (karpathy, first(sentences=[DOG, {"text": "a dog"}]), CaptioningError, "0.jpg"),
    (karpathy, first(sentences=[{"raw": LONG}]), ValidationError, "images[0].sentences[0].raw"),
    (karpathy, first(sentences=[{"tokens": ["a"] * 9000}]), ValidationError, "[0].tokens"),
    (karpathy, first(sentences=[{"tokens": ["abc"] * 4000}]), CaptioningError, "0.jpg"),
    (coco, both(IMAGE, {"id": 2, "file_name": "2.jpg"}, IMAGE), CaptioningError, "the image 1"),
    (coco, both(IMAGE, annotations=[CAPTION | {"image_id": 8}]), CaptioningError, "annotations[0]"),
    (coco, both(IMAGE, annotations=[]), CaptioningError, "1.jpg has no caption"),
    (coco, both(IMAGE | {"file_name": "../1.jpg"}), ValidationError, "images[0].file_name"),
    (languages, '{"../1": []}', ValueError, "read as a JSON object"),
    (table, "", CaptioningError, "image,caption"),
    *(
        (table, h, CaptioningError, "line 1")
        for h in ("image.caption\n1;A", "image,caption,caption")
    ),
    *((table, TABLE + row, CaptioningError, "line 3") for row in ("1,A, b", '1,"A\n1,B')),
    (table, TABLE + "1.jpg," + LONG * 20, ValidationError, "line 3"),
    (table, TABLE + "../1.jpg,A dog", ValidationError, "line 3"),
    (table, b"image,caption\n1.jpg,A caf\xe9\n", UnicodeDecodeError, "line 2 is not UTF-8"),
    (table, TOKENS + "1.jpg#2 A dog", CaptioningError, "line 2"),
    (table, TABLE + "2.jpg,...", CaptioningError, "2.jpg has no caption"),
    (table, TABLE, CaptioningError, "1.jpg occurs twice, for train "),
    (chosen, "3\n\n8\n", CaptioningError, "line 3: 8"),
    (read_captions, [RESULT | {"image_id": True}], ValidationError, "[0].image_id"),
    (read_captions, [RESULT] * 2, CaptioningError, "the image 1"),
    (read_references, both(annotations=[]), CaptioningError, "no images"),
    (read_references, both(IMAGE, {"id": 9}), CaptioningError, "references for 1 of 2 images: 9"),
    (lines(read_references), {"image_id": 1, "caption": "a"}, CaptioningError, "1 of 1 images: 1"),
]


@pytest.mark.parametrize("read, content, kind, named", REFUSED)
def test_a_wrong_file_is_refused_with_the_place(tmp_path, read, content, kind, named):
    path = tmp_path / "file.json"
    text = content if isinstance(content, str | bytes) else json.dumps(content)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(kind) as refused:
        read(path)
    message = explain(refused.value)
    assert named in message
    assert str(path.with_suffix("")) in message
    assert len(message.replace(str(tmp_path), "").encode()) < 1000


@pytest.mark.parametrize(
    "reader", [karpathy, table, chosen, lambda path: read_captions(path / "a.jsonl")]
)
def test_files_that_are_not_there_are_named(tmp_path, reader):
    with pytest.raises(FileNotFoundError) as refused:
        run_reader(lambda: reader(tmp_path / "file"))
    assert str(tmp_path / "file") in explain(refused.value)
    assert "data.root" in explain(refused.value)
