"""What many tests stand on: small settings, configurations and data sets, and what a run has
left.
"""

import csv
import fcntl
import functools
import os
import pickle
import re
import resource
import struct
import sys
import termios
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import composing  # noqa: F401 - Hydra reads each file once
import pytest
from data.readers.layouts import LAYOUTS
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from json_files import read_lines, write_json
from omegaconf import OmegaConf, open_dict
from pictures import plain

from captioning import run
from captioning.config.arguments import given_keys
from captioning.config.command import NOT_HERE
from captioning.config.explain import explain, is_expected
from captioning.config.registry import CONF, drop_inherited
from captioning.config.schemas.run import RunSettings
from captioning.config.settings import check_settings, with_role
from captioning.config.types import Role
from captioning.data.subset import training_subset
from captioning.metrics.table import METRICS
from captioning.runs.settings import in_some_folder
from captioning.training import fit, setup

QUIET = [pytest.mark.filterwarnings(f"ignore:{message}") for message in NOT_HERE]
"""Marks of tests that train in their own process: Lightning's warnings that do not hold."""

MODEL = [
    "model.size=published",  # so that no folder is called ..._small
    *(f"model.{size}" for size in ("d_model=8", "heads=2", "d_ff=8")),
    *("model.encoder.layers=1", "model.decoder_layers=1"),
]
TINY = [
    *MODEL,
    "data.vocabulary.min_count=1",
    "data.num_workers=0",
    "trainer=cpu",
    "trainer.max_epochs=1",
    "trainer.limit_train_batches=2",
    "metrics.val=[CIDEr]",
    "metrics.test=[BLEU,CIDEr]",
    "callbacks.attention.images=1",
]
SCENES = [
    "data.reader.train=24",
    "data.reader.val=5",
    "data.reader.test=5",
    "data.reader.max_objects=1",
    "backbone.size=32",
    "backbone.grid=4",
    "backbone.dim=8",
]
SHAPES = [*TINY, *SCENES]
FROZEN = [
    "data=flickr8k",
    "data.root=data",
    "backbone=squeezenet1_1",
    "backbone.weights=null",
    "backbone.size=48",
]
"""Beside `TINY`: the photographs of `flickr8k`, whose features are computed once."""
LONGER = [
    "trainer.max_epochs=30",
    "trainer.check_val_every_n_epoch=30",
    "trainer.limit_train_batches=1.0",
    "data.batch_size=8",
    "model.dropout=0",
]
"""Until captions have words, and differ."""
WORLD = [*SHAPES, *LONGER, "data.reader.train=64", "data.reader.val=20", "optimizer.lr=0.003"]
"""Of the fixture `shapes_run`."""


@dataclass(frozen=True)
class Run:
    """What a run has left: the checkpoint, moved away from everything else, and the test images
    with their captions.

    Attributes:
        home: where it was trained, moved too, with `runs` and `cache`: to be copied, not changed.
        folder: of the run, below `home`.
        stdout, stderr: what it has printed.
    """

    checkpoint: Path
    photographs: list[Path]
    captions: list[str]
    home: Path
    folder: Path
    stdout: str
    stderr: str


@dataclass(frozen=True)
class CachedRun(Run):
    """A run with a frozen backbone, and that backbone's digest before anything was saved."""

    digest: str


def folder_of(home, ended):
    line = [line for line in ended.stdout.splitlines() if line.startswith("run folder: ")][-1]
    return home / line.removeprefix("run folder: ")


def contents(folder):
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in files
    }


def captions_of(folder):
    """The lines of a run's captions."""
    return read_lines(folder / "captions.jsonl")


def rows_of(folder):
    """The rows of a run's `metrics.csv`, each without what it leaves empty."""
    with (folder / "metrics.csv").open(encoding="utf-8", newline="") as file:
        return [
            {name: float(value) for name, value in row.items() if value}
            for row in csv.DictReader(file)
        ]


@functools.cache
def _composed(overrides, name, folder):
    """The configuration, and Hydra's own part."""
    with initialize_config_dir(str(folder), version_base="1.3"):
        config = compose(name, list(overrides), return_hydra_config=True)
    HydraConfig.instance().set_config(config)
    with open_dict(config):
        del config["hydra"]
    return pickle.dumps(config), HydraConfig.instance().cfg


def composed(*overrides, name="config", folder=CONF):
    content, HydraConfig.instance().cfg = _composed(overrides, name, folder)
    return pickle.loads(content)  # in a fifth of the time of a copy


def called(main, *overrides):
    """The command beneath Hydra's command line."""
    return main.__wrapped__(composed(*overrides, name=main.config.stem, folder=main.config.parent))


MINIATURE = {
    **{f"model.{size}": 8 for size in ("d_model", "d_embed", "d_hidden", "d_ff")},
    "model.heads": 2,
    "data.num_workers": 0,
    "data.vocabulary.min_count": 1,
    "backbone.min_count": 1,
    "data.reader.train": 6,
    "data.reader.val": 2,
    "data.reader.test": 2,
    **{f"backbone.{member}weights": None for member in ("", "first.", "second.", "of.")},
    **{f"backbone.{member}size": 48 for member in ("", "first.", "second.", "of.")},
    "trainer.accelerator": "cpu",
    "trainer.max_epochs": 1,
    "trainer.check_val_every_n_epoch": 1,
    "trainer.limit_train_batches": 1,
    "metrics.val": ["BLEU", "CIDEr"],
    "test": False,
    "callbacks.progress_bar": None,
}
SMALL_GRID = {"backbone.size": 32, "backbone.grid": 2, "backbone.dim": 8}


