"""Checkpoints of both kinds, damaged or from strangers: loaded right, or refused with a sentence of ours."""

import copy
import json
import resource
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf
from PIL import Image
from safetensors import safe_open
from safetensors.torch import save_file
from support import composed

import captioning
from captioning.config.registry import build
from captioning.data.vocabulary import Vocabulary
from captioning.errors import CaptioningError
from captioning.runs.checkpoint import (
    KEY,
    MAX_HEADER,
    digest,
    keep_quantiles,
    load,
    read,
    with_digest,
    write_safetensors,
)
from captioning.runs.checkpoint_files import CheckpointFiles

Change = Callable[[dict[str, Any]], object]
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
FORMS = ["torch", "safetensors"]


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


CONTENT = content()


def written(folder: Path, form: str, saved: dict[str, Any]) -> Path:
    """A file with the right digest, as somebody writes who knows of it."""
    if form == "torch":
        torch.save(with_digest(saved), folder / "best.ckpt")
        return folder / "best.ckpt"
    inside, state = saved["captioning"], saved["state_dict"]
    about = {**inside, "tensors": list(state), "digest": digest({"captioning": inside, "state_dict": state})}
    tensors = {name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in state.items()}
    save_file(tensors, folder / "best.st", {KEY: json.dumps(about)})
    return folder / "best.st"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A file of each form."""
    folder = tmp_path_factory.mktemp("checkpoint")
    write_safetensors(folder / "best.safetensors", CONFIG, WORDS, CONTENT["state_dict"])
    return {"torch": written(folder, "torch", CONTENT), "safetensors": folder / "best.safetensors"}


@pytest.mark.parametrize("form", FORMS)
def test_it_holds_the_same_under_any_name(whole: dict[str, Path], tmp_path: Path, form: str) -> None:
    other = tmp_path / "captioner.bin"
    other.write_bytes(whole[form].read_bytes())
    for path in (whole[form], other):
        saved = load(path)
        assert (saved.config, saved.words, list(saved.state)) == (CONFIG, WORDS, list(CONTENT["state_dict"]))
        assert digest(saved.state) == digest(CONTENT["state_dict"])
        assert captioning.load(path, "cpu").caption(IMAGE)[0].score < 0
    assert other.read_bytes() == whole[form].read_bytes()


def test_score_and_quantiles_are_kept(whole: dict[str, Path], tmp_path: Path) -> None:
    path, quantiles = tmp_path / "known.safetensors", [-1 / 3 + i / 7e5 for i in range(101)]
    write_safetensors(path, CONFIG, WORDS, CONTENT["state_dict"], True, "test/CIDEr 9.5", quantiles)
    known = load(path)
    assert (known.score, known.quantiles) == ("test/CIDEr 9.5", quantiles)
    assert any(tensor.dtype == torch.half for tensor in known.state.values())
    for file in (path, written(tmp_path, "torch", CONTENT)):
        before = load(file)
        keep_quantiles(file, quantiles[:1] * 101)
        assert load(file).quantiles == quantiles[:1] * 101
        assert (load(file).score, digest(load(file).state)) == (before.score, digest(before.state))
    write_safetensors(path, CONFIG, WORDS, CONTENT["state_dict"])
    assert path.read_bytes() == whole["safetensors"].read_bytes()


def test_any_program_reads_the_header_of_a_safetensors_file(whole: dict[str, Path]) -> None:
    with safe_open(whole["safetensors"], "pt") as file:
        about = json.loads(file.metadata()["captioning"])
        assert torch.equal(file.get_tensor("model.output.bias"), CONTENT["state_dict"]["model.output.bias"])
    assert about.keys() == {"config", "words", "tensors", "digest"}


def test_tensors_of_any_kind_and_words_of_any_text(tmp_path: Path) -> None:
    shared = torch.arange(6.0).view(2, 3)
    state = {"tied": shared, "also tied": shared, "turned": shared.T, "one": shared[1:]}
    state |= {"number": torch.tensor(3), "none": torch.zeros(0, 2), "half": shared.half(), "true": shared > 2}
    words = ["\ud800", "ü", "", 'a"\\b', "\u2028"]
    write_safetensors(tmp_path / "any.safetensors", CONFIG, words, state)
    saved = load(tmp_path / "any.safetensors")
    assert saved.words == words
    assert digest(saved.state) == digest(state)


@pytest.mark.parametrize("value", [{1: 2}, {"a": b"x"}, {"a": torch.zeros(1)}, {"a": {1, 2}}], ids=str)
def test_a_configuration_that_json_would_change_is_not_written(tmp_path: Path, value: Any) -> None:
    with pytest.raises(CaptioningError, match="JSON"):
        write_safetensors(tmp_path / "none.safetensors", CONFIG | {"more": value}, WORDS, {})
    assert not list(tmp_path.iterdir())


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


def same_or_refused(path: Path, damaged: bytes) -> None:
    path.write_bytes(damaged)
    with suppress(CaptioningError):
        found = load(path)
        assert digest([found.config, found.words, found.state]) == digest([CONFIG, WORDS, CONTENT["state_dict"]])


@pytest.mark.parametrize("form", FORMS)
@given(data=st.data())
def test_a_flipped_bit_anywhere_is_noticed_or_means_nothing(
    whole: dict[str, Path], form: str, data: st.DataObject
) -> None:
    """Also in the directory of the archive or the header, which no checksum of their own covers."""
    original = whole[form].read_bytes()
    header = 8 + int.from_bytes(original[:8], "little")
    start, end = (original.index(b"PK\x01\x02"), len(original)) if form == "torch" else (0, header)
    position = data.draw(st.integers(0, len(original) - 1) | st.integers(start, end - 1), "byte")
    damaged = bytearray(original)
    damaged[position] ^= 1 << data.draw(st.integers(0, 7), "bit")
    same_or_refused(whole[form].with_name(f"flipped.{form}"), bytes(damaged))


@pytest.mark.parametrize("form", FORMS)
@given(cut=st.integers(0, 4000), junk=st.binary(max_size=40))
def test_files_cut_or_continued(whole: dict[str, Path], form: str, cut: int, junk: bytes) -> None:
    original = whole[form].read_bytes()
    same_or_refused(whole[form].with_name(f"cut.{form}"), original[: max(0, len(original) - cut)] + junk)


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


PLACES = sorted(places(CONTENT), key=str)


@given(st.lists(st.tuples(st.sampled_from(PLACES), NASTY | st.just("delete")), min_size=1, max_size=3))
def test_any_value_inside(whole: dict[str, Path], changes: list[tuple[tuple[Any, ...], Any]]) -> None:
    """What a stranger may put there who knows of the digest: it captions, or it is refused."""
    changed = copy.deepcopy(CONTENT)
    for (*parents, last), value in changes:
        node: Any = changed
        for key in parents:
            node = node[key] if isinstance(node, dict) and key in node else {}
        if isinstance(node, dict) and last in node:
            if isinstance(value, str) and value == "delete":
                del node[last]
            else:
                node[last] = value
    path = whole["torch"].with_name("changed.ckpt")
    try:
        torch.save(with_digest(changed), path)
    except ValueError:  # larger than its storage: written by somebody who does not mind
        torch.save({**changed, "digest": "0" * 64}, path)
    with suppress(CaptioningError):
        captioning.load(path, "cpu").caption(IMAGE)


def config(saved: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = saved["captioning"]["config"]
    return found


CHANGES: dict[str, tuple[Change, str]] = {
    "an embedding of gigabytes": (lambda s: config(s)["model"].update(d_feat=65536), "model"),
    "a backbone of gigabytes": (lambda s: config(s)["backbone"].update(dim=65536), "backbone"),
    "code": (lambda s: config(s).update(model={"_target_": "os.system", "command": "true"}), "os.system"),
    "NaN": (lambda s: s["state_dict"]["model.output.bias"].fill_(float("nan")), "model.output.bias"),
    "words that are none": (lambda s: s["captioning"].update(words={"a": 1}), "vocabulary"),
    "a missing weight": (lambda s: s["state_dict"].pop("model.output.bias"), "model.*output.bias"),
    "another weight": (lambda s: s["state_dict"].update({"model.exit": torch.zeros(1)}), "model.*exit"),
    "another shape": (lambda s: s["state_dict"].update({"model.output.bias": torch.zeros(2)}), "model.*output.bias"),
    "no backbone": (lambda s: [s["state_dict"].pop(k) for k in list(s["state_dict"]) if "backbone" in k], "backbone"),
    "a section is missing": (lambda s: config(s).pop("decoding"), "sections"),
    "an interpolation": (lambda s: config(s)["backbone"].update(_target_="${oc.env:SECRET}"), r"\$\{oc.env:SECRET}"),
    "an unknown setting": (lambda s: config(s)["model"].update(depth=3), "model.depth"),
    "called later": (lambda s: config(s)["model"].update(_partial_=True), r"model\._partial_"),
    "called now": (lambda s: config(s)["decoding"].update(_partial_=False), r"decoding\._partial_"),
    **{
        f"quantiles {value}": (lambda s, value=value: s["captioning"].update(quantiles=value), "quantiles")
        for value in (None, "low", [-1.0], [1] * 101, [0.0] * 100 + [-1.0], [float("nan")] * 101)
    },
    **{
        f"a search with {name}={value}": (
            lambda s, name=name, value=value: config(s)["decoding"].update({name: value}),
            rf"decoding\.{name}",
        )
        for name, value in (("width", 1000), ("max_length", 10_000), ("n_best", 33))
    },
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", CHANGES)
def test_strangers_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, form: str) -> None:
    """The registry is closed, sizes are bounded, a search is modest, numbers are numbers; nothing is looked up."""
    monkeypatch.setenv("SECRET", "hunter2")
    change, message = CHANGES[name]
    saved = copy.deepcopy(CONTENT)
    change(saved)
    path = written(tmp_path, form, saved)
    with pytest.raises(CaptioningError, match=message) as refused:
        captioning.load(path, "cpu")
    assert str(path) in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_packed_archives_are_refused(whole: dict[str, Path], tmp_path: Path) -> None:
    """A few bytes of which could be terabytes."""
    with (
        zipfile.ZipFile(whole["torch"]) as source,
        zipfile.ZipFile(tmp_path / "packed.ckpt", "w", zipfile.ZIP_DEFLATED) as target,
    ):
        for name in source.namelist():
            target.writestr(name, source.read(name))
    with pytest.raises(CaptioningError, match="compressed"):
        read(tmp_path / "packed.ckpt")


def test_a_few_values_in_very_many_places(tmp_path: Path) -> None:
    lists: Any = ["x" * 1000]
    for _ in range(40):
        lists = [lists, lists]
    torch.save({**CONTENT, "more": lists, "digest": "0" * 64}, tmp_path / "laughs.ckpt")
    with pytest.raises(CaptioningError, match="far more than it holds"):
        read(tmp_path / "laughs.ckpt")


def about(**changes: Any) -> str:
    inside = {"config": CONFIG, "words": WORDS}
    header = {**inside, "tensors": ["x"], "digest": digest({"captioning": inside, "state_dict": {"x": torch.zeros(1)}})}
    return json.dumps(header | changes)


@pytest.mark.parametrize(
    "header",
    [
        *(
            about(tensors=["x", "x"]),
            about(tensors=["y"]),
            about(words=WORDS[::-1]),
            about(config={}),
            about(digest=""),
        ),
        *("[" * 10**5, "9" * 10**4, "null", "[]", "{}", "[" + "[]," * (MAX_HEADER // 3) + "[]]"),
        '{"config": 1, "words": 2, "tensors": 3, "digest": 4}',
    ],
    ids=lambda header: header[:20],
)
def test_headers_that_are_wrong(tmp_path: Path, header: str) -> None:
    path = tmp_path / "wrong.safetensors"
    save_file({"x": torch.zeros(1)}, path, {KEY: header})
    with pytest.raises(CaptioningError, match=r"wrong\.safetensors is damaged"):
        load(path)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cut", [0, 5, 9, 100, -1])
def test_a_part_of_one_is_damaged(whole: dict[str, Path], tmp_path: Path, form: str, cut: int) -> None:
    path = tmp_path / whole[form].name
    path.write_bytes(whole[form].read_bytes()[:cut])
    with pytest.raises(CaptioningError, match=rf"checkpoint={path} is damaged"):
        captioning.load(path)


def test_other_files(tmp_path: Path) -> None:
    """Weights alone, as timm and others share them, a list, a text, code; and none."""
    save_file({"stem.weight": torch.zeros(2)}, tmp_path / "model.safetensors", {"format": "pt"})
    torch.save({"weight": torch.zeros(1)}, tmp_path / "weights.pt")
    torch.save([1], tmp_path / "list.pt")
    (tmp_path / "text.ckpt").write_text("no checkpoint")
    torch.save(with_digest({"captioning": {}, "state_dict": {}}) | {"more": Path("code")}, tmp_path / "code.pt")
    for name, message in {
        "model.safetensors": "stem.weight.*backbone.weights",
        "weights.pt": "not a checkpoint of captioning.run",
        "list.pt": "not a checkpoint of captioning.run",
        "text.ckpt": "not a checkpoint of captioning.run",
        "code.pt": "Python objects",
    }.items():
        with pytest.raises(CaptioningError, match=message):
            captioning.load(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        captioning.load(tmp_path / "absent.ckpt")
    with pytest.raises(IsADirectoryError):
        captioning.load(tmp_path)


def test_training_does_not_resume_from_a_safetensors_file(whole: dict[str, Path]) -> None:
    with pytest.raises(CaptioningError, match=r"init_from=.*best\."):
        read(whole["safetensors"])


# The files of a run


def small(number: int) -> dict[str, object]:
    return {"captioning": {}, "state_dict": {"weight": torch.full((1000,), float(number))}}


def test_the_last_checkpoint_before_is_kept(tmp_path: Path) -> None:
    files, last = CheckpointFiles(), tmp_path / "checkpoints" / "last.ckpt"
    for number in range(3):
        files.save_checkpoint(small(number), last)
    files.save_checkpoint(small(7), last.with_name("best.ckpt"))
    files.save_checkpoint(small(8), last.with_name("best.ckpt"))
    found = {path.name: files.load_checkpoint(path)["state_dict"]["weight"][0] for path in last.parent.iterdir()}
    assert found == {"last.ckpt": 2, "previous.ckpt": 1, "best.ckpt": 8}


def test_a_full_disk_harms_nothing(tmp_path: Path) -> None:
    files, last = CheckpointFiles(), tmp_path / "last.ckpt"
    files.save_checkpoint(small(0), last)
    files.save_checkpoint(small(1), last)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, limits[1]))  # Python ignores the signal, so write fails
    try:
        with pytest.raises((CaptioningError, OSError)):
            files.save_checkpoint(small(2), last)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
