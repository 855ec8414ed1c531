"""What `attention.npz` holds is what was attended to, within a step of 8 bits; a damaged file is
refused.
"""

import io
import json
import pickle

import numpy as np
import pytest
from refusals import refuses

from captioning.runs.evaluation import attention_file
from captioning.runs.evaluation.attention_file import AttentionRecord, read, write

NAMES = ["mean", "inter 1 1", "inter 1 2"]


def record(image_id, *words, seed=0):
    peaked = np.random.default_rng(seed).dirichlet(np.full(35, 0.1), (3, len(words)))
    maps = peaked.reshape(3, -1, 5, 7).astype(np.float32)
    return AttentionRecord(image_id, words, dict(zip(NAMES, maps, strict=True)))


def test_within_half_a_step(tmp_path):
    broken = np.zeros((3, 1, 2), np.float32)
    broken[1:] = np.nan, 1e-44  # a weight whose inverse is no number
    captions = [record(7, "a", 'disc "<b>"\u2028'), record("ü.jpg", "one", seed=1), record("empty")]
    odd = AttentionRecord(1, ("a", "b", "c"), {"mean": broken}, ("frame", "ü"))
    write(tmp_path / "attention.npz", [*captions, odd])
    *same, other = read(tmp_path / "attention.npz")
    for caption, again in zip(captions, same, strict=True):
        assert (again.image_id, again.words, again.labels) == (caption.image_id, caption.words, ())
        assert list(again.maps) == NAMES
        for name, maps in caption.maps.items():
            peaks = maps.max(axis=(1, 2), keepdims=True)
            assert again.maps[name].dtype == np.float32
            assert (abs(again.maps[name] - maps) <= peaks / 255 * 0.5001).all()
    assert other.labels == ("frame", "ü")
    np.testing.assert_allclose(other.maps["mean"], np.zeros((3, 1, 2)), atol=1e-40)
    with np.load(tmp_path / "attention.npz", allow_pickle=False) as file:
        assert json.loads(bytes(file["captions"]))[0]["maps"] == NAMES
        assert (file["maps_0"].dtype, file["maps_0"].shape) == (np.uint8, (3, 2, 5, 7))


class Harmful:
    def __reduce__(self):
        return exec, ("raise SystemExit('it ran')",)


def file(image_id=1, name="mean", **changes):
    entries = json.dumps([{"image_id": image_id, "words": ["a"], "maps": [name]}])
    arrays = {"maps_0": np.zeros((1, 1, 2, 2), np.uint8), "scale_0": np.ones((1, 1), np.float32)}
    arrays |= {"captions": np.frombuffer(entries.encode(), np.uint8), **changes}
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    return content.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        file(image_id=[1]),
        file(maps_0=np.zeros((1, 1, 2, 2), np.float32)),
        file(maps_0=np.zeros((1, 2, 2, 2), np.uint8)),
        file(maps_0=np.zeros((1, 1, 0, 2), np.uint8)),
        file(name="attended"),
        file(scale_0=np.full((1, 1), np.nan, np.float32)),
        file(captions=np.array([Harmful()], dtype=object)),
        file()[:-30],
        file()[:120] + bytes([file()[120] ^ 1]) + file()[121:],
        pickle.dumps(Harmful()),
        file(more=np.zeros(200, np.uint8)),  # larger than allowed
    ],
    ids=lambda content: str(len(content)),
)
def test_damage(content, tmp_path, monkeypatch):
    monkeypatch.setattr(attention_file, "LARGEST_MAPS", 700)
    path = tmp_path / "attention.npz"
    path.write_bytes(file())
    assert len(read(path)) == 1
    path.write_bytes(content)
    with refuses(r"attention\.npz cannot be read or is damaged"):
        read(path)