@contextmanager
def limited(kind, most):
    before = resource.getrlimit(kind)
    resource.setrlimit(kind, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(kind, before)


def little_memory():
    """Half a GiB beside what this process has, so that a limit that fails takes no more."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    return limited(resource.RLIMIT_AS, used + 2**29)


def little_disk(most):
    """No file of this process may grow beyond `most` bytes; Python ignores the signal, so that
    write fails.
    """
    return limited(resource.RLIMIT_FSIZE, most)


def miniature(config):
    """The same with every size that it has set to a very small one."""
    known = {metric for metric in config.metrics.val if metric in METRICS}
    ours = {} if known else {"metrics.val": config.metrics.val}
    for key, value in (
        MINIATURE | (SMALL_GRID if "grid" in config.backbone else {}) | ours
    ).items():
        if OmegaConf.select(config, key, default=config) is not config:
            OmegaConf.update(config, key, value)
    return config


def small_run(*overrides):
    """The score of a run with every size very small."""
    return run.main.__wrapped__(miniature(composed(*overrides)))


def checked(config):
    """What a run refuses before anything is read."""
    drop_inherited(config, given_keys(), with_role(RunSettings, Role.BESIDE))
    return setup.check_parts(check_settings(RunSettings, in_some_folder(config)))


def assembled(config):
    """What a run has built before an image is opened."""
    parts, settings = checked(config), check_settings(RunSettings, in_some_folder(config))
    backbone = setup.build_backbone(settings, parts)
    splits = setup.read_training_data(settings, parts)
    splits, captions = training_subset(splits, settings.data.plain)
    backbone.prepare(splits)
    module = setup.build_module(settings, parts, splits, captions, backbone)
    fit.build_trainer(settings, fit.fitting_precision(settings.trainer))
    return module


def flickr8k(folder):
    """Flickr8k in the Karpathy layout: six photographs of several sizes."""
    entries = []
    for i, split in enumerate(["train", "train", "train", "train", "val", "test"]):
        plain(folder / "images" / f"{i}.jpg", (50 + 7 * i, 40), (40 * i, 99, 10))
        captions = [["a", "dog", "runs"], ["two", "dogs"], ["a"] * 20]
        sentences = [
            {"raw": " ".join(words).capitalize() + " .", "tokens": words} for words in captions
        ]
        entries.append({"filename": f"{i}.jpg", "imgid": i, "split": split, "sentences": sentences})
    write_json(folder / "dataset_flickr8k.json", {"images": entries})


def make_photographs(folder):
    """Photographs in every layout that a data set's configuration reads, each with two captions."""
    folders = ("train", "val", "test", "train2014", "val2014", "train2017", "val2017")
    for below in ("images", *folders, "train_images", "test_images"):
        for i in range(16):  # the fewest of which an eighth is two
            plain(folder / below / f"{i}.jpg", colour=(16 * i, 9, 9))
    for write in {*LAYOUTS.values()}:
        write(folder)
    return folder


def read_or_refused(read):
    """What is read, or the sentence that it is refused with; any other exception is a failure."""
    try:
        return read(), None
    except Exception as error:
        if not is_expected(error):
            raise
        said = explain(error)
    said.encode()  # it can be printed
    return None, said


class Terminal:
    """A pseudo-terminal so many columns wide, in the place of a stream; 0: one that does not know
    its width.

    Attributes:
        text: all that was written to it, once it is closed.
    """

    def __init__(self, width, monkeypatch, stream="stderr"):
        self._width, self._monkeypatch, self._stream, self.text = width, monkeypatch, stream, ""

    def __enter__(self):
        self._reader, writer = os.openpty()
        fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", 24, self._width, 0, 0))
        self._file = os.fdopen(writer, "w", encoding="utf-8")
        self._usual = getattr(sys, self._stream)
        self._monkeypatch.setattr(sys, self._stream, self._file)
        self._monkeypatch.setattr(
            "multiprocessing.parent_process", lambda: None
        )  # as at a person's terminal
        self._content = bytearray()
        self._thread = threading.Thread(
            target=self._read
        )  # or the writer waits when the terminal's buffer is full
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._monkeypatch.setattr(sys, self._stream, self._usual)
        self._file.close()
        self._thread.join()
        os.close(self._reader)
        self.text = self._content.decode().replace("\r\n", "\n")

    def _read(self):
        try:
            while block := os.read(self._reader, 4096):
                self._content += block
        except OSError:  # what Linux says at the end
            pass

    def frames(self):
        """What was to be seen, one after the other."""
        return [
            frame
            for frame in (re.sub(r"\s+$", "", part) for part in re.split(r"[\r\n]", self.text))
            if frame
        ]
