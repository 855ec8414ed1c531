"""The user's own modules that a run is made of."""

import sys
from pathlib import Path

import pytest
from refusals import refuses
from support import composed
from test_run_folder import found

from captioning.runs.folders.record import Record
from captioning.runs.folders.source import _content, digests, keep_source, own_source, use_source

FILES = {
    "mine/__init__.py": "import json",
    "mine/model.py": "from . import parts\nfrom .deep.layer import Layer\nimport torch, "
    "captioning.models",
    "mine/parts.py": "from helpers import mean as m",
    "mine/deep/__init__.py": "",
    "mine/deep/layer.py": "from ..scores import dot\nimport mine.absent, folder",
    "mine/scores.py": "",
    "mine/unused.py": "",
    "helpers.py": "def mean():\n    import late",
    "late.py": "import mine.model",
    "folder/nothing.txt": "",
    "words.py": "import split",
    "split.py": "",
    "F1.py": "",
    "torch_like/__init__.py": "",
    "installed/lib/__init__.py": "import helpers",
    "installed/lib-1.0.dist-info/RECORD": "",
}
OF_MODEL = ["helpers.py", "late.py", "mine/__init__.py", "mine/deep/__init__.py"]
OF_MODEL += ["mine/deep/layer.py", "mine/model.py", "mine/parts.py", "mine/scores.py"]


@pytest.fixture
def home(elsewhere, monkeypatch):
    for name, content in FILES.items():
        (elsewhere / name).parent.mkdir(parents=True, exist_ok=True)
        (elsewhere / name).write_text(content)
    for module in {Path(name).parts[0].removesuffix(".py") for name in FILES}:  # of another test
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setattr(sys, "path", [str(elsewhere), str(elsewhere / "installed"), *sys.path])
    return elsewhere


@pytest.mark.parametrize(
    "settings, expected",
    [
        ({}, []),
        ({"model": {"_target_": "mine.model.Model"}}, OF_MODEL),
        ({"model": {"_target_": "lib.Model", "of": {"_target_": "nowhere.Model"}}}, []),
        (
            {"metrics": {"val": ["F1"], "test": ["words.F1"], "timeout": 1}},
            ["split.py", "words.py"],
        ),
        ({"data": {"tokens": "split.letters"}}, ["split.py"]),
        ({"data": {"tokens": "words", "metrics": ["words.F1"]}}, ["split.py", "words.py"]),
        ({"any": {"deep": {"key": "words:F1"}}, "file": "folder/F1.py"}, ["split.py", "words.py"]),
        ({"modules": ["late", "F1"]}, sorted([*OF_MODEL, "F1.py"])),
    ],
    ids=str,
)
def test_modules_are_found_by_name_with_what_they_import(settings, expected, home):
    found = own_source({"data": {"tokens": "words"}} | settings)
    assert list(found) == expected
    assert all(content.decode() == FILES[path] for path, content in found.items())
    assert not {"mine", "helpers", "words"} & sys.modules.keys()  # nothing was imported


def test_an_interrupted_run_of_an_edited_module_is_not_continued(home):
    def begin():
        _content.cache_clear()  # as in a new process
        config = composed("+data.own._target_=mine.model.Reader", "resume=true")
        return found(config)

    with (first := begin()).open():
        pass
    for path in OF_MODEL:
        assert (first.path / "source" / path).read_text() == FILES[path]
    assert list(Record.of(first.path).source) == OF_MODEL
    assert begin().path == first.path
    (home / "helpers.py").write_text("def mean():\n    import split")
    with refuses(r"but helpers\.py, late\.py, split\.py changed"):
        begin()
    (home / "helpers.py").write_text(FILES["helpers.py"] + "  # too")  # to the byte
    with refuses(f"helpers.py changed .*{first.path}/source has"):
        begin()


@pytest.mark.parametrize(
    "modules, present, imported, warned",
    [
        ([], False, False, False),
        (["other"], False, False, False),
        (["kept"], False, True, False),
        (["kept.model"], False, True, False),
        (["kept"], True, False, True),  # the user's own comes first
    ],
)
def test_a_run_folder_gives_only_what_is_named_and_nowhere_else(
    modules, present, imported, warned, home, caplog
):
    keep_source(home / "run", {"kept/model.py": b"x = 1", "beside.py": b""})
    if present:
        (home / "kept").mkdir()
        (home / "kept" / "model.py").write_text("x = 2")
    use_source(home / "run", modules)
    assert (str(home / "run" / "source") in sys.path) == imported
    assert ("kept/model.py is not as it was" in caplog.text) == warned


def test_digests_are_of_the_bytes():
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"  # of FIPS 180-4
    assert digests({"a.py": b""}) == {"a.py": empty}
