"""Safetensors files of captioners: read back as they were, or refused with a sentence of ours."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file
from test_checkpoint import CONFIG, IMAGE, WORDS, content

import captioning
from captioning.errors import CaptioningError
from captioning.runs.checkpoint import digest, load, read
from captioning.runs.checkpoint_files import keep_quantiles
from captioning.runs.weights_file import KEY, LARGEST_TEXT, write

Change = Callable[[dict[str, Any], dict[str, torch.Tensor]], None]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("shared") / "best.safetensors"
    write(path, CONFIG, WORDS, content()["state_dict"])
    return path


def test_it_holds_the_same_in_the_same_order_under_any_name(whole: Path) -> None:
    other = whole.with_name("captioner.bin")
    other.write_bytes(whole.read_bytes())
    expected = content()
    for path in (whole, other):
        saved = load(path)
        assert (saved.config, saved.words, list(saved.state)) == (CONFIG, WORDS, list(expected["state_dict"]))
        assert digest(saved.state) == digest(expected["state_dict"])
        assert captioning.load(path, "cpu").caption(IMAGE)[0].score < 0
    write(other, CONFIG, WORDS, expected["state_dict"])
    assert other.read_bytes() == whole.read_bytes()


def test_what_is_known_of_it_comes_along(whole: Path, tmp_path: Path) -> None:
    path, quantiles = tmp_path / "known.safetensors", [-1 / 3 + i / 7e5 for i in range(101)]
    write(path, CONFIG, WORDS, content()["state_dict"], half=True, score="test/CIDEr 9.5", quantiles=quantiles)
    known, older = load(path), load(whole)
    assert (known.score, known.quantiles) == ("test/CIDEr 9.5", quantiles)
    assert (older.score, older.quantiles) == (None, [])
    keep_quantiles(path, quantiles[:1] * 101)
    again = load(path)
    assert again.quantiles == quantiles[:1] * 101
    assert (again.score, digest(again.state)) == (known.score, digest(known.state))
    assert any(tensor.dtype == torch.half for tensor in again.state.values())


def test_any_program_reads_its_header(whole: Path) -> None:
    with safe_open(whole, "pt") as file:
        about = json.loads(file.metadata()["captioning"])
        assert torch.equal(file.get_tensor("model.output.bias"), content()["state_dict"]["model.output.bias"])
    assert about.keys() == {"config", "words", "tensors", "digest"}
    assert (about["config"], about["words"]) == (CONFIG, WORDS)


def test_tensors_of_any_kind_and_words_of_any_text(tmp_path: Path) -> None:
    shared = torch.arange(6.0).view(2, 3)
    state = {"tied": shared, "also tied": shared, "turned": shared.T, "one": shared[1:]}
    state |= {"number": torch.tensor(3), "none": torch.zeros(0, 2), "half": shared.half(), "true": shared > 2}
    words = ["\ud800", "ü", "", 'a"\\b', "\u2028"]
    write(tmp_path / "any.safetensors", CONFIG, words, state)
    saved = load(tmp_path / "any.safetensors")
    assert saved.words == words
    assert digest(saved.state) == digest(state)


@pytest.mark.parametrize("value", [{1: 2}, {"a": b"x"}, {"a": torch.zeros(1)}, {"a": {1, 2}}], ids=str)
def test_a_configuration_that_json_would_change_is_not_written(tmp_path: Path, value: Any) -> None:
    with pytest.raises(CaptioningError, match="the configuration cannot be exported, since JSON has not all of it"):
        write(tmp_path / "none.safetensors", CONFIG | {"more": value}, WORDS, {})
    assert not list(tmp_path.iterdir())


@given(st.data())
def test_a_flipped_bit_anywhere_is_noticed_or_means_nothing(whole: Path, data: st.DataObject) -> None:
    original = whole.read_bytes()
    header = 8 + int.from_bytes(original[:8], "little")
    place = data.draw(st.integers(0, len(original) - 1) | st.integers(0, header), "byte")
    damaged = bytearray(original)
    damaged[place] ^= 1 << data.draw(st.integers(0, 7), "bit")
    same_or_refused(whole.with_name("flipped.safetensors"), bytes(damaged))


@given(cut=st.integers(0, 4000), junk=st.binary(max_size=40))
def test_files_cut_or_continued(whole: Path, cut: int, junk: bytes) -> None:
    original = whole.read_bytes()
    same_or_refused(whole.with_name("cut.safetensors"), original[: max(0, len(original) - cut)] + junk)


def same_or_refused(path: Path, written: bytes) -> None:
    path.write_bytes(written)
    try:
        found = load(path)
    except CaptioningError:
        return
    assert digest(found.state) == digest(content()["state_dict"])
    assert (found.config, found.words) == (CONFIG, WORDS)


@pytest.mark.parametrize("cut", [0, 5, 9, 100, -1])
def test_a_part_of_one_is_called_that(whole: Path, tmp_path: Path, cut: int) -> None:
    (tmp_path / "cut.safetensors").write_bytes(whole.read_bytes()[:cut])
    with pytest.raises(CaptioningError, match=r"cut\.safetensors is damaged, or only a part of a safetensors file: "):
        captioning.load(tmp_path / "cut.safetensors")


def changed(whole: Path, path: Path, change: Change, seal: bool = True) -> Path:
    """A copy with `change` made to its header and tensors by somebody who knows of the digest."""
    with safe_open(whole, "pt") as file:
        about, state = json.loads(file.metadata()[KEY]), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    change(about, state)
    if seal:
        inside = {name: about[name] for name in ("config", "words")}
        ordered = {name: state[name] for name in about["tensors"]}
        about["digest"] = digest({"captioning": inside, "state_dict": ordered})
    save_file(state, path, {KEY: json.dumps(about)})
    return path


def test_what_its_header_does_not_name_or_seal_is_noticed(whole: Path, tmp_path: Path) -> None:
    for number, (change, message) in enumerate(
        [
            (lambda about, state: state.update(more=torch.zeros(1)), "its tensors are others than its header names"),
            (lambda about, state: about["tensors"].append(about["tensors"][0]), "its tensors are others"),
            (lambda about, state: about["words"].reverse(), "another digest than was saved"),
            (lambda about, state: about["config"].update(seed=2), "another digest than was saved"),
            (lambda about, state: state["model.output.bias"].add_(1), "another digest than was saved"),
            (lambda about, state: about["tensors"].reverse(), "another digest than was saved"),
        ]
    ):
        with pytest.raises(CaptioningError, match=f"is damaged, .*: .*{message}"):
            load(changed(whole, tmp_path / f"{number}.safetensors", change, seal=False))


def test_the_rules_of_checkpoints_are_its_rules(whole: Path, tmp_path: Path) -> None:
    """Somebody else's file with a right digest: the registry is closed, sizes are bounded, numbers are numbers."""

    def poisoned(about: dict[str, Any], state: dict[str, torch.Tensor]) -> None:
        about["config"]["model"] = {"_target_": "os.system", "command": "true"}

    def large(about: dict[str, Any], state: dict[str, torch.Tensor]) -> None:
        about["config"]["model"]["d_hidden"] = 65536

    def infinite(about: dict[str, Any], state: dict[str, torch.Tensor]) -> None:
        state["model.output.bias"][0] = float("inf")

    def wordless(about: dict[str, Any], state: dict[str, torch.Tensor]) -> None:
        about["words"] = {"a": 1}

    def renamed(about: dict[str, Any], state: dict[str, torch.Tensor]) -> None:
        about["tensors"][-1] = "model.exit"
        state["model.exit"] = state.pop(list(content()["state_dict"])[-1])

    for change, message in (
        (poisoned, "names os.system, which is no part of captioning"),
        (large, "does not fit this version|far larger than the weights"),
        (infinite, "model.output.bias are not all numbers"),
        (wordless, "its vocabulary is no list of words"),
        (renamed, "1 missing: .*; 1 unexpected: model.exit"),
    ):
        with pytest.raises(CaptioningError, match=message):
            captioning.load(changed(whole, tmp_path / f"{change.__name__}.safetensors", change), "cpu")


