"""Builds of a feature cache that are killed, cut off, short of room, or given bad photographs."""

import os
import signal
from pathlib import Path

import pytest
import torch
from counting import (
    ALL,
    BATCH,
    COUNT,
    HEADER_BYTES,
    ROW_BYTES,
    CountingCNN,
    build,
    counted,
    folders,
    unfinish,
)
from PIL import Image
from processes import LIMIT, PROCESSES, wait
from refusals import refuses
from support import little_disk

from captioning.backbones.images import ImageTransform
from captioning.config.explain import explain
from captioning.features.cache import CHECKSUMS, DATA

FINISHED = [
    *(
        BATCH * batch for batch in range(-(-COUNT // BATCH))
    ),  # before a further batch was synced, its checksums written
    COUNT,  # before the checksums were synced
    *(COUNT, COUNT, COUNT),  # before meta.json was synced, renamed, and the folder got its name
]
"""How many rows are left behind by a build that is killed at its first, second, .. point."""


def killed_at(point):
    """Lets this process kill itself instead of the `point`-th time that it syncs or renames a
    file.
    """
    steps = iter(range(1, point))

    def mortal(action):
        def act(*arguments):
            if next(steps, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)
            return action(*arguments)

        return act

    os.fsync, Path.replace = mortal(os.fsync), mortal(Path.replace)


def killed_builds(paths, folder):
    """One build for each point at which it is killed, each forked off this process, which imported
    all already.
    """
    ended = []
    for point in range(1, len(FINISHED) + 1):
        child = os.fork()
        if child == 0:
            killed_at(point)
            build(CountingCNN(), paths, folder / str(point))
            os._exit(0)
        ended.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    return ended


def test_killed_at_any_point_nothing_finished_is_computed_again(tmp_path, paths):
    with PROCESSES.Pool(1) as pool:
        assert pool.apply(killed_builds, (paths, tmp_path)) == [-signal.SIGKILL] * len(FINISHED)
    whole = build(CountingCNN(), paths, tmp_path / "whole").rows(ALL)
    for point, rows in enumerate(FINISHED, 1):
        folder, log = tmp_path / str(point), tmp_path / f"log{point}"
        assert folders(folder) == [".part"]
        assert torch.equal(build(CountingCNN(log), paths, folder).rows(ALL), whole)
        assert counted(log) == COUNT - rows, point
        assert folders(folder) == [""]


class Meeting(CountingCNN):
    """Computes nothing before the process of the log `other` computes, too."""

    def __init__(self, log, other):
        super().__init__(log)
        self.other = other

    def forward(self, images):
        self.log.touch()
        wait(self.other.exists)
        return super().forward(images)


def build_beside(paths, folder, log, other, point=None):
    if point:
        killed_at(point)
    build(Meeting(log, other), paths, folder, batch_size=1)


def beside(*processes):
    """How processes end that build at the same time."""
    started = [PROCESSES.Process(target=build_beside, args=each) for each in processes]
    for process in started:
        process.start()
    for process in started:
        process.join(LIMIT)
    return [process.exitcode for process in started]


def files_of(cache):
    return [(cache.folder / name).read_bytes() for name in (DATA, CHECKSUMS)]


@pytest.mark.parametrize("point", [None, 1])
def test_two_processes_build_together_and_one_may_be_killed(tmp_path, paths, point):
    """Before it finishes its first row, which the other one then computes."""
    folder, first, second = (tmp_path / name for name in ("cache", "first", "second"))
    both = (paths, folder, first, second, point), (paths, folder, second, first)
    assert beside(*both) == [-signal.SIGKILL if point else 0, 0]
    assert folders(folder) == [""]
    lost = 1 if point else 0
    assert counted(first) + counted(second) == COUNT + lost
    assert point is None or counted(first) == point
    assert counted(first) > 0 < counted(second)
    again = build(CountingCNN(tmp_path / "log"), paths, folder)
    assert counted(tmp_path / "log") == 0
    alone = build(CountingCNN(), paths, tmp_path / "whole", batch_size=1)
    assert files_of(again) == files_of(alone)


def test_a_build_of_other_photographs_takes_no_rows_of_one_that_goes_on(tmp_path, paths):
    """Both begin with the same photograph, by which an abandoned build is found."""
    folder, first, second = (tmp_path / name for name in ("cache", "first", "second"))
    both = (paths, folder, first, second), (paths[:5], folder, second, first)
    assert beside(*both) == [0, 0]
    assert (counted(first), counted(second)) == (COUNT, 5)
    for chosen in (paths, paths[:5]):
        alone = build(CountingCNN(), chosen, tmp_path / "whole", batch_size=1)
        assert files_of(build(CountingCNN(), chosen, folder)) == files_of(alone)


@pytest.mark.parametrize("num_workers, repaired", [(0, True), (2, False)])
def test_a_broken_photograph_is_named_and_the_finished_part_kept(
    tmp_path, paths, num_workers, repaired
):
    content = paths[5].read_bytes()
    paths[5].write_bytes(content[:-100])
    with refuses(r"^cannot read the image [^\n]*5\.png[^\n]*$"):
        build(CountingCNN(), paths, tmp_path / "cache", num_workers=num_workers)
    assert folders(tmp_path / "cache") == [".part"]
    # The two batches before that of photograph 5 are finished, whatever the decoding processes had
    # ready.
    if repaired:
        paths[5].write_bytes(content)
    else:
        del paths[5]
    assert computed_again(paths, tmp_path) == len(paths) - 4
    assert folders(tmp_path / "cache") == [""]


def computed_again(paths, folder):
    log, rows = folder / "log", range(len(paths))
    cache = build(CountingCNN(log), paths, folder / "cache")
    assert torch.equal(cache.rows(rows), build(CountingCNN(), paths, folder / "whole").rows(rows))
    return counted(log)


def test_rows_of_a_photograph_that_changed_are_computed_again(tmp_path, paths):
    """Also where the unfinished build had them."""
    unfinish(build(CountingCNN(), paths, tmp_path / "cache"))
    Image.new("RGB", (9, 13)).save(paths[3])
    assert computed_again(paths, tmp_path) == BATCH


class Fatal(ImageTransform):
    """Kills the process that decodes photograph 5, as the system does where memory is short."""

    def read(self, source):
        if Path(source).name == "5.png":
            os.kill(os.getpid(), signal.SIGKILL)
        return super().read(source)


def test_a_killed_decoding_process_is_told(tmp_path, paths):
    backbone = CountingCNN()
    backbone.transform = Fatal(12)
    with refuses(r"a process that decodes photographs was killed.*: free memory"):
        build(backbone, paths, tmp_path / "cache", num_workers=2)
    assert folders(tmp_path / "cache") == [".part"]
    assert len(build(CountingCNN(), paths, tmp_path / "cache")) == COUNT


def test_full_disk_is_an_error_and_the_build_goes_on_later(tmp_path, paths):
    folder, log = tmp_path / "cache", tmp_path / "log"
    with little_disk(1000), pytest.raises(OSError) as full:  # noqa: PT011, explained below
        build(CountingCNN(), paths, folder)
    assert "cannot write the feature cache" in explain(full.value)
    assert folders(folder) == [".part"]
    build(CountingCNN(log), paths, folder)
    assert counted(log) == COUNT - (1000 - HEADER_BYTES) // ROW_BYTES
