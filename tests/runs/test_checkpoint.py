"""Checkpoints of both kinds, damaged or from strangers: loaded right, or refused with a sentence of
ours.
"""

import copy
import json
import resource
import zipfile
from collections.abc import Callable
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
from captioning.backbones.base import Backbone
from captioning.config.registry import build, strip_extra_keys
from captioning.data.vocabulary import Vocabulary
from captioning.errors import CaptioningError
from captioning.models.protocol import Captioner
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
from captioning.runs.settings import FORMAT
from captioning.training.callbacks.resume import CheckpointFiles

Change = Callable[[dict[str, Any]], object]
WORDS = ["a", "red", "square"]
SMALL = ("model.d_model=8", "model.heads=2", "model.d_ff=8")
CONFIG: dict[str, Any] = {
    "backbone": {
        "_target_": "captioning.backbones.scratch.SmallCNN",
        "dim": 4,
        "size": 16,
        "grid": 2,
    },
    "model": OmegaConf.to_container(
        composed("model=spatial_transformer", *SMALL).model, resolve=True
    ),
    "decoding": {
        "_target_": "captioning.decoding.beam_search",
        "_partial_": True,
        "width": 2,
        "max_length": 4,
        "early_stopping": False,
    },
    "data": {
        "reader": {"_target_": "captioning.data.shapes.ShapesReader", "root": "x"},
        "eval_batch_size": 2,
    },
    "seed": 1,
}
IMAGE = Image.new("RGB", (16, 16), "red")
FORMS = ["torch", "safetensors"]


def content(config: dict[str, Any] = CONFIG) -> dict[str, Any]:
    """A checkpoint of untrained networks."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        backbone = build("backbone", Backbone, config["backbone"])
        sizes = {
            "vocab_size": len(Vocabulary(WORDS)),
            "d_context": backbone.dim,
            "grid": backbone.grid,
        }
        model = build("model", Captioner, strip_extra_keys(config)["model"], **sizes)
    state = {f"backbone.{name}": tensor for name, tensor in backbone.state_dict().items()}
    state |= {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    return {
        "captioning": {"format": FORMAT, "config": copy.deepcopy(config), "words": WORDS},
        "state_dict": state,
        "global_step": 3,
    }


CONTENT = content()


def written(folder: Path, form: str, saved: dict[str, Any]) -> Path:
    """A file with the right digest, as somebody writes who knows of it."""
    if form == "torch":
        torch.save(with_digest(saved), folder / "best.ckpt")
        return folder / "best.ckpt"
    inside, state = saved["captioning"], saved["state_dict"]
    about = {
        **inside,
        "tensors": list(state),
        "digest": digest({"captioning": inside, "state_dict": state}),
    }
    tensors = {
        name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in state.items()
    }
    save_file(tensors, folder / "best.st", {KEY: json.dumps(about)})
    return folder / "best.st"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A file of each form."""
    folder = tmp_path_factory.mktemp("checkpoint")
    write_safetensors(folder / "best.safetensors", CONFIG, WORDS, CONTENT["state_dict"])
    return {"torch": written(folder, "torch", CONTENT), "safetensors": folder / "best.safetensors"}


@pytest.mark.parametrize("form", FORMS)
def test_it_holds_the_same_under_any_name(
    whole: dict[str, Path], tmp_path: Path, form: str
) -> None:
    other = tmp_path / "captioner.bin"
    other.write_bytes(whole[form].read_bytes())
    for path in (whole[form], other):
        saved = load(path)
        assert (saved.config, saved.words, list(saved.state)) == (
            CONFIG,
            WORDS,
            list(CONTENT["state_dict"]),
        )
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


def test_any_program_reads_tensors_of_any_kind_and_words_of_any_text(tmp_path: Path) -> None:
    shared, path = torch.arange(6.0).view(2, 3), tmp_path / "any.safetensors"
    state = {"tied": shared, "also tied": shared, "turned": shared.T, "one": shared[1:]}
    state |= {
        "number": torch.tensor(3),
        "none": torch.zeros(0, 2),
        "half": shared.half(),
        "true": shared > 2,
    }
    words = ["\ud800", "ü", "", 'a"\\b', "\u2028"]
    write_safetensors(path, CONFIG, words, state)
    saved = load(path)
    assert (saved.words, digest(saved.state)) == (words, digest(state))
    with safe_open(path, "pt") as file:
        assert json.loads(file.metadata()["captioning"]).keys() == {
            "format",
            "config",
            "words",
            "tensors",
            "digest",
        }
        assert torch.equal(file.get_tensor("turned"), shared.T)


