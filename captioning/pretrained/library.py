"""Folders of models of the library `transformers`: settings and weights, and no code."""

import hashlib
import json
from pathlib import Path
from typing import Any, Final

from captioning.errors import CaptioningError
from captioning.files import read_bytes
from captioning.pretrained.named import given_path

LIBRARY: Final = "transformers:"
"""In a checkpoint's name, before the folder of a model that was not trained here."""
UNTRAINED: Final = "not trained here"
CONFIG = "config.json"


def library_folder(key: str, setting: object) -> Path:
    """The folder that a setting names.

    Refuses one with code, or with other weights than safetensors.
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
    return folder


def library_digest(setting: object) -> str:
    """SHA-256 over the names and contents of the files in a folder: weights, settings, tokens."""
    sha, folder = hashlib.sha256(), given_path(str(setting).removeprefix(LIBRARY))
    for path in sorted(filter(Path.is_file, folder.iterdir())):
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        sha.update(f"{path.name} {content}\n".encode())
    return sha.hexdigest()


def is_library(setting: object) -> bool:
    """Tell whether a checkpoint is a folder of the library."""
    return str(setting).startswith(LIBRARY)


def read_config(key: str, setting: object) -> dict[str, Any]:
    """The architecture in the `config.json` of a folder."""
    text = read_bytes(library_folder(key, setting) / CONFIG).decode()
    config = json.loads(text)
    if not isinstance(config, dict) or "${" in text:
        raise CaptioningError(f"{key}={setting} has a {CONFIG} that is not of transformers")
    return config
