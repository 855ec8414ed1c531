"""Paths that settings name, through one function."""

import ast
from pathlib import Path

import pytest
from refusals import refuses

import captioning
from captioning import predict, run
from captioning.backbones.precomputed import Precomputed
from captioning.backbones.weights import load_weights
from captioning.config.types import UserPath, given_path, validated
from captioning.data.example import Example, image_names
from captioning.data.subwords import read_tokenizer
from captioning.export.__main__ import main as export
from captioning.report.__main__ import main as report
from captioning.runs.__main__ import main as runs

PACKAGE = Path(captioning.__file__).parent
NOBODY = "~nobody-of-that-name/x"


def test_one_function_replaces_the_sign_of_a_home():
    users = {
        (path.relative_to(PACKAGE).as_posix(), function.name)
        for path in PACKAGE.rglob("*.py")
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute) and node.attr in ("expanduser", "home", "getpwnam")
    }
    assert users == {("config/types.py", "given_path")}


@pytest.mark.parametrize("name", [NOBODY, "~a\0b", "~\ud83d/x"])
def test_the_home_of_nobody_is_a_name(name):
    @validated
    def path(value: UserPath):
        return value

    assert given_path(name) == path(name) == Path(name)
    assert image_names([Example(1, Path("a.jpg"), ())], name) == [str(Path("a.jpg").absolute())]


def test_the_home_of_nobody_is_not_there(refused, monkeypatch):
    monkeypatch.setenv("HOME", "/home/of mine")
    assert given_path("~/x") == Path("/home/of mine/x")
    for main, *settings in (
        (run.main, f"data.vocabulary.subwords={NOBODY}"),
        (run.main, "data=flickr8k", f"data.root={NOBODY}"),
        (run.main, f"init_from={NOBODY}"),
        (predict.main, f"images={NOBODY}"),
        (predict.main, "a.jpg", f"checkpoint={NOBODY}"),
        (report, f"runs={NOBODY}"),
        (runs, f"folders=[{NOBODY}]"),
        (export, f"checkpoint={NOBODY}"),
    ):
        assert NOBODY in refused(main, *settings, out=None), settings


def test_files_below_the_home_of_nobody():
    with refuses("cannot read"):
        Precomputed(NOBODY).prepare({"train": []})
    with refuses("backbone.weights"):
        load_weights(None, (), NOBODY)
    with refuses("data.vocabulary.subwords"):
        read_tokenizer(NOBODY)
