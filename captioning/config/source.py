"""Bounds of settings read from the source of the class that they are given to, without importing it.

A class of this package imports PyTorch, which takes seconds, and a wrong value is to be said at once. What cannot be
read here, a type that is not known without an import or a class of the user's, is not judged: it is judged again, as
everything is, by `captioning.config.signatures` before a run begins.
"""

import ast
import builtins
import functools
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from captioning.config.foreign import BOUNDS
from captioning.config.registry import PACKAGE
from captioning.config.signatures import check_value, each_part

CHEAP = ("annotated_types", "collections.abc", "pathlib", "pydantic", "typing", "captioning.config.types")
"""Modules whose names stand in annotations."""
CONSTANT = (ast.Constant, ast.Subscript, ast.BinOp)
"""What a name in an annotation stands for: a number, or another annotation."""


def check_sources(path: str, node: Any) -> None:
    """Checks the values below every `_target_` of a resolved configuration, `path` its key.

    Raises:
        CaptioningError: a value is not allowed.
    """
    for key, part in each_part(path, node):
        hints = source_hints(str(part["_target_"]))
        for name in part.keys() & hints.keys():
            check_value(f"{key}.{name}", part[name], hints[name])


def source_hints(target: str) -> Mapping[str, Any]:
    """The annotations of the parameters of what `target` names, those that can be read, by their names."""
    package, _, name = target.partition(".")
    module, _, name = name.rpartition(".")
    if package == PACKAGE.name:
        return _hints(module, name)
    owner = "Optimizer" if target.startswith("torch.optim.") else name
    known = (bounds for key, bounds in BOUNDS.items() if key.startswith(f"{package}.") and key.endswith(f".{owner}"))
    return next(known, {})


@functools.cache
def _hints(module: str, name: str) -> Mapping[str, Any]:
    names, statements = _read(module)
    for node in statements:
        if isinstance(node, ast.ImportFrom) and node.module:
            origin, _, below = node.module.partition(".")
            if origin == PACKAGE.name and any((alias.asname or alias.name) == name for alias in node.names):
                return _hints(below, name)
        elif isinstance(node, ast.FunctionDef) and node.name == name:
            return _parameters(node, names)
        elif isinstance(node, ast.ClassDef) and node.name == name:
            begin = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
            bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
            fields = {each.target.id: _value(each.annotation, names) for each in _fields(node)}
            inherited = {key: hint for base in reversed(bases) for key, hint in _hints(module, base).items()}
            return _parameters(begin[0], names) if begin else inherited | fields
    return {}


@functools.cache
def _read(module: str) -> tuple[dict[str, Any], list[ast.stmt]]:
    """What an annotation of the module can name, and the module's statements."""
    folder = PACKAGE.joinpath(*module.split("."))
    file = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    if not file.is_file():
        return {}, []
    statements = ast.parse(file.read_text(encoding="utf-8")).body
    names: dict[str, Any] = vars(builtins).copy()
    for node in statements:
        if isinstance(node, ast.ImportFrom) and node.module:
            origin, _, below = node.module.partition(".")
            cheap = node.module in CHEAP
            found = vars(import_module(node.module)) if cheap else _read(below)[0] if origin == PACKAGE.name else {}
            names.update({alias.name: found[alias.name] for alias in node.names if alias.name in found})
        elif isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, CONSTANT):
            value = _value(node.value, names)
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names.update({target.id: value for target in targets if isinstance(target, ast.Name)})
    return names, statements


def _fields(node: ast.ClassDef) -> Iterator[Any]:
    """Of a dataclass."""
    return (each for each in node.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name))


def _parameters(node: ast.FunctionDef, names: dict[str, Any]) -> dict[str, Any]:
    each = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
    return {argument.arg: _value(argument.annotation, names) for argument in each if argument.annotation}


def _value(expression: ast.expr, names: dict[str, Any]) -> Any:
    try:
        return eval(compile(ast.Expression(expression), "annotation", "eval"), names)  # of this package's own source
    except Exception:  # it names what only an import would bring
        return Any
