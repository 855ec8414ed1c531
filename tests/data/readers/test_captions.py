"""Files of captions and references, and the images that they share."""

import gzip
import json

import pytest
from json_files import read_json, write_json
from pydantic import ValidationError
from refusals import refuses
from support import little_memory

from captioning.data.readers.captions import read_captions, read_references
from captioning.data.readers.ids import common_images, match_ids
from captioning.runs.evaluation.captions import write_results


def captions_of(path):
    return {image: record.caption for image, record in read_captions(path).items()}


def references_of(path):
    return {image: record.references for image, record in read_references(path).items()}


def test_results_annotations_and_lines_of_a_run(tmp_path):
    path = tmp_path / "file.json"
    path.write_text(
        '[{"image_id": 7, "caption": "a cat", "score": 1}, {"image_id": "a.jpg", "caption": ""}]'
    )
    assert captions_of(path) == {7: "a cat", "a.jpg": ""}
    captions = [(3, "A dog."), (7, "a cat"), (3, "the dog\u2028runs"), ("a.jpg", "birds")]
    annotations = [
        {"id": i, "image_id": image, "caption": text} for i, (image, text) in enumerate(captions)
    ]
    images = [{"id": image} for image in (7, 3, "a.jpg")]
    write_json(path, {"images": images, "annotations": annotations, "info": {}})
    references = {7: ["a cat"], 3: ["A dog.", "the dog\u2028runs"], "a.jpg": ["birds"]}
    assert list(references_of(path).items()) == list(references.items())
    lines = [
        {
            "image_id": 7,
            "caption": "a\u2028cat",
            "references": ["x", "y"],
            "scores": {"CIDEr": 1.0},
        },
        {"image_id": "a.jpg", "caption": "b", "references": ["z"]},
    ]
    path = tmp_path / "captions.jsonl"
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    packed = tmp_path / "captions.jsonl.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    for file in (path, packed):
        assert captions_of(file) == {7: "a\u2028cat", "a.jpg": "b"}
        assert references_of(file) == {7: ["x", "y"], "a.jpg": ["z"]}


def test_compressed_captions_that_are_damaged(tmp_path):
    file = tmp_path / "captions.jsonl.gz"
    whole = gzip.compress(b'{"image_id": 7, "caption": "a cat"}')
    for content in (whole[:-9], whole[:12] + b"\xff" * 12 + whole[24:], b"a cat"):
        file.write_bytes(content)
        with refuses(file.name):
            read_captions(file)


def test_compressed_captions_of_a_stranger_are_bounded(tmp_path, monkeypatch):
    """By their bytes, and by their lines, which take more memory."""
    file, line = tmp_path / "captions.jsonl.gz", b'{"image_id": 7, "caption": "a cat"}\n'
    file.write_bytes(gzip.compress(line * 100_000))
    assert len(line) * 100_000 > 200 * file.stat().st_size + 2**20
    with refuses("bytes without compression"):
        read_captions(file)
    monkeypatch.setattr("captioning.files.MOST_LINES", 10)
    file.write_bytes(gzip.compress(line * 11))
    with refuses("more than 10 lines"):
        read_captions(file)
    scores = ",".join(f'"k{number}":{number}' for number in range(10**5))
    file.write_bytes(gzip.compress(line.replace(b"}", b', "scores": {' + scores.encode() + b"}}")))
    with little_memory(), refuses("as many bytes in one"):
        read_captions(file)


def test_all_images_or_none():
    references = {i: ["x"] for i in range(6)}
    whole = dict.fromkeys(reversed(range(6)), "y")
    assert common_images(references, {"captions=a": whole, "theirs": whole}, False) == list(
        range(6)
    )
    part = {0: "y", 5: "y", "z": "y"}
    with refuses(r"^theirs .* 4 of 6 images: 1, 2, 3, \.\.\.; .* 1 for .*: 'z'\."):
        common_images(references, {"captions=a": whole, "theirs": part}, False)
    assert common_images(references, {"captions=a": whole, "theirs": part}, True) == [0, 5]
    with refuses(r"captions=a .* 2 for .*: 8, 9"):
        common_images(references, {"captions=a": whole | {8: "y", 9: "y"}}, False)
    for common_only in (True, False):  # numbers are not text
        with refuses("1"):
            common_images({1: ["x"]}, {"captions=a": {"1": "y"}}, common_only)


def test_ids_may_differ_in_case_and_suffix_where_one_alone_is_meant():
    known = ["a.jpg", "B.png", "c.jpg", "c.png", "d.jpg", 5]
    records = {"a": 1, "b.PNG": 2, "c": 3, "D": 4, "d": 5, "5": 6}
    assert match_ids(records, known) == {"a.jpg": 1, "B.png": 2, "c": 3, "D": 4, "d": 5, 5: 6}


def test_captions_by_image(tmp_path):
    (tmp_path / "a.json").write_text('{"a": ["one", "two"], "b": ["three"]}')
    found = read_captions(tmp_path / "a.json")
    assert [record.captions for record in found.values()] == [["one", "two"], ["three"]]
    (tmp_path / "a.json").write_text('{"a": []}')
    with pytest.raises(ValidationError, match="at least 1 item"):
        read_captions(tmp_path / "a.json")


@pytest.mark.parametrize(
    "images, called",
    [
        (["a/COCO_test2014_000000000042.jpg", "7.png"], [42, 7]),
        (["a/42.jpg", "b/42.jpg"], ["a/42.jpg", "b/42.jpg"]),
        (["dog.jpg", "7.png"], ["dog.jpg", "7.png"]),
        ([3, 9], [3, 9]),
    ],
)
def test_results_for_the_server_of_a_challenge(images, called, tmp_path):
    write_results(str(tmp_path / "a.json"), {image: ["best", "next"] for image in images})
    written = read_json(tmp_path / "a.json")
    assert written == [{"image_id": image, "caption": "best"} for image in called]
