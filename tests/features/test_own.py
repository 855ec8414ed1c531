"""Features of the user's own, in every form of file."""

import os
import pickle
import re
import shutil
import struct
import zipfile
from pathlib import Path
from unicodedata import normalize

import numpy as np
import pytest
import torch
from refusals import refuses
from support import little_memory

from captioning.backbones.arrays import evenly_spaced
from captioning.backbones.precomputed import Precomputed, move_features
from captioning.data.example import Example
from captioning.features.build import FeatureStore
from captioning.features.cache import FeatureCache
from experiments.two_backbones.side_by_side import ConcatBackbone

D, L = 5, 4
NAMES = ("7", "b.jpg", "c")
"""By image_id, by file name, by file name without its ending."""
EXAMPLES = [
    Example(i, Path(f"photographs/{name}.jpg"), ())
    for i, name in ((7, "a"), (8, "b"), ("x/c.jpg", "c"))
]


def arrays():
    random = np.random.default_rng(0)
    return {
        name: random.normal(size=(rows, D)).astype(np.float32)
        for name, rows in zip(NAMES, (2, 4, 1), strict=True)
    }


SUBFOLDERS = {"7": "val/", "b.jpg": "train/"}
OF_M2 = {"7": "7_features", "b.jpg": "8_features"}
"""As in the Meshed-Memory Transformer's HDF5 file, by image_id."""


def saved(path, found, form="folder"):
    """Features in one of the forms that they may have."""
    if form == "npz":
        np.savez(path := path.with_suffix(".npz"), **found)
        return path
    if form in ("hdf5", "m2", "groups"):
        names = OF_M2 if form == "m2" else {}
        with pytest.importorskip("h5py").File(path := path.with_suffix(".h5"), "w") as file:
            for name, array in found.items():
                file[names.get(name, name) + "/features" * (form == "groups")] = array
                if form == "groups":
                    file[f"{name}/boxes"] = np.zeros((len(array), 4))
        return path
    path.mkdir()
    for name, array in found.items():
        if form == "subfolders":
            file = path / SUBFOLDERS.get(name, "test/") / f"{name}.npy"
            file.parent.mkdir(exist_ok=True)
            np.save(file, array)
        elif form == "folder":
            np.save(path / f"{name}.npy", array)
        elif form == "pt":
            torch.save(torch.from_numpy(array), path / f"{name}.pt")
        else:
            boxes = np.zeros((len(array), 4))
            np.savez_compressed(path / f"{name}.npz", feat=array, boxes=boxes)
    return path


def brought(path, folder, dim=D, regions=L):
    return opened(Precomputed(str(path), dim, regions), folder)


def opened(backbone, folder, examples=EXAMPLES):
    cache = backbone.open_inputs(examples, FeatureStore(folder), "train")
    assert isinstance(cache, FeatureCache)
    return cache


@pytest.mark.parametrize(
    "form", ["folder", "subfolders", "zipped", "npz", "hdf5", "groups", "pt", "m2"]
)
def test_every_form_gives_the_same_sets(form, tmp_path, capsys):
    found = arrays()
    path = saved(tmp_path / "features", found | {"another": np.zeros((2, D))}, form)
    backbone = Precomputed(str(path), D, L)
    backbone.prepare({"train": EXAMPLES})
    cache = brought(path, tmp_path)
    assert "features of train: 3/3 image, " in capsys.readouterr().err
    backbone.scale.fill_(cache.scale())
    context = backbone.context(cache.rows([2, 0, 1]))
    assert context.mask.sum(dim=1).tolist() == [1, 2, 4]
    squares = [float((found[name] ** 2).mean()) for name in NAMES]
    for row, name in enumerate((NAMES[2], NAMES[0], NAMES[1])):
        expected = torch.from_numpy(found[name]) / (sum(squares) / 3) ** 0.5
        torch.testing.assert_close(
            context.vectors[row, : len(expected)], expected, rtol=2e-3, atol=1e-3
        )
        assert not context.vectors[row, len(expected) :].any()
    brought(path, tmp_path)
    assert capsys.readouterr().err == ""  # they are there
    if form == "folder":
        np.save(path / "7.npy", np.ones((3, D)))
        after = brought(path, tmp_path)
        assert after.folder != cache.folder
        assert (after.rows([0])[0, :3] == 1).all()


