import logging
import os

import pytest
import torch
from PIL import Image
from refusals import refuses

from captioning.backbones.images import ImageTransform
from captioning.data.dataset import ImageFiles
from captioning.data.example import Example, Reference
from captioning.data.image_files import readable
from captioning.data.loader import Loader


class Counted:
    """Reads as a backbone does, and counts."""

    def __init__(self):
        self.files = []

    def read(self, source):
        self.files.append(source.name)
        return ImageTransform(4).read(source)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Seven photographs and what cannot be read: cut off, text, empty, a folder, a pipe, absent."""
    folder = tmp_path_factory.mktemp("photographs")
    for number in range(7):
        Image.effect_noise((40, 30), 99).save(folder / f"{number}.jpg")
    (folder / "cut.jpg").write_bytes((folder / "0.jpg").read_bytes()[:-200])
    (folder / "text.jpg").write_text("no image")
    (folder / "empty.jpg").touch()
    (folder / "folder.jpg").mkdir()
    os.mkfifo(folder / "pipe.jpg")
    return folder


def splits(folder, train, test):
    def example(name):
        return Example(name, folder / f"{name}.jpg", (Reference("a", ("a",)),))

    return {"train": [*map(example, train.split())], "test": [*map(example, test.split())]}


def ids(found):
    return {
        name: " ".join(str(example.image_id) for example in examples)
        for name, examples in found.items()
    }


def test_broken_photographs_are_left_out_and_named_or_refused_with_what_to_do(
    folder, tmp_path, caplog
):
    given = splits(folder, "0 cut 1 text empty 2", "pipe 3 folder absent 4")
    assert ids(readable(given, Counted(), tmp_path, skip_broken=True)) == {
        "train": "0 1 2",
        "test": "3 4",
    }
    named = [
        line.partition(":")[0] + " " + line.split("/")[-1].split(".")[0] for line in caplog.messages
    ]
    assert named == [
        *(f"skipped in train {name}" for name in ("cut", "text", "empty")),
        *(f"skipped in test {name}" for name in ("pipe", "folder", "absent")),
    ]
    assert all(record.levelno == logging.WARNING for record in caplog.records)
    for name in ("cut", "text", "empty", "folder", "pipe", "absent"):
        with refuses(rf"^cannot read the image .*{name}\.jpg: .*data\.skip_broken=true$"):
            readable(splits(folder, "0 1", f"2 {name}"), Counted(), tmp_path, skip_broken=False)
    with refuses(r"cut\.jpg: .*no other photograph of test can be read"):
        readable(splits(folder, "0 1", "cut"), Counted(), tmp_path, skip_broken=True)


def test_a_data_set_is_tried_once_and_what_changed_in_it_or_in_the_record_again(folder, tmp_path):
    given = splits(folder, "0 1 2", "3 cut")
    first, again = Counted(), Counted()
    assert readable(given, first, tmp_path, skip_broken=True) == readable(
        given, again, tmp_path, skip_broken=True
    )
    assert sorted(first.files) == ["0.jpg", "1.jpg", "2.jpg", "3.jpg", "cut.jpg"]
    assert again.files == ["cut.jpg"]
    content = (folder / "2.jpg").read_bytes()
    for now, kept in ((content[:-200], "0 1"), (content, "0 1 2")):
        (folder / "2.jpg").write_bytes(now)
        assert ids(readable(given, Counted(), tmp_path, skip_broken=True)) == {
            "train": kept,
            "test": "3",
        }
    record = max(
        (path for path in tmp_path.iterdir() if not path.suffix),
        key=lambda path: path.stat().st_mtime_ns,
    )
    for damage in (b"", b"\xff", b"[0]", b"[0, 1, 4]", b"[9]", b'["cut"]', b"null", b"[" * 9999):
        record.write_bytes(damage)
        assert ids(readable(given, Counted(), tmp_path, skip_broken=True))["train"] == "0 1 2"


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_photograph_that_breaks_later_is_told_without_a_workers_traceback(folder, num_workers):
    inputs = ImageFiles([folder / "0.jpg", folder / "cut.jpg", folder / "1.jpg"], ImageTransform(4))
    items = iter(Loader(inputs.rows, sampler=[[0, 2], [0, 1]], num_workers=num_workers))
    assert torch.equal(next(items), inputs.rows([0, 2]))
    with refuses(r"^cannot read the image .*cut\.jpg: .*skip_broken=true$") as caught:
        next(items)
    assert "\n" not in str(caught.value)
