"""What a feature cache holds, and that damage is never served."""

import os
import pickle
import shutil

import pytest
import torch
from counting import ALL, COUNT, HEADER_BYTES, ROW_BYTES, CountingCNN, build, counted, photographs
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from refusals import refuses
from torch.testing import assert_close

from captioning.data.dataset import ImageFiles
from captioning.data.example import Example
from captioning.data.views import Transform
from captioning.features.build import FeatureStore
from captioning.features.cache import CHECKSUMS, DATA
from experiments.two_backbones.side_by_side import ConcatBackbone


def direct(backbone, paths):
    return torch.cat([backbone(backbone.transform.read(path)[None]) for path in paths])


@pytest.mark.parametrize("num_workers, batch_size", [(0, 1), (2, 2)])
def test_rows_are_the_backbones_output(tmp_path, paths, num_workers, batch_size):
    backbone, how = CountingCNN(), {"num_workers": num_workers, "batch_size": batch_size}
    cache, close = build(backbone, paths, tmp_path, **how), {"atol": 2e-3, "rtol": 0}
    assert len(cache) == COUNT
    assert_close(cache.rows(ALL), direct(backbone, paths).half(), **close)
    view = backbone.with_transform(Transform(mirror=True))
    images = torch.stack([backbone.transform.read(path) for path in paths]).flip(-1)
    mirrored = build(view, paths, tmp_path, **how).rows(ALL)
    assert_close(mirrored, backbone(images).half(), **close)
    rows = torch.cat([cache.rows([i]) for i in (5, 1, 5)])
    assert torch.equal(cache.rows([5, 1, 5]), rows)
    size = (cache.folder / DATA).stat().st_size
    assert backbone.cached_bytes(COUNT) == size - HEADER_BYTES
    pickled = pickle.dumps(cache)
    assert len(pickled) < 1000
    assert torch.equal(pickle.loads(pickled).rows(ALL), cache.rows(ALL))


def test_vectors_beside_a_photograph_are_no_numbers_and_do_not_count(tmp_path, paths):
    for path in paths[::2]:
        with Image.open(path) as image:
            image.crop((0, 0, 13, 4)).save(path)  # then 4 of 12 rows are covered, else 8
    backbone = CountingCNN(resize="pad")
    rows = (cache := build(backbone, paths, tmp_path)).rows(ALL)
    absent = rows.isnan()
    assert torch.equal(absent.any(dim=2), absent.all(dim=2))
    for row in ALL:
        assert (~absent[row, :, 0]).nonzero().flatten().tolist() == (
            list(range(9)) if row % 2 else [3, 4, 5]
        )
    images = torch.stack([backbone.transform.read(path) for path in paths])
    assert_close(rows, backbone(images).half(), atol=2e-3, rtol=0, equal_nan=True)
    means = [rows[row][~absent[row]].double().square().mean().item() for row in ALL]
    assert cache.scale() == pytest.approx((sum(means) / COUNT) ** -0.5, rel=1e-6)


def test_features_too_large_for_half_precision(tmp_path, paths):
    for resize in ("pad", "stretch"):
        with refuses(r"features of .*0\.png are too large for half"):
            build(CountingCNN(factor=1e6, resize=resize), paths, tmp_path / "cache")


def test_features_without_a_scale(tmp_path, paths):
    with refuses(r"all features .* are 0"):
        build(CountingCNN(factor=0), paths, tmp_path).scale()


def test_features_of_two_are_cached_and_brought_to_unit_scale_for_each(tmp_path, paths):
    examples = [Example(i, path, ()) for i, path in enumerate(paths)]
    first, second = CountingCNN(factor=50, resize="pad"), CountingCNN(resize="pad")
    both = ConcatBackbone(first, second, along="set")
    inputs = both.open_inputs(examples, FeatureStore(tmp_path), "train")
    inputs.fit_scale(both)
    alone = second.open_inputs(examples, FeatureStore(tmp_path), "train")
    assert len([path for path in (tmp_path / "features").iterdir() if path.suffix == ""]) == 2
    assert first.scale < second.scale / 10
    assert second.scale.item() == pytest.approx(alone.scale())
    context = both.context(inputs.rows(ALL))
    for part in (slice(0, 9), slice(9, 18)):
        real = context.vectors[:, part][context.mask[:, part]]
        assert real.square().mean().sqrt().item() == pytest.approx(1, rel=1e-2)
    images = torch.stack([both.transform.read(path) for path in paths])
    assert_close(context.vectors, both.context(both(images)).vectors, rtol=0, atol=1e-2)


@pytest.mark.parametrize("resize", ["stretch", "pad"])
def test_pretrained_networks_that_are_trained_further_begin_at_unit_scale(tmp_path, paths, resize):
    known, random = CountingCNN(factor=50, resize=resize), CountingCNN(factor=50, resize=resize)
    frozen = known.open_inputs(
        [Example(i, path, ()) for i, path in enumerate(paths)], FeatureStore(tmp_path), "train"
    )
    known.pretrained = True
    for backbone in (known, random):
        ImageFiles(paths, backbone.transform).fit_scale(backbone)
    assert known.scale.item() == pytest.approx(frozen.scale(), rel=0.02)
    assert random.scale.item() == 1