def test_headers_that_describe_too_much(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "large.safetensors"
    save_file({}, path, {KEY: "[" + "[]," * (LARGEST_TEXT // 3) + "[]]"})
    with pytest.raises(CaptioningError, match=r"its header has 16,777,\d+ characters"):
        load(path)
    for text in ("[" * 10**5, "9" * 10**4, "null", "[]", "{}", '{"config": 1, "words": 2, "tensors": 3, "digest": 4}'):
        save_file({"x": torch.zeros(1)}, path, {KEY: text})
        with pytest.raises(CaptioningError, match="is damaged, or only a part of a safetensors file"):
            load(path)


def test_weights_of_something_else_are_named(tmp_path: Path) -> None:
    """As timm and others share them."""
    names = ["head.bias", "stem.bn.bias", "stem.bn.weight", "stem.weight"]
    path = tmp_path / "model.safetensors"
    save_file({name: torch.zeros(2) for name in names}, path, {"format": "pt"})
    message = r"something else: it holds 4 tensors \(\S+, \S+, \S+, \.\.\.\) without .* go into backbone\.weights$"
    with pytest.raises(CaptioningError, match=message):
        captioning.load(path)


def test_training_does_not_go_on_from_it(whole: Path) -> None:
    with pytest.raises(CaptioningError, match=r"no such file holds what training goes on from; .* init_from=.*best\."):
        read(whole)


def test_it_is_not_changed_by_what_is_done_with_it(whole: Path) -> None:
    before = whole.read_bytes()
    saved = load(whole)
    for tensor in copy.copy(saved.state).values():
        tensor.zero_()
    assert whole.read_bytes() == before
