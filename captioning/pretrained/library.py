"""Folders of models of the library `transformers`: settings and weights, and no code."""

import hashlib
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from captioning.config.types import Config, given_path
from captioning.errors import CaptioningError, quoted
from captioning.files import LARGEST_INTEGER, MOST_LAYERS, read_bytes

LIBRARY = "transformers:"
"""In a checkpoint's name, before the folder of a model that was not trained here."""
API = "api:"
"""In a checkpoint's name, before the address of a server and the name of its model."""
UNTRAINED = "not trained here"
DATA: Config = {"language": "en", "tokens": "words", "root": None, "eval_batch_size": 16}
"""Settings of `data` of a captioner that was not trained here (D)."""
CONFIG = "config.json"


def read_folder(key: str, setting: object) -> tuple[Path, Config]:
    """The folder that a setting names, and the architecture in its `config.json`.

    Refuses one with code, with other weights than safetensors, or with a configuration of more
    layers or longer vectors than these have.
    """
    folder = given_path(str(setting).removeprefix(LIBRARY))
    if not (folder / CONFIG).is_file():
        raise CaptioningError(f"{key}={setting} is no folder with a {CONFIG} of transformers")
    for file in folder.glob(f"*{CONFIG}"):  # those of tokenizer and images too
        if b'"auto_map"' in read_bytes(file):
            raise CaptioningError(
                f"{key}={setting} asks to run code of its author (auto_map in {file.name}), which "
                "captioning does not: use a model whose classes are in transformers"
            )
    if not any(folder.glob("*.safetensors")):
        raise CaptioningError(
            f"{key}={setting} has no weights as *.safetensors; other files can run code when they "
            "are loaded: save it again by `save_pretrained` of transformers"
        )
    text = read_bytes(folder / CONFIG).decode()
    config = json.loads(text)
    if not isinstance(config, dict) or "${" in text:
        raise CaptioningError(f"{key}={setting} has a {CONFIG} that is not of transformers")
    shapes = tensor_shapes(folder)
    layers = max(MOST_LAYERS, len(shapes))
    largest = max(LARGEST_INTEGER, *itertools.chain(*shapes))
    for name, number in _integers("", config):
        # the library makes objects of Python for each layer and each label
        most = layers if "layer" in name or "label" in name else largest
        if number > most:
            raise CaptioningError(
                f"{key}={setting} describes far more than its weights: {quoted(name)} in {CONFIG} "
                f"exceeds {most:,}"
            )
    return folder, config


def tensor_shapes(folder: Path) -> list[list[int]]:
    """The shapes of all tensors in a folder, none of which is read."""
    from safetensors import safe_open  # here, as most commands name no such folder

    shapes = []
    for path in folder.glob("*.safetensors"):
        with safe_open(path, "np") as file:
            shapes += [file.get_slice(name).get_shape() for name in file.keys()]  # noqa: SIM118
    return shapes


def _integers(name: str, node: Any) -> Iterator[tuple[str, int]]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _integers(key, value)
    elif isinstance(node, list):
        for value in node:
            yield from _integers(name, value)
    elif isinstance(node, int):
        yield name, node


def library_digest(setting: object) -> str:
    """SHA-256 over the names and contents of the files in a folder: weights, settings, tokens."""
    sha, folder = hashlib.sha256(), given_path(str(setting).removeprefix(LIBRARY))
    for path in sorted(filter(Path.is_file, folder.iterdir())):
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        sha.update(f"{path.name} {content}\n".encode())
    return sha.hexdigest()


def is_untrained(setting: object) -> bool:
    """Tell whether a checkpoint was not trained here: a folder of the library, or a server."""
    return str(setting).startswith((LIBRARY, API))
