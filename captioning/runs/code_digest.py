"""SHA-256 of the code that decides a run's result.

That is the modules of this package and of the user's that the run's configuration reaches: those that define what its
`_target_`s name, that of the command, and what these import. Of each counts the syntax tree without docstrings, so that
neither another model beside it nor a comment makes a finished run a stranger.
"""

import ast
import functools
import hashlib
import inspect
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.util import resolve_name
from pathlib import Path

from hydra.utils import get_object

ENTRY = "captioning.work.run"
NOT_OF_RUNS = (
    "captioning.config.check",
    "captioning.config.command",
    "captioning.config.help",
    "captioning.config.paths",
    "captioning.config.settings",
    "captioning.config.types",
    "captioning.errors",
    "captioning.files",
    "captioning.progress",
    "captioning.report",
    "captioning.runs",
)
"""What refuses, keeps, finds or shows a run, and has no part in its result."""
_ROOT = Path(__file__).parents[2]
_LIBRARIES = tuple(map(Path, {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}))


@dataclass(frozen=True, slots=True)
class _Module:
    """What one source file adds: a digest, and the names that it imports, as (module, name or None, as)."""

    digest: str
    imports: tuple[tuple[str, str | None, str], ...]
    is_package: bool


def code_digest(targets: Iterable[str]) -> str:
    """Of the code that the `_target_`s of a configuration reach, as it was when this process started."""
    reached: dict[str, str] = {}
    waiting = [ENTRY, *map(_target_module, targets)]
    while waiting:
        name = waiting.pop()
        if name in reached or _is_below(name, NOT_OF_RUNS) or (module := _module(name)) is None:
            continue
        reached[name] = module.digest
        waiting += _imported(name, module)
    return hashlib.sha256(repr(sorted(reached.items())).encode()).hexdigest()


def _target_module(target: str) -> str:
    module = inspect.getmodule(get_object(target))
    return "" if module is None else module.__name__


def _imported(name: str, module: _Module) -> Iterator[str]:
    """The modules that one of ours imports; of packages only those that define the names it takes from them."""
    if _is_library(name):
        return
    packages = name.split(".")[:-1]
    yield from (".".join(packages[: i + 1]) for i in range(len(packages)))
    if not module.is_package:
        found = (_definer(source, taken) for source, taken, _ in module.imports if not _is_library(source))
        yield from (module_name for module_name in found if not _is_library(module_name))


def _definer(source: str, taken: str | None) -> str:
    """The module that defines what `from source import taken` gives."""
    if taken is None:
        return source
    if _module(full := f"{source}.{taken}") is not None:
        return full
    module = _module(source)
    if module is not None and module.is_package:
        for further, name, known_as in module.imports:
            if known_as == taken:
                return _definer(further, name)
    return source


@functools.cache
def _module(name: str) -> _Module | None:
    """None for what has no Python source, or is not there."""
    path = _path(name)
    if path is None:
        return None
    try:
        tree = ast.parse(_SOURCES[path] if path in _SOURCES else path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None
    is_package = path.name == "__init__.py"
    imports = tuple(_imports(tree, name if is_package else name.rpartition(".")[0]))
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list):
            body[:] = [statement for statement in body if not _is_docstring(statement)]
    if is_package:  # what it hands on counts where a module takes it
        tree.body = [node for node in tree.body if not _hands_on(node)]
    return _Module(hashlib.sha256(ast.unparse(tree).encode()).hexdigest(), imports, is_package)


def _is_docstring(node: ast.AST) -> bool:
    """Of a module, class or function, or below what it is about."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _hands_on(node: ast.stmt) -> bool:
    exports = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    return exports or isinstance(node, ast.Import | ast.ImportFrom)


def _imports(tree: ast.Module, package: str) -> Iterator[tuple[str, str | None, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None, alias.asname or alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = resolve_name("." * node.level + (node.module or ""), package)
            yield from ((source, alias.name, alias.asname or alias.name) for alias in node.names)


def _path(name: str) -> Path | None:
    """The source of a module of this package, or of another one that is imported."""
    if _is_below(name, ("captioning",)):
        below = _ROOT.joinpath(*name.split("."))
        return next((path for path in (below.with_suffix(".py"), below / "__init__.py") if path in _SOURCES), None)
    file = getattr(sys.modules.get(name), "__file__", None)
    return Path(file) if file and file.endswith(".py") else None


def _is_library(name: str) -> bool:
    path = _path(name)
    return not _is_below(name, ("captioning",)) and path is not None and any(map(path.is_relative_to, _LIBRARIES))


def _is_below(name: str, packages: Iterable[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


_SOURCES = {path: path.read_bytes() for path in (_ROOT / "captioning").rglob("*.py")}
"""As they are now: a later change of the files does not change what this process runs."""
