"""What the source of a class says of its parameters, beside what the class says once it is imported."""

import re
from typing import Any

import pytest

from captioning.config.foreign import foreign_bounds
from captioning.config.registry import CONF
from captioning.config.signatures import _located
from captioning.config.source import source_hints
from captioning.config.types import hints_of

TARGETS = sorted(
    {
        target
        for file in CONF.rglob("*.yaml")
        for target in re.findall(r"_target_: *((?:captioning|lightning|torch)\.[\w.]+)", file.read_text())
    }
)


@pytest.mark.parametrize("target", TARGETS)
def test_says_what_the_import_says(target: str) -> None:
    found = _located(target)
    bounds = foreign_bounds(found)
    imported = hints_of(found) | bounds if target.startswith("captioning") else bounds
    imported.pop("return", None)
    read = source_hints(target)
    assert set(read) <= set(imported)
    for name, hint in imported.items():
        if read.get(name, Any) != hint:
            assert re.search(r"captioning\.\w+\.|torch\.", str(hint)), name  # only an import knows such a class
