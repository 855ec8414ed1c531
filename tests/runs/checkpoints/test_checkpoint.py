"""Checkpoints of both kinds, damaged or from strangers: loaded right, or refused with a sentence of
ours.
"""

import copy
import json
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf
from PIL import Image
from refusals import refuses
from safetensors import safe_open
from safetensors.torch import save_file
from support import composed, little_disk

import captioning
from captioning.backbones.base import Backbone
from captioning.config.registry import build
from captioning.config.schemas.parts import strip_extra_keys
from captioning.data.vocabulary import Vocabulary
from captioning.errors import CaptioningError
from captioning.files import MAX_HEADER
from captioning.models.protocol import Captioner
from captioning.runs.checkpoints.checkpoint import (
    KEY,
    digest,
    keep_quantiles,
    load_checkpoint,
    read_checkpoint,
    with_digest,
    write_safetensors,
)
from captioning.runs.settings import FORMAT, read_settings
from captioning.training.callbacks.resume import CheckpointFiles

WORDS = ["a", "red", "square"]
FORMS = ["torch", "safetensors"]
SMALL = ("model.d_model=8", "model.heads=2", "model.d_ff=8", "decoding.width=2")
RUN = OmegaConf.to_container(
    composed(*SMALL, "backbone.dim=4", "backbone.size=16", "backbone.grid=2"), resolve=True
)
CONFIG = {name: RUN[name] for name in ("backbone", "model", "decoding", "data", "seed")}


def content():
    """A checkpoint of untrained networks."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        backbone = build("backbone", Backbone, CONFIG["backbone"])
        size = len(Vocabulary(WORDS))
        settings = strip_extra_keys(CONFIG)["model"]
        model = build("model", Captioner, settings, vocab_size=size, **backbone.sizes)
    both = torch.nn.ModuleDict({"backbone": backbone, "model": model})
    inside = {"format": FORMAT, "config": CONFIG, "words": WORDS}
    return {"captioning": inside, "state_dict": dict(both.state_dict()), "global_step": 3}


CONTENT = content()
STATE = CONTENT["state_dict"]


def written(folder, form, saved):
    """A file with the right digest, as somebody writes who knows of it."""
    if form == "torch":
        torch.save(with_digest(saved), folder / "best.ckpt")
        return folder / "best.ckpt"
    inside, state = saved["captioning"], saved["state_dict"]
    about = {"tensors": list(state), "digest": digest({"captioning": inside, "state_dict": state})}
    tensors = {name: tensor.contiguous() for name, tensor in state.items()}
    save_file(tensors, folder / "best.st", {KEY: json.dumps(inside | about)})
    return folder / "best.st"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A file of each form."""
    folder = tmp_path_factory.mktemp("checkpoint")
    write_safetensors(folder / "best.safetensors", CONFIG, WORDS, STATE)
    return {"torch": written(folder, "torch", CONTENT), "safetensors": folder / "best.safetensors"}


@pytest.mark.parametrize("form", FORMS)
def test_it_holds_the_same_under_any_name(whole, tmp_path, form):
    other = tmp_path / "captioner.bin"
    other.write_bytes(whole[form].read_bytes())
    for path in (whole[form], other):
        saved = load_checkpoint(path)
        assert digest([saved.config, saved.words, saved.state]) == digest([CONFIG, WORDS, STATE])
        assert captioning.load(path, "cpu").caption(Image.new("RGB", (16, 16)))[0].score < 0
    assert other.read_bytes() == whole[form].read_bytes()


def test_score_and_quantiles_are_kept(whole, tmp_path):
    path, quantiles = tmp_path / "known.safetensors", [-1 / 3 + i / 7e5 for i in range(101)]
    write_safetensors(path, CONFIG, WORDS, STATE, True, "test/CIDEr 9.5", quantiles)
    known = load_checkpoint(path)
    assert (known.score, known.quantiles) == ("test/CIDEr 9.5", quantiles)
    assert any(tensor.dtype == torch.half for tensor in known.state.values())
    for file in (path, written(tmp_path, "torch", CONTENT)):
        before = load_checkpoint(file)
        keep_quantiles(file, quantiles[:1] * 101)
        after = load_checkpoint(file)
        assert after.quantiles == quantiles[:1] * 101
        assert (after.score, digest(after.state)) == (before.score, digest(before.state))
    write_safetensors(path, CONFIG, WORDS, STATE)
    assert path.read_bytes() == whole["safetensors"].read_bytes()


def test_any_program_reads_tensors_of_any_kind_and_words_of_any_text(tmp_path):
    shared, path = torch.arange(6.0).view(2, 3), tmp_path / "any.safetensors"
    state = {"tied": shared, "also tied": shared, "turned": shared.T, "one": shared[1:]}
    state |= {"number": torch.tensor(3), "none": torch.zeros(0, 2), "half": shared.half()}
    words = ["\ud800", "ü", "", 'a"\\b', "\u2028"]
    write_safetensors(path, CONFIG, words, state)
    saved = load_checkpoint(path)
    assert (saved.words, digest(saved.state)) == (words, digest(state))
    with safe_open(path, "pt") as file:
        header = json.loads(file.metadata()["captioning"])
        assert set(header) == {"format", "config", "words", "tensors", "digest"}
        assert torch.equal(file.get_tensor("turned"), shared.T)