def test_second_build_computes_nothing_even_where_the_data_set_was_moved(tmp_path, paths, capsys):
    log, moved = tmp_path / "log", tmp_path / "elsewhere"
    build(CountingCNN(log), paths, tmp_path / "cache")
    assert capsys.readouterr().err.startswith("features of test: 11/11 image, ")
    build(CountingCNN(log), paths, tmp_path / "cache", batch_size=3)
    paths[0].parent.rename(moved)
    build(CountingCNN(log), [moved / path.name for path in paths], tmp_path / "cache")
    assert counted(log) == COUNT
    assert capsys.readouterr().err == ""


def test_a_subset_is_read_from_the_cache_of_the_whole_split(tmp_path, paths):
    log, part = tmp_path / "log", [paths[k] for k in (7, 2, 9)]
    own = build(CountingCNN(), part, tmp_path / "own")
    store = FeatureStore(tmp_path / "cache", paths)
    store.computed(CountingCNN(log), part[:2], "train")
    assert counted(log) == 2  # the whole split is not there yet
    whole = store.computed(CountingCNN(log), paths, "train")
    assert counted(log) == 2 + COUNT
    read = store.computed(CountingCNN(log), part, "train")
    assert counted(log) == 2 + COUNT
    assert (len(read), len(whole)) == (3, COUNT)
    read = pickle.loads(pickle.dumps(read))  # as a worker of a loader has it
    assert torch.equal(read.rows([2, 0, 1]), whole.rows([9, 7, 2]))
    assert_close(read.rows([2, 0, 1]), own.rows([2, 0, 1]), atol=2e-3, rtol=0)
    of_part = whole.rows([7, 2, 9]).double().square().mean().rsqrt().item()
    assert read.scale() == pytest.approx(of_part, rel=1e-7) != whole.scale()
    store.computed(CountingCNN(log, factor=2), part, "train")
    assert counted(log) == 2 + COUNT + 3


def test_whatever_changes_the_features_changes_the_cache(tmp_path, paths):
    def folder(paths, view=None, factor=1):
        backbone = CountingCNN(factor=factor).with_transform(view)
        return build(backbone, paths, tmp_path / "cache").folder

    found = [folder(paths), folder(paths, factor=2)]
    found += [folder(paths, Transform(mirror=True)), folder(paths[::-1]), folder(paths[1:])]
    status = paths[3].stat()
    os.utime(paths[3], ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    found.append(folder(paths))
    Image.new("RGB", (9, 13)).save(paths[4])
    assert len({*found, folder(paths)}) == 7


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    return build(CountingCNN(), photographs(home / "photographs"), home / "cache")


def flip(path, bit):
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


@settings(max_examples=30)
@given(st.integers(8 * HEADER_BYTES, 8 * (HEADER_BYTES + COUNT * ROW_BYTES) - 1))
def test_a_flipped_bit_is_told_of_its_row_and_of_no_other(built, bit):
    whole = built.rows(ALL)
    cache = pickle.loads(pickle.dumps(built))
    flip(cache.folder / DATA, bit)
    try:
        damaged = (bit // 8 - HEADER_BYTES) // ROW_BYTES
        others = [row for row in ALL if row != damaged]
        assert torch.equal(cache.rows(others), whole[others])
        told = (
            rf"{DATA} is damaged at photograph {damaged}: delete {cache.folder} to build it again"
        )
        for read in (lambda: cache.rows([*others, damaged]), cache.scale):
            with refuses(told):
                read()
    finally:
        flip(cache.folder / DATA, bit)


DAMAGES = [
    *(
        (name, change)
        for name in (DATA, CHECKSUMS)
        for change in (lambda old: old[:-4], lambda old: old + b"1234")
    ),
    *((name, lambda old: b"") for name in (DATA, CHECKSUMS)),
    (DATA, lambda old: b"?" + old[1:]),
    (CHECKSUMS, lambda old: old[4:] + old[:4]),
]


def test_damaged_and_foreign_files_are_never_served(tmp_path, paths):
    cache, other = (build(CountingCNN(factor=factor), paths, tmp_path) for factor in (1, 2))
    for name, change in DAMAGES:
        whole = (cache.folder / name).read_bytes()
        (cache.folder / name).write_bytes(change(whole))
        with refuses(rf"{cache.folder}.* delete .* to build it again"):
            build(CountingCNN(), paths, tmp_path).rows(ALL)
        (cache.folder / name).write_bytes(whole)
    for name in (DATA, CHECKSUMS):  # those of another backbone
        shutil.copy(other.folder / name, cache.folder / name)
    with refuses(rf"{DATA} is damaged at photograph 0: delete"):
        build(CountingCNN(), paths, tmp_path).rows([0])
