"""Photographs whose features another cache has are not computed again."""

import os
import shutil
from pathlib import Path

import pytest
import torch
from counting import COUNT, CountingCNN, build, counted, photographs
from PIL import Image

from captioning.data.views import Change
from captioning.errors import CaptioningError
from captioning.features.cache import DATA, FeatureCache


def rebuilt(paths: list[Path], folder: Path, log: Path, **settings: object) -> tuple[FeatureCache, int]:
    """A cache, and for how many photographs its features were computed."""
    before = counted(log)
    cache = build(CountingCNN(log), paths, folder, **settings)
    return cache, counted(log) - before


def equal(cache: FeatureCache, paths: list[Path], fresh: Path) -> bool:
    """Whether each row is what a build in a folder of its own gives."""
    expected = build(CountingCNN(), paths, fresh, batch_size=1).rows(range(len(paths)))
    return torch.allclose(cache.rows(range(len(paths))), expected, atol=2e-3, rtol=0)


def test_only_new_photographs_are_computed_whatever_caption_file_names_them(tmp_path: Path, paths: list[Path]) -> None:
    folder, log = tmp_path / "cache", tmp_path / "log"
    for split in (paths[:4], paths[4:]):
        rebuilt(split, folder, log)
    more = photographs(tmp_path / "more", 2)  # and so the folder that they have in common is another
    mixed = [more[0], *reversed(paths[2:9]), more[1], paths[0]]
    cache, computed = rebuilt(mixed, folder, log)
    assert computed == 2
    assert equal(cache, mixed, tmp_path / "fresh")
    for each in folder.iterdir():
        if each.is_dir() and each != cache.folder:
            shutil.rmtree(each)
    again, computed = rebuilt([*mixed[::-1], paths[10]], folder, log)  # from a cache that was copied
    assert computed == 1
    assert equal(again, [*mixed[::-1], paths[10]], tmp_path / "fresh")


def test_a_changed_photograph_is_computed(tmp_path: Path, paths: list[Path]) -> None:
    folder, log = tmp_path / "cache", tmp_path / "log"
    rebuilt(paths, folder, log)
    status = paths[3].stat()
    os.utime(paths[3], ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    Image.new("RGB", (9, 13)).save(paths[5])
    cache, computed = rebuilt(paths, folder, log)
    assert computed == 2
    assert equal(cache, paths, tmp_path / "fresh")


def test_views_and_precisions_are_not_mixed(tmp_path: Path, paths: list[Path]) -> None:
    folder, log = tmp_path / "cache", tmp_path / "log"
    rebuilt(paths, folder, log)
    assert rebuilt(paths, folder, log, dtype="float32")[1] == COUNT
    before = counted(log)
    build(CountingCNN(log).viewed(Change(mirror=True)), paths, folder)
    assert counted(log) - before == COUNT


@pytest.mark.parametrize("name", ["files", "checksums"])
def test_a_cut_cache_is_not_copied_from(name: str, tmp_path: Path, paths: list[Path]) -> None:
    folder, log = tmp_path / "cache", tmp_path / "log"
    cache, _ = rebuilt(paths, folder, log)
    (cache.folder / name).write_bytes((cache.folder / name).read_bytes()[:-5])
    assert rebuilt(paths[1:], folder, log)[1] == COUNT - 1


def test_a_damaged_row_is_not_copied(tmp_path: Path, paths: list[Path]) -> None:
    cache, _ = rebuilt(paths, tmp_path / "cache", tmp_path / "log")
    content = bytearray((cache.folder / DATA).read_bytes())
    content[-1] ^= 1
    (cache.folder / DATA).write_bytes(content)
    with pytest.raises(CaptioningError, match=f"delete {cache.folder}"):
        build(CountingCNN(), paths[1:], tmp_path / "cache")
    shutil.rmtree(cache.folder)
    assert rebuilt(paths[1:], tmp_path / "cache", tmp_path / "log")[1] > 0
