"""Pickles of strangers: what they name is not run, and what they may hold is bounded."""

import os
import pickle
import sys
import zipfile

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
    torch.testing.assert_close(found._parameters["weight"], layer.weight)
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


def test_tensors_larger_than_their_storage_are_refused():
    with pytest.raises(CaptioningError, match="large"):
        tensors_of({"large": torch.zeros(1).expand(2**40)}, "weights")


@pytest.mark.parametrize("found", [{}, [1], {"a": "text"}, {"a": torch.eye(2).to_sparse()}])
def test_what_is_no_state_is_refused(found):
    with pytest.raises(CaptioningError, match="weights"):
        tensors_of(found, "weights")


def test_nothing_of_the_sources_is_imported(tmp_path):
    path = tmp_path / "file.pkl"
    path.write_bytes(b"\x80\x02cdata.vocab\nVocab\n)\x81}b.")
    assert type(read_pickle(path)) is Inert
    assert "data.vocab" not in sys.modules