def test_every_value_is_in_the_digest():
    """The digest itself must stay what it is: it is in every checkpoint."""
    one = {"a": [torch.tensor([1.0, 2.0]), 3, "x"], "b": {"c": None}}
    assert digest(one) == "9e2a4f2e3f450c2cee756aa946317de36efb933216b0b12a4bb9ea8e9a785b36"
    others = [
        [torch.tensor([1.0, 2.0000002]), 3, "x"],
        [torch.tensor([[1.0], [2.0]]), 3, "x"],
        [torch.tensor([1.0, 2.0]), 3.0, "x"],
        [torch.tensor([1.0, 2.0]), 3, "y"],
        [torch.tensor([1.0, 2.0]), 3, "x", 4],
    ]
    changed = [one, *(one | {"a": other} for other in others)]
    changed += [one | {"b": {"c": False}}, one | {"b": {"c": None, "d": None}}]
    assert len({digest(each) for each in changed}) == 8
    turned = torch.arange(6).view(2, 3).T
    assert digest({"x": turned}) == digest({"x": turned.contiguous()})


@pytest.mark.parametrize("form", FORMS)
@given(data=st.data())
def test_damage_anywhere_is_noticed_or_means_nothing(whole, form, data):
    """Also in the directory of the archive or the header, which no checksum of their own covers."""
    original = whole[form].read_bytes()
    header = 8 + int.from_bytes(original[:8], "little")
    start, end = (original.index(b"PK\x01\x02"), len(original)) if form == "torch" else (0, header)
    damaged, anywhere = bytearray(original), st.integers(0, len(original) - 1)
    if data.draw(st.booleans(), "cut or continued"):
        damaged = damaged[: data.draw(st.sampled_from([0, 5, 9, 100]) | anywhere)]
        damaged += data.draw(st.binary(max_size=40))
    else:
        position = data.draw(anywhere | st.integers(start, end - 1), "byte")
        damaged[position] ^= 1 << data.draw(st.integers(0, 7), "bit")
    path = whole[form].with_name(f"damaged.{form}")
    path.write_bytes(damaged)
    with suppress(CaptioningError):
        saved = load_checkpoint(path)
        assert digest([saved.config, saved.words, saved.state]) == digest([CONFIG, WORDS, STATE])


def setting(key, value):
    """A change of the configuration; of a setting that is taken away, if the value is `...`."""

    def change(saved):
        node, (*groups, name) = saved["captioning"]["config"], key.split(".")
        for group in groups:
            node = node[group]
        node.pop(name) if value is ... else node.update({name: value})

    return change


def inside(**changes):
    return lambda saved: saved["captioning"].update(changes)


def weights(**tensors):
    named = {f"model.{name}": tensor for name, tensor in tensors.items()}
    return lambda saved: saved["state_dict"].update(named)


def without_backbone(saved):
    saved["state_dict"] = {k: t for k, t in saved["state_dict"].items() if "backbone" not in k}