def test_every_value_is_in_the_digest() -> None:
    """The digest itself must stay what it is: it is in every checkpoint."""
    one = {"a": [torch.tensor([1.0, 2.0]), 3, "x"], "b": {"c": None}}
    assert digest(one) == "9e2a4f2e3f450c2cee756aa946317de36efb933216b0b12a4bb9ea8e9a785b36"
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
    assert digest({"x": torch.arange(6).view(2, 3).T}) == digest(
        {"x": torch.arange(6).view(2, 3).T.contiguous()}
    )


@pytest.mark.parametrize("form", FORMS)
@given(data=st.data())
def test_damage_anywhere_is_noticed_or_means_nothing(
    whole: dict[str, Path], form: str, data: st.DataObject
) -> None:
    """Also in the directory of the archive or the header, which no checksum of their own covers."""
    original = whole[form].read_bytes()
    header = 8 + int.from_bytes(original[:8], "little")
    start, end = (original.index(b"PK\x01\x02"), len(original)) if form == "torch" else (0, header)
    damaged = bytearray(original)
    if data.draw(st.booleans(), "cut or continued"):
        damaged = damaged[
            : data.draw(st.sampled_from([0, 5, 9, 100]) | st.integers(0, len(original)))
        ]
        damaged += data.draw(st.binary(max_size=40))
    else:
        position = data.draw(
            st.integers(0, len(original) - 1) | st.integers(start, end - 1), "byte"
        )
        damaged[position] ^= 1 << data.draw(st.integers(0, 7), "bit")
    path = whole[form].with_name(f"damaged.{form}")
    path.write_bytes(damaged)
    with suppress(CaptioningError):
        found = load(path)
        assert digest([found.config, found.words, found.state]) == digest(
            [CONFIG, WORDS, CONTENT["state_dict"]]
        )


