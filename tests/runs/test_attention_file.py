"""What `attention.npz` holds is what was attended to, within a step of 8 bits; a damaged file is
refused.
"""

import io
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from captioning.errors import CaptioningError
from captioning.runs import attention_file
from captioning.runs.attention_file import AttentionRecord, read, write

M, T, H, W = 3, 2, 5, 7
NAMES = ["mean", "inter 1 1", "inter 1 2"]


def kept(
    image_id: int | str, words: tuple[str, ...] = ("a", 'disc "<b>"\u2028'), seed: int = 0
) -> AttentionRecord:
    peaked = (
        np.random.default_rng(seed)
        .dirichlet(np.full(H * W, 0.1), (M, len(words)))
        .astype(np.float32)
    )
    return AttentionRecord(
        image_id, words, dict(zip(NAMES, peaked.reshape(M, -1, H, W), strict=True))
    )


def test_within_half_a_step(tmp_path: Path) -> None:
    broken = np.zeros((3, 1, 2), np.float32)
    broken[1:] = np.nan, 1e-44  # a weight whose inverse is no number
    captions = [kept(7), kept("folder/ü.jpg", ("one",), seed=1), kept("empty", ())]
    write(
        tmp_path / "attention.npz",
        [*captions, AttentionRecord(1, ("a", "b", "c"), {"mean": broken}, ("frame", "ü"))],
    )
    *found, other = read(tmp_path / "attention.npz")
    assert [(c.image_id, c.words, list(c.maps)) for c in found] == [
        (c.image_id, c.words, NAMES) for c in captions
    ]
    for name, caption, again in (
        (name, *both) for both in zip(captions, found, strict=True) for name in NAMES
    ):
        maps, peaks = caption.maps[name], caption.maps[name].max(axis=(1, 2), keepdims=True)
        assert again.maps[name].dtype == np.float32
        assert (abs(again.maps[name] - maps) <= peaks / 255 * 0.5001).all()
        np.testing.assert_allclose(
            again.maps[name].max(axis=(1, 2), keepdims=True), peaks, rtol=1e-6
        )
    assert (found[0].labels, other.labels) == ((), ("frame", "ü"))
    np.testing.assert_allclose(other.maps["mean"], np.zeros((3, 1, 2)), atol=1e-40)
    with np.load(tmp_path / "attention.npz", allow_pickle=False) as file:
        assert json.loads(bytes(file["captions"]))[0]["maps"] == NAMES
        assert (file["maps_0"].dtype, file["maps_0"].shape) == (np.uint8, (M, T, H, W))
        assert (file["scale_0"].dtype, file["scale_0"].shape) == (np.float32, (M, T))


class Harmful:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("raise SystemExit('it ran')",)


def file(words: Any = ("a",), image_id: Any = 1, names: Any = ("mean",), **changes: Any) -> bytes:
    entries = json.dumps([{"image_id": image_id, "words": list(words), "maps": names}])
    arrays = {"maps_0": np.zeros((1, 1, 2, 2), np.uint8), "scale_0": np.ones((1, 1), np.float32)}
    arrays |= {"captions": np.frombuffer(entries.encode(), np.uint8), **changes}
    content = io.BytesIO()
    np.savez_compressed(
        content, **{name: array for name, array in arrays.items() if array is not None}
    )
    return content.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        file(words=["a", "b"]),
        file(image_id=[1]),
        file(maps_0=np.zeros((1, 1, 2, 2), np.float32)),
        file(maps_0=np.zeros((1, 1, 0, 2), np.uint8)),
        file(names=("attended",)),
        file(scale_0=np.full((1, 1), np.nan, np.float32)),
        file(captions=np.array([Harmful()], dtype=object)),
        file(scale_0=None),
        file()[:-30],
        file()[:120] + bytes([file()[120] ^ 1]) + file()[121:],
        pickle.dumps(Harmful()),
        file(more=np.zeros(200, np.uint8)),  # larger than allowed
        None,
    ],
    ids=lambda content: str(content and len(content)),
)
def test_damage(content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_file, "LARGEST", 700)
    path = tmp_path / "attention.npz"
    path.write_bytes(file())
    assert len(read(path)) == 1
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CaptioningError, match=r"attention\.npz cannot be read or is damaged"):
        read(path)
