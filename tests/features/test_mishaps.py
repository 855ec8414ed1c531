"""Builds of a feature cache that are killed, cut off or given bad photographs."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from counting import (
    BATCH,
    COUNT,
    HEADER_BYTES,
    ROW_BYTES,
    CountingCNN,
    build,
    counted,
    photographs,
    start_and_kill,
    unfinish,
)
from PIL import Image
from processes import PROCESSES

from captioning.backbones.images import ImageTransform
from captioning.errors import CaptioningError
from captioning.features.cache import DATA

BATCHES = -(-COUNT // BATCH)


def folders(cache: Path) -> list[str]:
    return [path.suffix for path in cache.iterdir() if path.is_dir()]


def killed_at(point: int) -> None:
    """Lets this process kill itself instead of the `point`-th time that it syncs or renames a file."""
    steps = iter(range(1, point))

    def mortal(action: Callable[..., Any]) -> Callable[..., Any]:
        def act(*arguments: Any) -> Any:
            if next(steps, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)
            return action(*arguments)

        return act

    os.fsync, Path.replace = mortal(os.fsync), mortal(Path.replace)  # type: ignore[assignment, method-assign]


FINISHED = [
    *(BATCH * batch for batch in range(BATCHES)),  # before a further batch was synced, and its checksums written
    COUNT,  # before the checksums were synced
    *(COUNT, COUNT, COUNT),  # before meta.json was synced, renamed, and the folder got its name
]
"""How many rows are left behind by a build that is killed at its first, second, .. point."""


def killed_builds(paths: list[Path], folder: Path) -> None:
    """One build for each point at which it is killed, each forked off this process, which imported all already."""
    for point in range(1, len(FINISHED) + 1):
        child = os.fork()
        if child == 0:
            killed_at(point)
            build(CountingCNN(), paths, folder / str(point))
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL, point


def test_killed_at_any_point_nothing_finished_is_computed_again(tmp_path: Path, paths: list[Path]) -> None:
    process = PROCESSES.Process(target=killed_builds, args=(paths, tmp_path))
    process.start()
    process.join()
    assert process.exitcode == 0
    whole = build(CountingCNN(), paths, tmp_path / "whole")
    for point, rows in enumerate(FINISHED, 1):
        folder, log = tmp_path / str(point), tmp_path / f"log{point}"
        assert folders(folder) == [".part"]
        cache = build(CountingCNN(log), paths, folder)
        assert counted(log) == COUNT - rows, point
        assert folders(folder) == [""]
        assert torch.equal(cache.rows(range(COUNT)), whole.rows(range(COUNT)))


WHOLE = HEADER_BYTES + COUNT * ROW_BYTES


@pytest.mark.parametrize("length", [0, 127, 128 + ROW_BYTES - 1, 128 + 3 * ROW_BYTES, WHOLE + 5])
def test_an_unfinished_file_of_any_length_is_resumed(tmp_path: Path, paths: list[Path], length: int) -> None:
    expected = build(CountingCNN(), paths, tmp_path / "cache")
    content = (expected.folder / DATA).read_bytes()
    part = unfinish(expected)
    (part / DATA).write_bytes((content + b"?????")[:length])
    (part / "meta.json").write_text('{"key": ')
    log = tmp_path / "log"
    cache = build(CountingCNN(log), paths, tmp_path / "cache")
    finished = max(0, length - HEADER_BYTES) // ROW_BYTES
    assert counted(log) == COUNT - min(finished, COUNT)
    assert (cache.folder / DATA).read_bytes() == content


def build_with_workers(paths: list[Path], folder: Path, log: Path, seconds: float) -> None:
    build(CountingCNN(log, seconds), paths, folder, num_workers=2)


def test_killed_with_decoding_processes_the_next_build_does_not_wait_for_them(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    paths = photographs(tmp_path / "photographs", 60)
    folder, log = tmp_path / "cache", tmp_path / "log"
    child = PROCESSES.Process(target=build_with_workers, args=(paths, folder, log, 0.2))
    start_and_kill(child, log)
    assert counted(log) >= 3 * BATCH
    capfd.readouterr()
    again = tmp_path / "again"
    assert len(build(CountingCNN(again), paths, folder)) == 60
    assert counted(again) <= 60 - 2 * BATCH
    assert "waiting for the process" not in capfd.readouterr().err


@pytest.mark.parametrize(("num_workers", "repaired"), [(0, True), (2, False)])
def test_a_broken_photograph_is_named_and_the_finished_part_kept(
    tmp_path: Path, paths: list[Path], num_workers: int, repaired: bool
) -> None:
    content = paths[5].read_bytes()
    paths[5].write_bytes(content[:-100])
    with pytest.raises(CaptioningError, match=r"^cannot read the image .*5\.png") as caught:
        build(CountingCNN(), paths, tmp_path / "cache", num_workers=num_workers)
    assert "\n" not in str(caught.value)
    assert folders(tmp_path / "cache") == [".part"]
    # The two batches before that of photograph 5 are finished, whatever the decoding processes had ready.
    log = tmp_path / "log"
    if repaired:
        paths[5].write_bytes(content)
    else:
        del paths[5]
    cache = build(CountingCNN(log), paths, tmp_path / "cache")
    assert counted(log) == len(paths) - 4
    assert folders(tmp_path / "cache") == [""]
    expected = build(CountingCNN(), paths, tmp_path / "whole")
    assert torch.equal(cache.rows(range(len(paths))), expected.rows(range(len(paths))))


def test_rows_of_a_photograph_that_changed_are_computed_again(tmp_path: Path, paths: list[Path]) -> None:
    """Also where the unfinished build had them: the finished part is taken up to the first photograph that differs."""
    unfinish(build(CountingCNN(), paths, tmp_path / "cache"))
    Image.new("RGB", (9, 13)).save(paths[3])
    log = tmp_path / "log"
    cache = build(CountingCNN(log), paths, tmp_path / "cache")
    assert counted(log) == COUNT - 3
    expected = build(CountingCNN(), paths, tmp_path / "whole")
    assert torch.equal(cache.rows(range(COUNT)), expected.rows(range(COUNT)))


class Fatal(ImageTransform):
    """Kills the process that decodes photograph 5, as the system does where memory is short."""

    def read(self, source: Any) -> torch.Tensor:
        if Path(source).name == "5.png":
            os.kill(os.getpid(), signal.SIGKILL)
        return super().read(source)


def test_a_killed_decoding_process_is_told(tmp_path: Path, paths: list[Path]) -> None:
    backbone = CountingCNN()
    backbone.transform = Fatal(12)
    with pytest.raises(CaptioningError, match=r"a process that decodes photographs was killed.*: free memory"):
        build(backbone, paths, tmp_path / "cache", num_workers=2)
    assert folders(tmp_path / "cache") == [".part"]
    assert len(build(CountingCNN(), paths, tmp_path / "cache")) == COUNT
