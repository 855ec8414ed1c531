"""What `attention.npz` holds is what was attended to, within a step of 8 bits; a damaged file is refused."""

import io
import json
import pickle
from pathlib import Path

import numpy as np
import pytest

from captioning.errors import CaptioningError
from captioning.runs import attention_file
from captioning.runs.attention_file import KeptCaption, read, write

M, T, H, W = 3, 2, 5, 7


def kept(image_id: int | str, words: tuple[str, ...] = ("a", 'disc "<b>"\u2028'), seed: int = 0) -> KeptCaption:
    peaked = np.random.default_rng(seed).dirichlet(np.full(H * W, 0.1), (M, len(words))).astype(np.float32)
    return KeptCaption(
        image_id, words, dict(zip(("mean", "inter 1 1", "inter 1 2"), peaked.reshape(M, -1, H, W), strict=True))
    )


def test_within_half_a_step(tmp_path: Path) -> None:
    captions = [kept(7), kept("folder/ü.jpg", ("one",), seed=1), kept("empty", ())]
    write(tmp_path / "attention.npz", captions)
    found = read(tmp_path / "attention.npz")
    assert [(c.image_id, c.words) for c in found] == [(c.image_id, c.words) for c in captions]
    assert all(list(c.maps) == list(captions[0].maps) for c in found)
    for caption, again in zip(captions, found, strict=True):
        for name, maps in caption.maps.items():
            assert again.maps[name].dtype == np.float32
            assert again.maps[name].shape == maps.shape
            peaks = maps.max(axis=(1, 2), keepdims=True)
            assert (abs(again.maps[name] - maps) <= peaks / 255 * 0.5001).all()
            np.testing.assert_allclose(again.maps[name].max(axis=(1, 2), keepdims=True), peaks, rtol=1e-6)


def test_maps_of_nothing_and_of_no_numbers(tmp_path: Path) -> None:
    broken = np.zeros((3, 1, 2), np.float32)
    broken[1] = np.nan
    broken[2] = 1e-44  # a weight whose inverse is no number
    write(tmp_path / "attention.npz", [KeptCaption(1, ("a", "b", "c"), {"mean": broken})])
    np.testing.assert_allclose(read(tmp_path / "attention.npz")[0].maps["mean"], np.zeros((3, 1, 2)), atol=1e-40)


def test_layout(tmp_path: Path) -> None:
    write(tmp_path / "attention.npz", [kept(7)])
    with np.load(tmp_path / "attention.npz", allow_pickle=False) as file:
        assert set(file) == {"captions", "maps_0", "scale_0"}
        assert json.loads(bytes(file["captions"]))[0]["maps"] == ["mean", "inter 1 1", "inter 1 2"]
        assert (file["maps_0"].dtype, file["maps_0"].shape) == (np.uint8, (M, T, H, W))
        assert (file["scale_0"].dtype, file["scale_0"].shape) == (np.float32, (M, T))


class Harmful:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("raise SystemExit('it ran')",)


def damaged(case: str) -> bytes:
    file = io.BytesIO()
    entries = [{"image_id": 1, "words": ["a"], "maps": ["mean"]}]
    maps, scale = np.zeros((1, 1, 2, 2), np.uint8), np.ones((1, 1), np.float32)
    if case == "more words than maps":
        entries[0]["words"] = ["a", "b"]
    if case == "an id that is a list":
        entries[0]["image_id"] = [1]
    if case == "floats":
        maps = maps.astype(np.float32)
    if case == "no number":
        scale[:] = np.nan
    captions = np.frombuffer(json.dumps(entries).encode(), np.uint8)
    if case == "pickle":
        captions = np.array([Harmful()], dtype=object)
    arrays = {"captions": captions, "maps_0": maps, "scale_0": scale}
    if case == "a part is missing":
        del arrays["scale_0"]
    np.savez_compressed(file, **arrays)
    content = file.getvalue()
    if case == "cut":
        return content[:-30]
    if case == "a bit has changed":
        return content[:120] + bytes([content[120] ^ 1]) + content[121:]
    return pickle.dumps(Harmful()) if case == "a pickle alone" else content


CASES = [
    *("more words than maps", "an id that is a list", "floats", "no number", "pickle"),
    *("a part is missing", "cut", "a bit has changed", "a pickle alone"),
]


@pytest.mark.parametrize("case", CASES)
def test_damage(case: str, tmp_path: Path) -> None:
    path = tmp_path / "attention.npz"
    path.write_bytes(damaged(case))
    with pytest.raises(CaptioningError, match=r"attention\.npz cannot be read or is damaged"):
        read(path)


def test_too_large_to_be_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "attention.npz"
    path.write_bytes(damaged("not at all"))
    assert len(read(path)) == 1
    monkeypatch.setattr(attention_file, "LARGEST", 300)
    with pytest.raises(CaptioningError, match="unpacked it has"):
        read(path)


def test_not_there(tmp_path: Path) -> None:
    with pytest.raises(CaptioningError, match="cannot be read"):
        read(tmp_path / "attention.npz")
