"""Pickles of strangers: what they name is not run, and what they may hold is bounded."""

import os
import pickle
import sys
import zipfile

import numpy as np
import pytest
import torch

from captioning.convert.unpickle import Inert, read_pickle, tensors_of
from captioning.errors import CaptioningError


class Calls:
    """Pickled as a call that makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def plain(content, path):
    path.write_bytes(pickle.dumps(content, protocol=2))


def zipped(content, path):
    torch.save(content, path)


def old(content, path):
    torch.save(content, path, _use_new_zipfile_serialization=False)


kinds = pytest.mark.parametrize("write", [plain, zipped, old])


@kinds
def test_a_call_is_refused_by_name_and_not_made(tmp_path, write):
    path, made = tmp_path / "file", tmp_path / "made"
    write({"weights": Calls(made)}, path)
    with pytest.raises(CaptioningError, match=r"posix\.mkdir|nt\.mkdir"):
        read_pickle(path)
    assert not made.exists()


@pytest.mark.parametrize(
    "text", [b"cos\nsystem\n(S'true'\ntR.", b"cbuiltins\neval\n(S'1'\ntR.", b"\x82\x01."]
)
def test_names_in_every_form_are_refused(tmp_path, text):
    path = tmp_path / "file.pkl"
    path.write_bytes(text)
    with pytest.raises(CaptioningError, match=r"file\.pkl"):
        read_pickle(path)


@pytest.mark.parametrize("write", [zipped, old])
def test_modules_are_left_as_their_attributes(tmp_path, write):
    layer, path = torch.nn.Linear(2, 3), tmp_path / "file.pth"
    write({"layer": layer}, path)
    found = read_pickle(path)["layer"]
    assert type(found) is Inert
    torch.testing.assert_close(found._parameters["weight"].read(), layer.weight.detach())
    assert found.in_features == 2


def test_text_of_python_2_is_latin_1(tmp_path):
    path = tmp_path / "file.pkl"
    path.write_bytes(b"\x80\x02}U\x01\xe9K\x01s.")
    assert read_pickle(path) == {"\xe9": 1}


def test_nesting_is_bounded(tmp_path):
    """Python would crash where it computes the hash of the innermost key."""
    path = tmp_path / "file.pkl"
    path.write_bytes(b"\x80\x02})" + 200_000 * b"\x85" + b"K\x01s.")
    with pytest.raises(CaptioningError, match="tuples"):
        read_pickle(path)


def test_steps_are_bounded(tmp_path):
    path = tmp_path / "file.pkl"
    path.write_bytes(b"\x80\x02](" + 2**22 * b"]" + b"e.")
    with pytest.raises(CaptioningError, match="steps"):
        read_pickle(path)


def test_compressed_archives_are_refused(tmp_path):
    stored, packed = tmp_path / "file.pth", tmp_path / "packed.pth"
    zipped({"a": torch.zeros(1000)}, stored)
    with zipfile.ZipFile(stored) as source, zipfile.ZipFile(packed, "w", 8) as target:
        for name in source.namelist():
            target.writestr(name, source.read(name))
    with pytest.raises(CaptioningError, match="compressed"):
        read_pickle(packed)


@kinds
def test_truncated_files_are_refused(tmp_path, write):
    path = tmp_path / "file"
    write({"a": torch.zeros(1000), "b": "text"}, path)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(CaptioningError, match="cannot read"):
        read_pickle(path)


@pytest.mark.filterwarnings("ignore:.torch.jit.script")
def test_programs_of_torchscript_are_refused_and_not_run(tmp_path):
    """PyTorch's own reader runs them whatever it is told to read."""
    packed, path = tmp_path / "packed.pth", tmp_path / "file.pth"
    torch.jit.script(torch.nn.Linear(2, 2)).save(packed)
    with zipfile.ZipFile(packed) as source, zipfile.ZipFile(path, "w") as target:
        for name in source.namelist():
            target.writestr(name, source.read(name))
    with pytest.raises(CaptioningError, match="__torch__"):
        read_pickle(path)


