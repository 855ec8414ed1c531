"""Files that are whole or not there, whatever happens while they are written."""

import os
import signal
import stat
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from processes import ENVIRONMENT, PROCESSES
from refusals import refuses
from support import little_disk

from captioning.backbones.arrays import open_arrays
from captioning.backbones.images import ImageTransform
from captioning.backbones.weights import load_weights
from captioning.data.readers.captions import read_captions, read_references
from captioning.data.readers.parsing import read_lines
from captioning.data.readers.table import table_entries
from captioning.errors import CaptioningError
from captioning.files import (
    STALE,
    atomic_write,
    read_arrays,
    read_state,
    to_json,
    write_json,
    write_text,
)
from captioning.runs.checkpoints.checkpoint import load_checkpoint
from captioning.runs.evaluation import attention_file
from captioning.runs.settings import read_settings
from experiments.chair.objects import read_objects
from experiments.clip_scores.metric import Embeddings


def texts(folder):
    return {each.name: each.read_text() for each in folder.iterdir()}


def test_what_was_there_stays_until_the_new_is_whole(tmp_path):
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


def test_what_cannot_be_written_leaves_nothing(tmp_path):
    """A full disk, a folder that nobody can write to, no file, and half a character."""
    path = tmp_path / "scores.json"
    write_json(path, [1])
    with little_disk(1000), refuses(r"cannot write .*scores\.json: File too large"):
        write_json(path, ["x" * 2000])
    assert texts(tmp_path) == {"scores.json": to_json([1], indent=2) + "\n"}
    path.unlink()
    with refuses(r"cannot write /sys/scores\.json: "):
        write_json(Path("/sys/scores.json"), {})
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "a dog \ud83d")
    assert not list(tmp_path.iterdir())
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with refuses(f"cannot write .*{name}: "):
            write_text(tmp_path / name, "text")
    assert (tmp_path / "pipe").is_fifo()
    assert len(list(tmp_path.iterdir())) == 2


def write_often(path, content):
    for _ in range(30):
        write_text(path, content)


def test_writers_of_one_file_do_not_meet(tmp_path):
    """Threads and processes; the file is one of theirs, whole."""
    path, contents = tmp_path / "answer.json", [letter * 10_000 for letter in "abcdef"]
    with ProcessPoolExecutor(2, PROCESSES) as processes, ThreadPoolExecutor(4) as threads:
        pools = (processes, processes, *[threads] * 4)
        written = [
            pool.submit(write_often, path, content)
            for pool, content in zip(pools, contents, strict=True)
        ]
        for each in written:
            each.result()
    assert path.read_text() in contents
    assert [*tmp_path.iterdir()] == [path]


KILLED = """
import os, signal, sys
from pathlib import Path
from captioning.files import atomic_folder, atomic_write
with {}(Path("captions.jsonl")) as made:
    {}
    os.kill(os.getpid(), signal.SIGKILL)
"""
WRITERS = {
    "atomic_write": "made.write(b'half'); made.flush()",
    "atomic_folder": "(made / 'half').touch()",
}


@pytest.mark.parametrize("writer", WRITERS)
def test_what_a_killed_writer_leaves_is_nothing_to_readers_and_goes(writer, tmp_path):
    """A folder is as old as the youngest file in it."""
    program = KILLED.format(writer, WRITERS[writer])
    for _ in range(2):
        ended = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=ENVIRONMENT)
        assert ended.returncode == -signal.SIGKILL
    old, young = left = [*tmp_path.iterdir()]
    assert not [*tmp_path.glob("captions.jsonl*"), *tmp_path.glob("*.jsonl")]
    age = old.stat().st_mtime - STALE - 60
    for each in (young, old, *old.rglob("*")):
        if each.is_dir() or each is old or old in each.parents:
            os.utime(each, (age, age))
    write_text(tmp_path / "other", "text")
    assert {*tmp_path.iterdir()} == {young, tmp_path / "other"}
    assert {path.suffix for path in left} == {".part"}


def test_a_file_has_the_permissions_of_a_new_one(tmp_path):
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "file", "text")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640


def test_numbers_that_json_has_not_are_null():
    nan, inf = float("nan"), float("inf")
    written = to_json({"a": nan, "b": [1.5, (-inf, {"c": inf})]})
    assert written == '{"a": null, "b": [1.5, [null, {"c": null}]]}'
    written = to_json({"word": "gr\u00fcn", "x": nan}, ensure_ascii=False)
    assert written == '{"word": "gr\u00fcn", "x": null}'


def test_an_error_quotes_little_of_a_damaged_file(tmp_path):
    path = tmp_path / "file"
    path.write_text("x" * 10_000)

    def parse(text):
        raise ValueError(f"what is\n{text}")

    with refuses(r"\(what is x+ \.\.\. x+\): mend it$") as caught:
        read_state(path, parse, "mend it")
    assert len(str(caught.value)) < len(str(path)) + 300
    with refuses("it has 10,000 bytes, and at most 9,999 are read"):
        read_state(path, str, "mend it", largest=9_999)


READERS = {
    "captions": read_captions,
    "references": read_references,
    "objects": read_objects,
    "table": table_entries,
    "lines": read_lines,
    "attention": attention_file.read,
    "checkpoint": load_checkpoint,
    "weights": partial(load_weights, torch.nn.Linear(1, 1), ()),
    "photograph": ImageTransform(8).read,
    "settings": read_settings,
    "embeddings": lambda path: Embeddings.read(path),
    "features": lambda path: features_of(path.parent, path.stem),
}
# the former are mapped into memory; the latter counts as a file that is to be written
EXEMPT = (("large", "checkpoint"), ("large", "weights"), ("circle", "embeddings"))


def features_of(folder, name):
    with open_arrays(folder) as features:
        return features.features(name, 3, 1, "none")


@pytest.mark.parametrize("reader", READERS)
def test_only_regular_files_of_bounded_size_are_read(reader, tmp_path):
    """A pipe would be waited for, the other two fill the memory."""
    endings = {"features": "npy", "embeddings": "npz", "attention": "npz", "photograph": "png"}
    path = tmp_path / f"x.{endings.get(reader, 'json')}"
    for kind in ("pipe", "device", "circle", "large"):
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "large":
            path.touch()
            os.truncate(path, 2**34)
        else:
            path.symlink_to("/dev/zero" if kind == "device" else path.name)
        if (kind, reader) not in EXEMPT:
            with pytest.raises((CaptioningError, OSError)) as caught:
                READERS[reader](path)
            reasons = {"circle": "symbolic links", "large": "17,179,869,184 bytes"}
            assert reasons.get(kind, "not a regular file") in str(caught.value)
        path.unlink()


def test_small_files_do_not_unpack_to_large_ones(tmp_path):
    path = tmp_path / "x.npz"
    np.savez_compressed(path, zeros=np.zeros((1000, 1000)))
    assert path.stat().st_size < 10_000
    assert [*read_arrays(path, largest=8_001_000)] == ["zeros"]
    with pytest.raises(ValueError, match="unpacked it may have 8,000,"):
        read_arrays(path, largest=8_000_000)
