"""The user's own modules that a run is made of: found by name, kept in its folder, and compared.

They are found without being imported, and so are the modules beside them that they import, and what
those import.
"""

import ast
import functools
import hashlib
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from captioning.config.registry import PACKAGE, each_part

FOLDER = "source"
"""Of a run folder, with the modules as they were when the run began."""

log = logging.getLogger(__name__)


def own_source(config: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the own modules that a resolved configuration names, and those that they import.

    Returns:
        Contents by path, such as `show_tell.py`, relative to the folder from which Python imports.
    """
    waiting = _named(config)
    found: dict[str, bytes] = {}
    while waiting:
        for path, file in _files(waiting.pop()):
            if path not in found:
                found[path] = _content(file)
                waiting += _imported(path, found[path])
    return dict(sorted(found.items()))


def digests(source: Mapping[str, bytes]) -> dict[str, str]:
    """SHA-256 of each module, by path."""
    return {path: hashlib.sha256(content).hexdigest() for path, content in source.items()}


def keep_source(folder: Path, source: Mapping[str, bytes]) -> None:
    """Write the modules into a run folder."""
    for path, content in source.items():
        file = folder / FOLDER / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


def use_source(folder: Path, modules: Sequence[str]) -> None:
    """Import those of the caller's `modules` that are nowhere else from a run folder; warn of
    others that differ.
    """
    kept = folder / FOLDER
    if not modules or not kept.is_dir():
        return
    for path in sorted(each.relative_to(kept) for each in kept.rglob("*.py")):
        name = path.parts[0].removesuffix(".py")
        spec, root = _spec(name), _root(name)
        if spec is None and any(module.partition(".")[0] == name for module in modules):
            log.info("%s is imported from %s", name, kept)
            sys.path.append(str(kept))
        now = (root or kept) / path
        if now.is_file() and now.read_bytes() != (kept / path).read_bytes():
            log.warning(
                "%s is not as it was when the checkpoint was trained: see %s", now, kept / path
            )


def _named(config: Mapping[str, Any]) -> list[str]:
    """Modules, classes and functions that settings name."""
    metrics = [
        name
        for names in (config.get("metrics") or {}).values()
        if isinstance(names, list)
        for name in names
    ]
    functions = [name for name in (*metrics, config["data"].get("tokens")) if "." in str(name)]
    return [
        *(part["_target_"] for _, part in each_part("", config)),
        *functions,
        *config.get("modules", ()),
    ]


def _files(name: str) -> Iterator[tuple[str, Path]]:
    """The own module files among `a`, `a.b` and `a.b.c`, with their paths below the folder that has
    `a`.
    """
    first, *others = name.split(".")
    root = _root(first)
    for number in range(len(others) + 1 if root else 0):
        base = Path(first, *others[:number])
        for path in (base / "__init__.py", base.with_name(f"{base.name}.py")):
            if root and (root / path).is_file():
                yield path.as_posix(), root / path
                break


def _spec(name: str) -> ModuleSpec | None:
    try:
        return find_spec(name)
    except (ImportError, ValueError):  # of a module that is no file
        return None


def _root(name: str) -> Path | None:
    """The folder from which Python imports a top-level module, unless it is installed or of Python
    itself.
    """
    spec = _spec(name)
    places = list((spec.submodule_search_locations or [str(spec.origin)]) if spec else ())
    if not places or places[0] in ("built-in", "frozen"):
        return None
    place = Path(places[0])
    installed = place.parent == Path(ast.__file__).parent or any(place.parent.glob("*.dist-info"))
    return None if installed or place == PACKAGE else place.parent


@functools.cache
def _content(file: Path) -> bytes:
    """The module as it was when it was first asked for, which is what a long process has
    imported.
    """
    return file.read_bytes()


def _imported(path: str, content: bytes) -> Iterator[str]:
    """Absolute names of what a module imports, wherever in it."""
    package = Path(path).parent.parts
    try:
        nodes = list(ast.walk(ast.parse(content)))
    except SyntaxError:  # the import will fail, and say so
        return
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else ()
            module = [*base, *([node.module] if node.module else [])]
            yield from (".".join([*module, alias.name]) for alias in node.names)