@pytest.mark.parametrize("form", ["folder", "hdf5", "npz"])
def test_features_replaced_by_others_of_the_same_size_and_time_are_read_again(form, tmp_path):
    found = arrays()
    for number in (1, 2):
        path = saved(tmp_path / "features", {name: number * found[name] for name in found}, form)
        for file in [path] if path.is_file() else path.iterdir():
            os.utime(file, (1e9, 1e9))
        rows = brought(path, tmp_path).rows([0, 1, 2])
        assert float(rows.nan_to_num().sum()) == pytest.approx(
            number * sum(float(array.sum()) for array in found.values()), abs=0.02
        )
        path.unlink() if path.is_file() else shutil.rmtree(path)


def test_rows_spread_evenly_and_the_digest_of_all_others_is_that_of_before(tmp_path):
    assert evenly_spaced(10, 4) == [1, 3, 6, 8]
    for count in (1, 3, 7):
        for rows in range(1, 40):
            chosen = evenly_spaced(rows, count)
            assert chosen == (list(range(rows)) if rows <= count else sorted(set(chosen)))
            assert len(chosen) == min(rows, count)
            for k in (2, 3, 5):  # each frame k times
                assert (
                    rows < count
                    or [place // k for place in evenly_spaced(k * rows, count)] == chosen
                )
    path = saved(tmp_path / "features", arrays())
    with refuses(r"b\.jpg.*backbone\.sample=even or first takes regions from more"):
        brought(path, tmp_path, regions=3)
    backbone = Precomputed(str(path), D, 3, "even")
    cache = opened(backbone, tmp_path)
    assert np.array_equal(cache.rows([1])[0], arrays()["b.jpg"][[0, 2, 3]].astype(np.float16))
    assert np.array_equal(cache.rows([0])[0, :2], arrays()["7"].astype(np.float16))
    assert backbone.digest != Precomputed(str(path), D, 3).digest
    # or caches would be built again
    unchanged = "8f402cdc2d320e22c47e7a118e13f21ae6504618cda2fa70111b67084b18fbe1"
    assert Precomputed(str(path), D, 3).digest == unchanged


def test_the_first_rows_and_zeros_that_are_attended_to(tmp_path):
    path = saved(tmp_path / "features", arrays())
    backbone = Precomputed(str(path), D, 3, sample="first", padding="zeros")
    rows = opened(backbone, tmp_path).rows([0, 1])
    assert np.array_equal(rows[1], arrays()["b.jpg"][:3].astype(np.float16))
    assert np.array_equal(rows[0, :2], arrays()["7"].astype(np.float16))
    assert not rows[0, 2].any()
    assert backbone.context(rows).mask is None
    others = [{}, {"sample": "first"}, {"padding": "zeros"}, {"sample": "even", "padding": "zeros"}]
    digests = {Precomputed(str(path), D, 3, **settings).digest for settings in others}
    assert len(digests | {backbone.digest}) == 5


def wholes(path):
    """The vectors of whole images in files of their own, `[D]`."""
    found = {name: np.arange(D, dtype=np.float32) + k for k, name in enumerate(NAMES)}
    return saved(path, found), found


@pytest.mark.parametrize("form", ["zipped", "hdf5", "m2"])
def test_a_vector_of_the_whole_image_comes_with_those_of_its_regions(form, tmp_path):
    found = arrays()
    path, (folder, single) = saved(tmp_path / "att", found, form), wholes(tmp_path / "fc")
    backbone = Precomputed(str(path), D, L, whole=str(folder))
    backbone.prepare({"train": EXAMPLES})
    cache = opened(backbone, tmp_path)
    assert cache.layout.positions == L + 1 == backbone.positions
    context = backbone.context(cache.rows([2, 0, 1]))
    names = [NAMES[k] for k in (2, 0, 1)]
    torch.testing.assert_close(
        context.whole, torch.from_numpy(np.stack([single[n] for n in names]))
    )
    assert context.mask.sum(dim=1).tolist() == [1, 2, 4]
    assert torch.equal(context.mask, backbone.valid_mask(cache.rows([2, 0, 1])))
    for row, name in enumerate(names):
        expected = torch.from_numpy(found[name].astype(np.float16)).float()
        assert torch.equal(context.vectors[row, : len(expected)], expected)
    backbone.scale.fill_(2)
    assert torch.equal(backbone.context(cache.rows([2, 0, 1])).whole, 2 * context.whole)
    alone = opened(Precomputed(str(path), D, L), tmp_path)
    assert alone.folder != cache.folder
    assert backbone.digest != Precomputed(str(path), D, L).digest
    np.save(folder / "7.npy", np.ones(D))
    assert (opened(backbone, tmp_path).rows([0])[0, -1] == 1).all()  # they are read again


def test_a_missing_or_another_vector_of_the_whole_image_is_refused(tmp_path):
    path, (folder, _) = saved(tmp_path / "att", arrays()), wholes(tmp_path / "fc")
    backbone = Precomputed(str(path), D, L, whole=str(folder))
    np.save(folder / "c.npy", np.zeros((2, D)))
    with refuses(rf"features c in {folder}"):
        opened(backbone, tmp_path)
    (folder / "c.npy").unlink()
    with refuses(rf"backbone\.whole={folder} .*not of 1 of the 3: x/c\.jpg"):
        backbone.prepare({"train": EXAMPLES})
    with refuses(r"backbone\.whole=.*absent"):
        opened(Precomputed(str(path), D, L, whole=str(tmp_path / "absent")), tmp_path)


def test_vectors_of_whole_images_move_apart_from_those_of_regions():
    backbone = Precomputed("att", D, L, whole="fc")
    move_features([backbone], Path("there"), "whole")
    assert [str(path) for path in backbone.paths.values()] == ["att", "there"]
    with refuses(r"backbone\.whole"):
        move_features([Precomputed("att", D, L)], Path("there"), "whole")


def test_a_map_and_a_vector_are_read_as_rows(tmp_path):
    """As `att/ID.npz` of a grid and `fc/ID.npy` lie on people's disks."""
    grid = np.random.default_rng(0).normal(size=(2, 2, D)).astype(np.float32)
    path = saved(tmp_path / "features", {"7": grid, "b.jpg": grid[0, 0], "c": grid[0]}, "zipped")
    rows = brought(path, tmp_path).rows([0, 1, 2]).numpy()
    expected = grid.reshape(4, D).astype(np.float16)
    for row, length in zip(rows, (4, 1, 2), strict=True):
        assert np.array_equal(row[:length], expected[:length])


@pytest.mark.parametrize("ending", ["", "_features"])
@pytest.mark.parametrize("name", ["COCO_val2014_000000391895.jpg", "000000391895.jpg"])
def test_images_are_known_by_the_number_in_cocos_file_names(ending, name, tmp_path):
    path = saved(tmp_path / "features", {f"391895{ending}": np.ones((2, D))})
    example = Example(name, Path("val2014") / name, ())
    assert (opened(Precomputed(str(path), D, L), tmp_path, [example]).rows([0])[0, :2] == 1).all()
    with refuses(r"not of 1 of the 1"):
        brought_as = Example("x", Path("COCO_391895.jpg"), ())
        opened(Precomputed(str(path), D, L), tmp_path, [brought_as])


def test_stacked_features_have_their_names_beside_them(tmp_path):
    found = np.random.default_rng(0).normal(size=(3, 2, D)).astype(np.float16)
    np.save(tmp_path / "features.npy", found)
    (tmp_path / "features.txt").write_text("c\n7\nb.jpg\n")
    rows = brought(tmp_path / "features.npy", tmp_path).rows(range(3)).numpy()
    assert np.array_equal(rows[:, :2], found[[1, 2, 0]])
    assert np.isnan(rows[:, 2:]).all()
    (tmp_path / "features.txt").write_text("c\n7\n7\n")
    with refuses(r"features\.txt has 3 names, 2 different"):
        brought(tmp_path / "features.npy", tmp_path)


def test_images_without_features_are_listed_before_anything_is_read(tmp_path):
    path = saved(tmp_path / "features", {"7": np.zeros((1, 1))})
    wanted = (
        r"features of 1 images, but not of 2 of the 3: 8 \(b\.jpg\), x/c\.jpg \(c\.jpg\)\. "
        "They are .*; it has 7$"
    )
    with refuses(wanted):
        Precomputed(str(path), D, L).prepare({"train": EXAMPLES[:2], "val": EXAMPLES[2:]})
    with refuses(wanted):
        brought(path, tmp_path)


def test_features_that_moved_are_those_of_every_member_or_of_none():
    both = ConcatBackbone(Precomputed("here", D, L), Precomputed("here", D, L))
    move_features([both], Path("there"))
    assert [str(member.path) for member in both.members] == ["there", "there"]
    both.members[0].path = Path("elsewhere")
    with refuses("read from elsewhere, there"):
        move_features([both], Path("here"))


def test_other_arrays_damaged_files_and_objects_that_could_run_code_are_refused_by_name(tmp_path):
    path = saved(tmp_path / "features", arrays())
    file = path / "b.jpg.npy"
    whole = file.read_bytes()
    others = [np.zeros(shape) for shape in ((2, 6), (5, D), (0, D), (2, 3, D))]
    for wrong in (*others, *(np.full((2, D), value) for value in ("a", np.nan, 1e6))):
        np.save(file, wrong)
        with refuses(str(file)) as refused:
            brought(path, tmp_path)
        # which would change nothing of the others
        assert ("sample=even" in str(refused.value)) == (wrong.shape in ((5, D), (2, 3, D)))
    np.save(file, np.array([{}]), allow_pickle=True)
    for content in (file.read_bytes(), whole[:-9], b"", b"PK\3\4" + whole):
        file.write_bytes(content)
        with refuses(rf"cannot read the features b\.jpg in {file}: "):
            brought(path, tmp_path)
    for name in ("a.npz", "a.npy", "a.h5"):
        (tmp_path / name).write_bytes(b"nothing of the kind")
    for name in ("a.npz", "a.npy", "a.h5", "absent", "absent.npz", "a.txt"):
        with refuses(rf"backbone\.path={tmp_path / name}: "):
            brought(tmp_path / name, tmp_path)


@pytest.mark.parametrize(
    "way",
    [
        *("external link", "soft link to one", "behind a group", "in a group", "linked group"),
        *("virtual", "external storage"),
    ],
)
def test_hdf5_leads_into_no_other_file(way, tmp_path):
    h5py = pytest.importorskip("h5py")
    found = arrays()
    secret = saved(tmp_path / "secret", {"b.jpg": found["b.jpg"]}, "hdf5")
    raw = tmp_path / "raw"
    raw.write_bytes(found["b.jpg"].tobytes())
    path = saved(tmp_path / "features", {name: found[name] for name in ("7", "c")}, "hdf5")
    with h5py.File(path, "a") as file:
        if way == "external link":
            file["b.jpg"] = h5py.ExternalLink(secret.name, "/b.jpg")
        elif way == "soft link to one":
            file["group/away"] = h5py.ExternalLink(secret.name, "/")
            file["b.jpg"] = h5py.SoftLink("/group/away/b.jpg")
        elif way == "behind a group":
            file["b.jpg"] = h5py.ExternalLink(secret.name, "/")
        elif way == "in a group":
            file["b.jpg/features"] = h5py.ExternalLink(secret.name, "/b.jpg")
        elif way == "linked group":
            file["group/features"] = found["b.jpg"]
            file["b.jpg"] = h5py.SoftLink("/group")
        elif way == "virtual":
            layout = h5py.VirtualLayout((4, D), "f4")
            layout[:] = h5py.VirtualSource(secret, "b.jpg", (4, D))
            file.create_virtual_dataset("b.jpg", layout)
        else:
            file.create_dataset("b.jpg", (4, D), "f4", external=[(str(raw), 0, raw.stat().st_size)])
    if "group" not in way:
        with h5py.File(path) as file:
            assert np.array_equal(file["b.jpg"], found["b.jpg"])  # what HDF5 itself would give
    with refuses(rf"cannot read the features b\.jpg in {path}: "):
        brought(path, tmp_path)


def test_several_arrays_must_say_which(tmp_path):
    path = saved(tmp_path / "features", {name: a for name, a in arrays().items() if name != "7"})
    np.savez(path / "7.npz", first=np.zeros((2, D)), second=np.zeros((2, D)))
    with refuses("first, second, none of which is called features"):
        brought(path, tmp_path)


def zipped(path, members):
    """An archive whose members say that they have 1.2 GB."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    content = bytearray(path.read_bytes())
    for entry in re.finditer(b"PK\1\2", content):
        content[entry.start() + 24 : entry.start() + 28] = struct.pack("<I", 12 * 10**8)
    path.write_bytes(content)


def filtered(path, data, *filters, chunk=(L, D)):
    """An HDF5 file whose first chunk is `data` as it lies there."""
    h5py = pytest.importorskip("h5py")
    made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    made.set_chunk(chunk)
    for code in filters:
        made.set_filter(code, 0, (9,))
    with h5py.File(path, "w") as file:
        space = h5py.h5s.create_simple((L, D), (h5py.h5s.UNLIMITED,) * 2)
        array = h5py.h5d.create(file.id, b"7", h5py.h5t.NATIVE_FLOAT, space, made)
        if data:
            array.write_direct_chunk((0, 0), data)


def filled(path):
    with pytest.importorskip("h5py").File(path, "w") as file:
        file.create_dataset("7", (1, 3 * 10**8), "f4", fillvalue=1)


def expanded(path):
    torch.save(torch.zeros(1).half().expand(1, 3 * 10**8), path)


def sparse(path):
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": "<f2", "fortran_order": False, "shape": (1, 6 * 10**8)}
        )
        file.truncate(12 * 10**8)


BOMBS = {
    "folder/7.npz": lambda path: zipped(path, {"features.npy": b""}),
    "folder/7.pt": expanded,
    "folder/7.npy": sparse,
    "7.npz": lambda path: zipped(path, {"7.npy": b""}),
    "fill.h5": filled,
    "chunk.h5": lambda path: filtered(path, b"", 1, chunk=(10**4, 3 * 10**4)),
    "inflated.h5": lambda path: filtered(path, bytes(10**6), 1),
    "twice.h5": lambda path: filtered(path, b"", 1, 1),
    "both.h5": lambda path: filtered(path, b"", 32000, 1),
    "lzf.h5": lambda path: filtered(path, bytes(10**6), 32000),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_no_array_is_unpacked_beyond_a_gigabyte(bomb, tmp_path):
    path = tmp_path / bomb
    path.parent.mkdir(exist_ok=True)
    BOMBS[bomb](path)
    with little_memory(), refuses(r"may have 1,\d+,|at most 1,000,000,000|compressed once"):
        opened(Precomputed(str(path.parent if "/" in bomb else path), D, L), tmp_path, EXAMPLES[:1])


def test_what_pytorch_unpacks_of_a_zip_is_bounded(tmp_path):
    path = saved(tmp_path / "features", arrays(), "pt") / "7.pt"
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    again = brought(path.parent, tmp_path).rows([0])[0]  # compressed by another program
    assert np.array_equal(again[:2], arrays()["7"].astype(np.float16))
    zipped(path, members)
    with little_memory(), refuses(r"may have \d,\d+,000,000"):
        brought(path.parent, tmp_path)


@pytest.mark.parametrize("compression", ["gzip", "lzf", None])
@pytest.mark.parametrize("options", [{}, {"shuffle": True, "fletcher32": True}])
def test_compressed_features_are_read(compression, options, tmp_path):
    path = tmp_path / "features.h5"
    with pytest.importorskip("h5py").File(path, "w") as file:
        for name, array in arrays().items():
            file.create_dataset(name, data=array, compression=compression, **options)
    rows = brought(path, tmp_path).rows([1])[0]
    assert np.array_equal(rows, arrays()["b.jpg"].astype(np.float16))


def test_a_file_of_many_gigabytes_is_read_image_by_image(tmp_path):
    """Five of them, of which the disk has none."""
    h5py = pytest.importorskip("h5py")
    made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    made.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    made.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    path, wide = tmp_path / "features.h5", 2048
    with h5py.File(path, "w") as file:
        space = h5py.h5s.create_simple((100, wide))
        for number in range(6200):
            name = str(number).encode()
            h5py.h5d.create(file.id, name, h5py.h5t.NATIVE_FLOAT, space, made)
        file["7"][3] = 1
    assert path.stat().st_size > 5 * 10**9
    assert path.stat().st_blocks * 512 < 10**8
    images = [Example(number, Path(f"{number}.jpg"), ()) for number in (7, 6199)]
    backbone = Precomputed(str(path), wide, 100)
    backbone.prepare({"train": images})
    with little_memory():
        cache = backbone.open_inputs(images, FeatureStore(tmp_path), "train")
    assert cache.rows([0, 1]).sum(dim=(1, 2)).tolist() == [wide, 0]


@pytest.mark.parametrize("form", ["folder", "npz"])
def test_no_two_images_share_their_features(form, tmp_path):
    path = saved(tmp_path / "features", {"0": np.zeros((1, D)), "1": np.ones((1, D))}, form)
    images = [Example(name, Path(name), ()) for name in ("a/0.jpg", "1.jpg", "b/0.jpg")]
    backbone = Precomputed(str(path), D, L)
    backbone.prepare({"train": images[:2]})
    with refuses(r"features 0 for two images, a/0\.jpg \(0\.jpg\) and b/0\.jpg"):
        backbone.prepare({"train": images[:1], "test": images[1:]})
    with refuses("features 0 for two"):
        opened(backbone, tmp_path, images)


def test_no_image_has_features_in_two_files(tmp_path):
    path = saved(tmp_path / "features", arrays())
    np.savez(path / "7.npz", features=arrays()["7"])
    with refuses(r"7\.npy and .*7\.npz"):
        brought(path, tmp_path)


def test_letters_of_names_may_be_composed_otherwise(tmp_path):
    apart, whole = (normalize(form, "bébé") for form in ("NFD", "NFC"))
    half = whole[:2] + apart[3:]
    array = arrays()["7"]
    for there, asked in ((apart, whole), (whole, apart)):
        folder = tmp_path / ascii(there)
        path = saved(folder, {there: array})
        cache = opened(Precomputed(str(path), D, L), folder, [Example(1, Path(f"{asked}.jpg"), ())])
        assert np.array_equal(cache.rows([0])[0, :2], array.astype(np.float16))
    np.save(path / f"{apart}.npy", array)
    image = Example(1, Path(f"{half}.jpg"), ())
    with refuses(r"is 'be\\u0301be\\u0301' or 'b\\xe9b\\xe9'"):
        opened(Precomputed(str(path), D, L), tmp_path, [image])


def test_features_under_an_images_name_come_before_those_under_a_similar_one(tmp_path):
    """Ids that count images are no names of others' files."""
    path = tmp_path / "features.npz"
    np.savez(path, **{"1.jpg": np.zeros((1, D)), "2.jpg": np.ones((1, D))})
    backbone = Precomputed(str(path), D, L)
    rows = opened(backbone, tmp_path, [Example(1, Path("2.jpg"), ())]).rows([0])
    assert rows[0, 0].tolist() == [1] * D


def test_features_that_are_no_numbers_or_pickled_are_told_apart(tmp_path):
    """With what to do: neither is a matter of the scale."""
    for value, told in ((np.nan, "NaN"), (-np.inf, "infinite"), (1e6, "65,504")):
        found = arrays()
        found["b.jpg"][1, 2] = value
        path = saved(tmp_path / f"{value}", found)
        with refuses(rf"features b\.jpg in .*{told}"):
            brought(path, tmp_path)
    path = saved(tmp_path / "objects", arrays())
    np.save(path / "7.npy", np.array({"features": found["7"]}, dtype=object), allow_pickle=True)
    (tmp_path / "all.pkl").write_bytes(pickle.dumps(found))
    for pickled in (path, tmp_path / "all.pkl"):
        with refuses("pickles .*savez"):
            brought(pickled, tmp_path)