def config(saved: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = saved["captioning"]["config"]
    return found


def weights(**tensors: Any) -> Change:
    return lambda saved: saved["state_dict"].update(
        {f"model.{name}": tensor for name, tensor in tensors.items()}
    )


CHANGES: dict[str, tuple[Change, str]] = {
    "an embedding of gigabytes": (lambda s: config(s)["model"].update(d_model=65536), "model"),
    "a backbone of gigabytes": (lambda s: config(s)["backbone"].update(dim=65536), "backbone"),
    "code": (
        lambda s: config(s).update(model={"_target_": "os.system", "command": "true"}),
        "os.system",
    ),
    "NaN": (weights(more=torch.full((2,), float("nan"))), "model.more"),
    "words that are none": (lambda s: s["captioning"].update(words={"a": 1}), "words"),
    "no words": (lambda s: s["captioning"].pop("words"), "words"),
    "a missing weight": (lambda s: s["state_dict"].pop("model.output.bias"), "output.bias"),
    "another weight": (weights(exit=torch.zeros(1)), "exit"),
    "another shape": (weights(**{"output.bias": torch.zeros(2)}), "output.bias"),
    "no backbone": (
        lambda s: [s["state_dict"].pop(k) for k in list(s["state_dict"]) if "backbone" in k],
        "network",
    ),
    "a section is missing": (lambda s: config(s).pop("decoding"), "decoding"),
    "an interpolation": (
        lambda s: config(s)["backbone"].update(_target_="${oc.env:SECRET}"),
        r"\$\{oc.env:SECRET}",
    ),
    "an unknown setting": (lambda s: config(s)["model"].update(depth=3), "model.depth"),
    "called later": (lambda s: config(s)["model"].update(_partial_=True), r"model\._partial_"),
    "called now": (lambda s: config(s)["decoding"].update(_partial_=False), r"decoding\._partial_"),
    "quantiles": (lambda s: s["captioning"].update(quantiles=[0.0] * 100 + [-1.0]), "quantiles"),
    "a model to search with": (
        lambda s: config(s)["decoding"].update(model=3),
        "decoding must leave the model",
    ),
    "a context to search in": (
        lambda s: config(s)["decoding"].update(context=3),
        "decoding must leave the model",
    ),
    "no target": (lambda s: config(s)["model"].pop("_target_"), "model have no _target_"),
    "a target of numbers": (
        lambda s: config(s)["decoding"].update(_target_=3),
        "decoding have no _target_",
    ),
    "numbers chosen": (
        lambda s: config(s).update(choices={"model": 4}),
        r"choices \{'model': 4\} are not",
    ),
    "a list of choices": (lambda s: config(s).update(choices=[1]), r"choices \[1\] are not"),
    "a large search": (lambda s: config(s)["decoding"].update(width=1000), r"decoding\.width"),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", CHANGES)
def test_strangers_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, form: str
) -> None:
    """The registry is closed, sizes are bounded, a search is modest, numbers are numbers; nothing
    is looked up.
    """
    monkeypatch.setenv("SECRET", "hunter2")
    change, message = CHANGES[name]
    saved = copy.deepcopy(CONTENT)
    change(saved)
    path = written(tmp_path, form, saved)
    with pytest.raises(CaptioningError, match=message) as refused:
        captioning.load(path, "cpu")
    assert str(path) in str(refused.value)
    assert "hunter2" not in str(refused.value)


def about(**changes: Any) -> str:
    inside = {"config": CONFIG, "words": WORDS}
    header = {
        **inside,
        "tensors": ["x"],
        "digest": digest({"captioning": inside, "state_dict": {"x": torch.zeros(1)}}),
    }
    return json.dumps(header | changes)


HEADERS = [
    *(
        about(tensors=["x", "x"]),
        about(tensors=["y"]),
        about(words=WORDS[::-1]),
        about(config={}),
        about(digest=""),
    ),
    *("[" * 10**5, "9" * 10**4, "null", "{}", "[" + "[]," * (MAX_HEADER // 3) + "[]]"),
]


@pytest.mark.parametrize("header", HEADERS, ids=range(len(HEADERS)))
def test_headers_that_are_wrong(tmp_path: Path, header: str) -> None:
    save_file({"x": torch.zeros(1)}, tmp_path / "wrong.safetensors", {KEY: header})
    with pytest.raises(CaptioningError, match=r"wrong\.safetensors is damaged"):
        load(tmp_path / "wrong.safetensors")


def laughs() -> Any:
    """A few values in very many places."""
    lists: Any = ["x" * 1000]
    for _ in range(40):
        lists = [lists, lists]
    return lists


OTHERS: dict[str, tuple[Any, str]] = {
    "weights.pt": ({"weight": torch.zeros(1)}, "another digest"),
    "list.pt": ([1], "damaged, or not a checkpoint"),
    "code.pt": (
        with_digest({"captioning": {}, "state_dict": {}}) | {"more": Path("code")},
        "Python objects",
    ),
    "laughs.ckpt": ({**CONTENT, "more": laughs(), "digest": "0" * 64}, "far more than it holds"),
    "large.ckpt": (
        {**CONTENT, "more": torch.zeros(1).expand(10**6, 10**6), "digest": "0" * 64},
        "torch.save",
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_files_of_torch(name: str, tmp_path: Path) -> None:
    torch.save(OTHERS[name][0], tmp_path / name)
    with pytest.raises(CaptioningError, match=OTHERS[name][1]):
        captioning.load(tmp_path / name)


def test_other_files(whole: dict[str, Path], tmp_path: Path) -> None:
    """Weights alone, as timm and others share them, a text, an archive that could unpack to
    terabytes; and none.
    """
    save_file({"stem.weight": torch.zeros(2)}, tmp_path / "model.safetensors", {"format": "pt"})
    (tmp_path / "text.ckpt").write_text("no checkpoint")
    with (
        zipfile.ZipFile(whole["torch"]) as source,
        zipfile.ZipFile(tmp_path / "quantise.ckpt", "w", zipfile.ZIP_DEFLATED) as target,
    ):
        for name in source.namelist():
            target.writestr(name, source.read(name))
    told = {
        "model.safetensors": "stem.weight.*backbone.weights",
        "text.ckpt": "text.ckpt",
        "quantise.ckpt": "compressed",
    }
    for name, message in told.items():
        with pytest.raises(CaptioningError, match=message):
            captioning.load(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        captioning.load(tmp_path / "absent.ckpt")
    with pytest.raises(IsADirectoryError):
        captioning.load(tmp_path)
    with pytest.raises(
        CaptioningError, match=r"init_from=.*best\."
    ):  # training does not resume from it
        read(whole["safetensors"])


def small(number: int) -> dict[str, object]:
    return {"captioning": {}, "state_dict": {"weight": torch.full((1000,), float(number))}}


def test_the_last_checkpoint_before_is_kept_and_a_full_disk_harms_nothing(tmp_path: Path) -> None:
    files, last = CheckpointFiles(), tmp_path / "checkpoints" / "last.ckpt"
    for number in range(3):
        files.save_checkpoint(small(number), last)
    files.save_checkpoint(small(7), last.with_name("best.ckpt"))
    files.save_checkpoint(small(8), last.with_name("best.ckpt"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(
        resource.RLIMIT_FSIZE, (3000, limits[1])
    )  # Python ignores the signal, so write fails
    try:
        with pytest.raises((CaptioningError, OSError)):
            files.save_checkpoint(small(9), last)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    found = {
        path.name: files.load_checkpoint(path)["state_dict"]["weight"][0]
        for path in last.parent.iterdir()
    }
    assert found == {"last.ckpt": 2, "previous.ckpt": 1, "best.ckpt": 8}