# attributes of a class of ours: by the state of an object, and beside it
SETTING = [
    b"\x80\x02cargparse\nNamespace\nN}U\x01aK\x01s\x86b.",
    b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\nN}U\x08__init__K\x01s\x86b.",
    b"\x80\x02ccollections\ndefaultdict\nN}U\x06updateK\x01s\x86b.",
    b"\x80\x02cargparse\nNamespace\n}U\x01aK\x01sb.",
]


@pytest.mark.parametrize("content", SETTING)
def test_classes_cannot_be_changed(tmp_path, content):
    path, before = tmp_path / "file.pkl", dict(vars(Inert))
    path.write_bytes(content)
    with pytest.raises(CaptioningError, match=r"file\.pkl"):
        read_pickle(path)
    assert dict(vars(Inert)) == before


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_numbers_and_arrays_of_numpy_are_passed_over(tmp_path, protocol):
    """As of scores and of random numbers, beside what is needed."""
    path = tmp_path / "file.pkl"
    content = {"best": np.float64(1.5), "state": np.arange(3), "words": ["a"]}
    path.write_bytes(pickle.dumps(content, protocol=protocol))
    assert read_pickle(path)["words"] == ["a"]


class OldParameter:
    """Pickled as PyTorch 0.4 did."""

    def __reduce__(self):
        return torch.nn.Parameter, (torch.ones(2, 3), True)


@pytest.mark.parametrize("write", [zipped, old])
def test_tensors_of_all_kinds(tmp_path, write):
    """Half and double precision, integers, a transposed part, a parameter of 2018, none."""
    half = torch.tensor([0.5, 2.0]).half()
    part = torch.arange(12.0).view(3, 4).double().T[1:, 1:]
    content = {"half": half, "part": part, "n": torch.tensor(7), "none": torch.zeros(0, 3)}
    write(content | {"parameter": OldParameter()}, path := tmp_path / "file.pth")
    state = tensors_of(read_pickle(path), "weights")
    for name, tensor in content.items():
        expected = tensor if name == "n" else tensor.float()
        torch.testing.assert_close(state[name], expected, rtol=0, atol=0)
    torch.testing.assert_close(state["parameter"], torch.ones(2, 3))


def test_what_a_pickle_reserves_is_bounded(tmp_path):
    path = tmp_path / "file.pkl"
    for content in (b"\x80\x02Nr\xff\xff\xff\x7f.", b"\x80\x04\x95" + 7 * b"\xff" + b"\x00N."):
        path.write_bytes(content)
        with pytest.raises(CaptioningError, match="bytes"):
            read_pickle(path)


@pytest.mark.parametrize(
    "tensors",
    [
        {"large": torch.zeros(1).expand(2**40)},
        {str(i): view for i, view in enumerate(torch.zeros(1000).expand(3, 1000))},
        {"axes": torch.zeros(9 * [1])},
        {"nan": torch.tensor([torch.nan])},
        {"none": None},
        {"text": "text"},
    ],
    ids=lambda tensors: next(iter(tensors)),
)
@pytest.mark.parametrize("write", [zipped, old])
def test_tensors_that_are_none_are_refused(tmp_path, write, tensors):
    """Larger than what is stored, three times the same, of nine axes, without a number."""
    write(tensors, path := tmp_path / "file.pth")
    with pytest.raises(CaptioningError, match="weights"):
        tensors_of(read_pickle(path), "weights")


@pytest.mark.parametrize("found", [{}, [1]])
def test_what_is_no_state_is_refused(found):
    with pytest.raises(CaptioningError, match="weights"):
        tensors_of(found, "weights")


def test_nothing_of_the_sources_is_imported(tmp_path):
    path = tmp_path / "file.pkl"
    path.write_bytes(b"\x80\x02cdata.vocab\nVocab\n)\x81}b.")
    assert type(read_pickle(path)) is Inert
    assert "data.vocab" not in sys.modules
