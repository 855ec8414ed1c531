"""Files that are damaged or come from strangers: loaded right, or refused with a sentence of ours."""

import copy
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf
from PIL import Image
from test_conf import composed

import captioning
from captioning.config.registry import build
from captioning.data.vocabulary import Vocabulary
from captioning.errors import CaptioningError
from captioning.runs.checkpoint import digest, load, read, sealed

WORDS = ["a", "red", "square"]
SMALL = ("model.d_feat=8", "model.heads=2", "model.d_hidden=8")
CONFIG: dict[str, Any] = {
    "backbone": {"_target_": "captioning.backbones.scratch.SmallCNN", "dim": 4, "size": 16, "grid": 2},
    "model": OmegaConf.to_container(composed("model=spatial_transformer", *SMALL).model, resolve=True),
    "decoding": {"_target_": "captioning.decoding.beam_search", "_partial_": True, "width": 2, "max_length": 4},
    "data": {"reader": {"_target_": "captioning.data.shapes.ShapesReader", "root": "x"}, "eval_batch_size": 2},
    "seed": 1,
}
IMAGE = Image.new("RGB", (16, 16), "red")


def content(config: dict[str, Any] = CONFIG) -> dict[str, Any]:
    """A checkpoint of untrained networks."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        backbone = build("backbone", config["backbone"])
        sizes = {"vocab_size": len(Vocabulary(WORDS)), "d_context": backbone.dim, "grid": backbone.grid}
        model = build("model", config["model"], **sizes)
    state = {f"backbone.{name}": tensor for name, tensor in backbone.state_dict().items()}
    state |= {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    return {"captioning": {"config": copy.deepcopy(config), "words": WORDS}, "state_dict": state, "global_step": 3}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("checkpoint") / "best.ckpt"
    torch.save(sealed(content()), path)
    return path


def test_a_whole_one_is_read(whole: Path) -> None:
    saved = load(whole)
    assert (saved.config, saved.words) == (CONFIG, WORDS)
    assert torch.equal(saved.state["model.embed.weight"], content()["state_dict"]["model.embed.weight"])
    assert captioning.load(whole, "cpu").caption(IMAGE)[0].score < 0


@pytest.mark.parametrize("quantiles", [None, "low", [-1.0], [1] * 101, [0.0] * 100 + [-1.0], [float("nan")] * 101])
def test_quantiles_that_are_none_are_refused(quantiles: Any, tmp_path: Path) -> None:
    given = content()
    given["captioning"]["quantiles"] = quantiles
    torch.save(sealed(given), tmp_path / "best.ckpt")
    with pytest.raises(CaptioningError, match="quantiles"):
        load(tmp_path / "best.ckpt")


def test_every_value_is_in_the_digest() -> None:
    one = {"a": [torch.tensor([1.0, 2.0]), 3, "x"], "b": {"c": None}}
    found = {digest(one)}
    for change in (
        lambda d: d["a"][0].__setitem__(1, 2.0000002),
        lambda d: d["a"].__setitem__(1, 3.0),
        lambda d: d["a"].__setitem__(2, "y"),
        lambda d: d["b"].__setitem__("c", False),
        lambda d: d["b"].__setitem__("d", None),
        lambda d: d["a"].append(4),
        lambda d: d["a"].__setitem__(0, torch.tensor([[1.0], [2.0]])),
    ):
        other = copy.deepcopy(one)
        change(other)
        found.add(digest(other))
    assert len(found) == 8
    assert digest({"x": torch.arange(6).view(2, 3).T}) == digest({"x": torch.arange(6).view(2, 3).T.contiguous()})


@given(st.data())
def test_a_flipped_bit_anywhere_is_noticed_or_means_nothing(whole: Path, data: st.DataObject) -> None:
    """Also in the directory of the archive, which no checksum of its own covers."""
    original = whole.read_bytes()
    directory = original.index(b"PK\x01\x02")
    place = data.draw(st.integers(0, len(original) - 1) | st.integers(directory, len(original) - 1), "byte")
    damaged = bytearray(original)
    damaged[place] ^= 1 << data.draw(st.integers(0, 7), "bit")
    path = whole.with_name("flipped.ckpt")
    path.write_bytes(damaged)
    try:
        found = read(path)
    except CaptioningError:
        return
    assert digest(found) == digest(content())


@given(cut=st.integers(0, 4000), junk=st.binary(max_size=40))
def test_files_cut_or_continued(whole: Path, cut: int, junk: bytes) -> None:
    original = whole.read_bytes()
    path = whole.with_name("cut.ckpt")
    path.write_bytes(original[: max(0, len(original) - cut)] + junk)
    try:
        found = read(path)
    except CaptioningError:
        return
    assert digest(found) == digest(content())


NASTY = st.sampled_from(
    [
        *(None, True, -1, 0, 1, 10**6, 10**12, float("nan"), float("inf"), -0.5, "", "x", "${oc.env:HOME}", "${seed}"),
        *([], {}, [1], ["a"], {"a": 1}, {"_target_": "os.system", "command": "true"}, torch.zeros(2), (1, 2), 10**400),
        *("captioning.decoding.greedy", "captioning.models.Recurrent", "\ud800", "x" * 1000, b"bytes"),
        {"_target_": "captioning.decoding.Filters", "forbidden": 5},
        torch.zeros(1).expand(10**6, 10**6),
        torch.full((2,), float("nan")),
    ]
)


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    if isinstance(node, dict | list):
        for key, value in node.items() if isinstance(node, dict) else enumerate(node):
            yield from places(value, (*path, key))


PLACES = sorted(places(content()), key=str)


@given(st.lists(st.tuples(st.sampled_from(PLACES), NASTY | st.just("delete")), min_size=1, max_size=3))
def test_any_value_inside(whole: Path, changes: list[tuple[tuple[Any, ...], Any]]) -> None:
    """What a stranger may put there who knows of the digest: it captions, or it is refused."""
    changed = content()
    for (*parents, last), value in changes:
        node: Any = changed
        for key in parents:
            node = node[key] if isinstance(node, dict) and key in node else {}
        if isinstance(node, dict) and last in node:
            if isinstance(value, str) and value == "delete":
                del node[last]
            else:
                node[last] = value
    path = whole.with_name("changed.ckpt")
    try:
        torch.save(sealed(changed), path)
    except ValueError:  # larger than its storage: written by somebody who does not mind
        torch.save({**changed, "digest": "0" * 64}, path)
    with suppress(CaptioningError):
        captioning.load(path, "cpu").caption(IMAGE)


def refused(path: Path, saved: dict[str, Any]) -> str:
    torch.save(sealed(saved), path)
    with pytest.raises(CaptioningError) as raised:
        captioning.load(path, "cpu")
    return str(raised.value)


def test_sizes_are_bounded_by_the_weights_that_are_there(tmp_path: Path) -> None:
    for part, name, value in (("model", "d_feat", 65536), ("model", "d_hidden", 65536), ("backbone", "dim", 65536)):
        saved = content()
        saved["captioning"]["config"][part] |= {name: value}
        assert "checkpoint=" in refused(tmp_path / "large.ckpt", saved)


def test_weights_that_are_no_numbers(tmp_path: Path) -> None:
    saved = content()
    saved["state_dict"]["model.output.bias"][0] = float("nan")
    assert "model.output.bias are not all numbers" in refused(tmp_path / "nan.ckpt", saved)


def test_no_interpolation_is_resolved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_MINE", "hunter2")
    saved = content()
    saved["captioning"]["config"]["backbone"]["_target_"] = "${oc.env:SECRET_OF_MINE}"
    message = refused(tmp_path / "curious.ckpt", saved)
    assert "hunter2" not in message
    assert "${oc.env:SECRET_OF_MINE}" in message


def test_packed_archives_are_refused(whole: Path, tmp_path: Path) -> None:
    """A few bytes of which could be terabytes."""
    with (
        zipfile.ZipFile(whole) as source,
        zipfile.ZipFile(tmp_path / "packed.ckpt", "w", zipfile.ZIP_DEFLATED) as target,
    ):
        for name in source.namelist():
            target.writestr(name, source.read(name))
    with pytest.raises(CaptioningError, match="it is compressed"):
        read(tmp_path / "packed.ckpt")


def test_a_few_values_in_very_many_places(tmp_path: Path) -> None:
    lists: Any = ["x" * 1000]
    for _ in range(40):
        lists = [lists, lists]
    torch.save({**content(), "more": lists, "digest": "0" * 64}, tmp_path / "laughs.ckpt")
    with pytest.raises(CaptioningError, match="describes far more than it holds"):
        read(tmp_path / "laughs.ckpt")
