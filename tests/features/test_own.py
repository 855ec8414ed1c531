"""Features of the user's own, in every form of file."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from refusals import refuses

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


OF_M2 = {"7": "7_features", "b.jpg": "8_features"}
"""As in the Meshed-Memory Transformer's HDF5 file, by image_id."""


def saved(path, found, form="folder"):
    """Features in one of the forms that they may have."""
    if form == "npz":
        np.savez(path := path.with_suffix(".npz"), **found)
        return path
    if form in ("hdf5", "m2"):
        names = OF_M2 if form == "m2" else {}
        with pytest.importorskip("h5py").File(path := path.with_suffix(".h5"), "w") as file:
            file.update({names.get(name, name): array for name, array in found.items()})
        return path
    path.mkdir()
    for name, array in found.items():
        if form == "folder":
            np.save(path / f"{name}.npy", array)
        elif form == "pt":
            torch.save(torch.from_numpy(array), path / f"{name}.pt")
        else:
            boxes = np.zeros((len(array), 4))
            np.savez_compressed(path / f"{name}.npz", feat=array, boxes=boxes)
    return path


def brought(path, folder, dim=D, regions=L):
    return opened(Precomputed(str(path), dim, regions), folder)


def opened(backbone, folder):
    cache = backbone.open_inputs(EXAMPLES, FeatureStore(folder), "train")
    assert isinstance(cache, FeatureCache)
    return cache


@pytest.mark.parametrize("form", ["folder", "zipped", "npz", "hdf5", "pt", "m2"])
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
    with refuses(r"b\.jpg.*backbone\.sample=even takes regions from more"):
        brought(path, tmp_path, regions=3)
    backbone = Precomputed(str(path), D, 3, "even")
    cache = opened(backbone, tmp_path)
    assert np.array_equal(cache.rows([1])[0], arrays()["b.jpg"][[0, 2, 3]].astype(np.float16))
    assert np.array_equal(cache.rows([0])[0, :2], arrays()["7"].astype(np.float16))
    assert backbone.digest != Precomputed(str(path), D, 3).digest
    # or caches would be built again
    unchanged = "8f402cdc2d320e22c47e7a118e13f21ae6504618cda2fa70111b67084b18fbe1"
    assert Precomputed(str(path), D, 3).digest == unchanged


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
    others = [np.zeros(shape) for shape in ((2, 6), (5, D), (0, D), (2, 2, D))]
    for wrong in (*others, *(np.full((2, D), value) for value in ("a", np.nan, 1e6))):
        np.save(file, wrong)
        with refuses(str(file)):
            brought(path, tmp_path)
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
    "way", ["external link", "soft link to one", "behind a group", "virtual", "external storage"]
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
        elif way == "virtual":
            layout = h5py.VirtualLayout((4, D), "f4")
            layout[:] = h5py.VirtualSource(secret, "b.jpg", (4, D))
            file.create_virtual_dataset("b.jpg", layout)
        else:
            file.create_dataset("b.jpg", (4, D), "f4", external=[(str(raw), 0, raw.stat().st_size)])
    if way != "behind a group":
        with h5py.File(path) as file:
            assert np.array_equal(file["b.jpg"], found["b.jpg"])  # what HDF5 itself would give
    with refuses(rf"cannot read the features b\.jpg in {path}: "):
        brought(path, tmp_path)


def test_several_arrays_must_say_which(tmp_path):
    path = saved(tmp_path / "features", {name: a for name, a in arrays().items() if name != "7"})
    np.savez(path / "7.npz", first=np.zeros((2, D)), second=np.zeros((2, D)))
    with refuses("first, second, none of which is called features"):
        brought(path, tmp_path)
