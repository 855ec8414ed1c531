"""Files of a feature cache that are no longer what was written: never other features than the backbone's."""

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from counting import COUNT, HEADER_BYTES, ROW_BYTES, CountingCNN, build, photographs, unfinish
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from captioning.data.loader import Loader
from captioning.errors import CaptioningError
from captioning.features.cache import CHECKSUMS, DATA, FeatureCache

ROWS = range(COUNT)


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return photographs(tmp_path_factory.mktemp("home") / "photographs")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def expected(paths: list[Path], folder: Path) -> Tensor:
    return build(CountingCNN(), paths, folder).rows(ROWS)


def flip(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


@settings(max_examples=50)
@given(st.integers(8 * HEADER_BYTES, 8 * (HEADER_BYTES + COUNT * ROW_BYTES) - 1))
def test_a_flipped_bit_is_told_of_its_row_and_of_no_other(
    expected: Tensor, paths: list[Path], folder: Path, bit: int
) -> None:
    cache = build(CountingCNN(), paths, folder)
    flip(cache.folder / DATA, bit)
    try:
        damaged = (bit // 8 - HEADER_BYTES) // ROW_BYTES
        others = [row for row in ROWS if row != damaged]
        assert torch.equal(cache.rows(others), expected[others])
        told = rf"{DATA} is damaged at photograph {damaged}: delete {cache.folder} to build it again"
        for read in (lambda: cache.rows([*others, damaged]), lambda: cache[damaged], cache.scale):
            with pytest.raises(CaptioningError, match=told):
                read()
    finally:
        flip(cache.folder / DATA, bit)


@st.composite
def mutations(draw: st.DrawFn) -> Callable[[bytes], bytes]:
    """Cuts a file off, writes other bytes over some of it or behind it, or puts others in its place."""
    share, what, goes_on = draw(st.floats(0, 1)), draw(st.binary()), draw(st.booleans())

    def mutate(old: bytes) -> bytes:
        place = int(share * len(old))
        return old[:place] + what + (old[place + len(what) :] if goes_on else b"")

    return mutate


@settings(max_examples=50)
@given(name=st.sampled_from([DATA, CHECKSUMS, "meta.json"]), mutate=mutations())
def test_a_mutated_file_gives_the_same_features_or_a_sentence(
    expected: Tensor, paths: list[Path], folder: Path, name: str, mutate: Callable[[bytes], bytes]
) -> None:
    file = build(CountingCNN(), paths, folder).folder / name
    old, told = file.read_bytes(), ""
    file.write_bytes(mutate(old))
    try:
        rows = build(CountingCNN(), paths, folder).rows(ROWS)
    except CaptioningError as error:
        told = str(error)
    finally:
        file.write_bytes(old)
    if told:
        assert mutate(old) != old
        assert str(file.parent) in told
        assert "to build it again" in told
    else:
        assert torch.equal(rows, expected)


@settings(max_examples=50)
@given(name=st.sampled_from([DATA, CHECKSUMS, "meta.json"]), mutate=mutations())
def test_a_mutated_unfinished_cache_is_mended(
    expected: Tensor, paths: list[Path], folder: Path, name: str, mutate: Callable[[bytes], bytes]
) -> None:
    part = unfinish(build(CountingCNN(), paths, folder))
    (part / name).write_bytes(mutate((part / name).read_bytes()))
    assert torch.equal(build(CountingCNN(), paths, folder).rows(ROWS), expected)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_damage_and_deletion_are_told_without_a_workers_traceback(
    tmp_path: Path, paths: list[Path], num_workers: int
) -> None:
    def message(cache: FeatureCache) -> str:
        with pytest.raises(CaptioningError) as caught:
            list(Loader(cache.rows, sampler=[ROWS], num_workers=num_workers))
        assert "\n" not in str(caught.value)
        return str(caught.value)

    cache = build(CountingCNN(), paths, tmp_path / "cache")
    flip(cache.folder / DATA, -1)
    assert f"damaged at photograph {COUNT - 1}" in message(cache)
    shutil.rmtree(cache.folder)
    assert "cannot be read" in message(pickle.loads(pickle.dumps(cache)))