CHANGES = {
    "an embedding of gigabytes": (setting("model.d_model", 65536), "model"),
    "a backbone of gigabytes": (setting("backbone.dim", 65536), "backbone"),
    "code": (setting("model", {"_target_": "os.system", "command": "true"}), "os.system"),
    "NaN": (weights(more=torch.full((2,), float("nan"))), "model.more"),
    "words that are none": (inside(words={"a": 1}), "words"),
    "no words": (inside(words=None), "words"),
    "a missing weight": (lambda s: s["state_dict"].pop("model.output.bias"), "output.bias"),
    "another weight": (weights(exit=torch.zeros(1)), "exit"),
    "another shape": (weights(**{"output.bias": torch.zeros(2)}), "output.bias"),
    "no backbone": (without_backbone, "network"),
    "a section is missing": (setting("decoding", ...), "decoding"),
    "an interpolation": (setting("backbone._target_", "${oc.env:SECRET}"), "oc.env:SECRET}"),
    "an unknown setting": (setting("model.depth", 3), "model.depth"),
    "called later": (setting("model._partial_", True), r"model\._partial_"),
    "called now": (setting("decoding._partial_", False), r"decoding\._partial_"),
    "quantiles": (inside(quantiles=[0.0] * 100 + [-1.0]), "quantiles"),
    "a model to search with": (setting("decoding.model", 3), "decoding must leave the model"),
    "a context to search in": (setting("decoding.context", 3), "decoding must leave the model"),
    "no target": (setting("model._target_", ...), "model has no _target_"),
    "a target of numbers": (setting("decoding._target_", 3), "decoding has no _target_"),
    "numbers chosen": (setting("choices", {"model": 4}), r"choices \{'model': 4\} are not"),
    "a list of choices": (setting("choices", [1]), r"choices \[1\] are not"),
    "a large search": (setting("decoding.width", 1000), r"decoding\.width"),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", CHANGES)
def test_strangers_are_refused(tmp_path, monkeypatch, name, form):
    """The registry is closed, sizes are bounded, a search is modest, numbers are numbers; nothing
    is looked up.
    """
    monkeypatch.setenv("SECRET", "hunter2")
    change, message = CHANGES[name]
    saved = copy.deepcopy(CONTENT)
    change(saved)
    path = written(tmp_path, form, saved)
    with refuses(message) as refused:
        captioning.load(path, "cpu")
    assert str(path) in str(refused.value)
    assert "hunter2" not in str(refused.value)


def about(**changes):
    inside = {"config": CONFIG, "words": WORDS}
    signed = digest({"captioning": inside, "state_dict": {"x": torch.zeros(1)}})
    return json.dumps({**inside, "tensors": ["x"], "digest": signed, **changes})


HEADERS = [
    *(about(tensors=["x", "x"]), about(tensors=["y"]), about(words=WORDS[::-1])),
    *(about(config={}), about(digest=""), "[" * 10**5, "9" * 10**4, "null", "{}"),
    "[" + "[]," * (MAX_HEADER // 3) + "[]]",
]


@pytest.mark.parametrize("header", HEADERS, ids=range(len(HEADERS)))
def test_headers_that_are_wrong(tmp_path, header):
    save_file({"x": torch.zeros(1)}, tmp_path / "wrong.safetensors", {KEY: header})
    with refuses(r"wrong\.safetensors is damaged"):
        load_checkpoint(tmp_path / "wrong.safetensors")


def laughs():
    """A few values in very many places."""
    lists = ["x" * 1000]
    for _ in range(40):
        lists = [lists, lists]
    return lists


FORGED = {**CONTENT, "digest": "0" * 64}
OTHERS = [
    ({"weight": torch.zeros(1)}, "another digest"),
    ([1], "damaged, or not a checkpoint"),
    ({**with_digest({"captioning": {}}), "more": Path("code")}, "Python objects"),
    (FORGED | {"more": laughs()}, "far more than it holds"),
    (FORGED | {"more": torch.zeros(1).expand(10**6, 10**6)}, "torch.save"),
]


def test_other_files(whole, tmp_path):
    """Of torch; weights alone, as timm and others share them, a text, an archive that could unpack
    to terabytes; and none.
    """
    for number, (saved, _) in enumerate(OTHERS):
        torch.save(saved, tmp_path / str(number))
    save_file({"stem.weight": torch.zeros(2)}, tmp_path / "model.safetensors", {"format": "pt"})
    (tmp_path / "text.ckpt").write_text("no checkpoint")
    packed = tmp_path / "packed.ckpt"
    with (
        zipfile.ZipFile(whole["torch"]) as source,
        zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as target,
    ):
        for name in source.namelist():
            target.writestr(name, source.read(name))
    messages = {str(number): message for number, (_, message) in enumerate(OTHERS)}
    messages["model.safetensors"] = "stem.weight.*backbone.weights"
    messages |= {"text.ckpt": "text.ckpt", "packed.ckpt": "compressed"}
    for name, message in messages.items():
        with refuses(message):
            captioning.load(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        captioning.load(tmp_path / "absent.ckpt")
    with pytest.raises(IsADirectoryError):
        captioning.load(tmp_path)
    with refuses(r"init_from=.*best\."):  # nothing resumes from it
        read_checkpoint(whole["safetensors"])


def test_the_last_checkpoint_before_is_kept_and_a_full_disk_harms_nothing(tmp_path):
    files, folder = CheckpointFiles(), tmp_path / "checkpoints"

    def save(number, name):
        state = {"weight": torch.full((1000,), number)}
        files.save_checkpoint({"captioning": {}, "state_dict": state}, folder / name)

    for number in range(3):
        save(number, "last.ckpt")
    save(7, "best.ckpt")
    save(8, "best.ckpt")
    with little_disk(3000), refuses(r"last\.ckpt: File too large"):
        save(9, "last.ckpt")
    paths = list(folder.iterdir())
    kept = {path.name: files.load_checkpoint(path)["state_dict"]["weight"][0] for path in paths}
    assert kept == {"last.ckpt": 2, "previous.ckpt": 1, "best.ckpt": 8}


@pytest.mark.parametrize("form", FORMS)
def test_another_format_is_refused(form, tmp_path):
    saved = {**CONTENT, "captioning": CONTENT["captioning"] | {"format": FORMAT - 1}}
    with refuses("another version"):
        load_checkpoint(written(tmp_path, form, saved))
    config = tmp_path / "config.yaml"
    config.write_text(OmegaConf.to_yaml(CONFIG) + f"format: {FORMAT - 1}")
    with refuses("another version"):
        read_settings(config)
