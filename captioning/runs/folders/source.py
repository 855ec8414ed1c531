"""The user's own modules that a run is made of: found by name, kept in its folder, and compared.

They are found without being imported, and so are the modules beside them that they import, and what
those import.
"""

import contextlib
import functools
import logging
import re
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from modulefinder import ModuleFinder
from pathlib import Path
from typing import Any

from captioning.config.registry import PACKAGE
from captioning.config.types import Config
from captioning.files import sha256
from captioning.runs.settings import each_setting

DOTTED = re.compile(r"[^\W\d]\w*([.:][^\W\d]\w*)+")
FOLDER = "source"
"""Of a run folder, with the modules as they were when the run began."""

log = logging.getLogger(__name__)

# a module as it was when it was first asked for, which is what a long process has imported
_content = functools.cache(Path.read_bytes)


class _Finder(ModuleFinder):
    def find_module(self, name: str, path: Any, parent: Any = None) -> Any:
        try:
            return super().find_module(name, path, parent)
        except AttributeError as error:  # a folder without __init__.py
            raise ImportError(name) from error


def own_source(config: Config) -> dict[str, bytes]:
    """Return the own modules that a resolved configuration names, and those that they import.

    Returns:
        Contents by path, such as `show_tell.py`, relative to the folder from which Python imports.
    """
    folders = [folder for folder in sys.path if _is_own(Path(folder))]
    finder = _Finder(folders, excludes=[PACKAGE.name])
    for name in _named(config):
        with contextlib.suppress(ImportError, SyntaxError):  # the last part is a class or function
            finder.import_hook(name)
    source = {}
    for name, module in finder.modules.items():
        file = Path(getattr(module, "__file__", None) or "")
        if file.suffix == ".py":
            folder = file.parents[name.count(".") + (file.name == "__init__.py")]
            source[file.relative_to(folder).as_posix()] = _content(file)
    return dict(sorted(source.items()))


def _is_own(folder: Path) -> bool:
    """Whether neither Python nor an installer keeps its modules in a folder."""
    return folder != Path(contextlib.__file__).parent and not any(folder.glob("*.dist-info"))


def digests(source: Mapping[str, bytes]) -> dict[str, str]:
    """SHA-256 of each module, by path."""
    return {path: sha256(content) for path, content in source.items()}


def keep_source(folder: Path, source: Mapping[str, bytes]) -> None:
    """Write the modules into a run folder."""
    for path, content in source.items():
        file = folder / FOLDER / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


def use_source(folder: Path, modules: Sequence[str]) -> None:
    """Import `modules` of the caller that are nowhere else from a run folder.

    Warn of others that differ.
    """
    kept = folder / FOLDER
    if not modules or not kept.is_dir():
        return
    for name in {module.partition(".")[0] for module in modules}:
        files = [kept / f"{name}.py", *(kept / name).rglob("*.py")]
        if (files[1:] or files[0].is_file()) and find_spec(name) is None:
            log.info("%s is imported from %s", name, kept)
            sys.path.append(str(kept))
    for path in sorted(kept.rglob("*.py")):
        every = (Path(entry) / path.relative_to(kept) for entry in sys.path)
        now = next((file for file in every if file.is_file()), path)
        if now.read_bytes() != path.read_bytes():
            log.warning("%s is not as it was when the checkpoint was trained: see %s", now, path)


def _named(config: Config) -> list[str]:
    """What may be a module, class or function: `a.b` and `a:b` in any setting, and `modules`."""
    names = list(config.get("modules", ()))
    for _, value in each_setting(config):
        texts = value if isinstance(value, list) else [value]
        names += [text.replace(":", ".") for text in map(str, texts) if DOTTED.fullmatch(text)]
    return names
