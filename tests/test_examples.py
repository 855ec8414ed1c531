"""The examples in docstrings of the package give what they show."""

import doctest
from importlib import import_module

import pytest

from captioning.config.registry import PACKAGE

FILES = [file for file in sorted(PACKAGE.rglob("*.py")) if ">>> " in file.read_text("utf-8")]
MODULES = [".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts) for file in FILES]


@pytest.mark.parametrize("module", MODULES)
def test_an_example_gives_what_it_shows(module):
    result = doctest.testmod(import_module(module))
    assert result.attempted
    assert not result.failed
