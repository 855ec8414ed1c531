"""Folders of models of the library `transformers`: settings and weights, and no code."""

import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from captioning.config.types import Config, given_path
from captioning.errors import CaptioningError, quoted
from captioning.files import (
    LARGEST_INTEGER,
    LARGEST_JSON,
    LARGEST_SIDE,
    MAX_HEADER,
    MOST_LAYERS,
    digest_of_file,
    open_bounded,
    read_bytes,
)

LIBRARY = "transformers:"
"""In a checkpoint's name, before the folder of a model that was not trained here."""
UNTRAINED = "not trained here"
DATA: Config = {"language": "en", "tokens": "words", "root": None, "eval_batch_size": 16}
"""Settings of `data` of a captioner that was not trained here (D)."""
CONFIG = "config.json"
FOREIGN = (
    "auto_map, trust_remote_code, init_inputs, gguf_file, audio_tokenizer, quantization_config, "
    "base_model_name_or_path, attn_implementation, _attn_implementation, "
    "experts_implementation, _experts_implementation"
)
"""Settings by which `transformers` runs code of a folder's author, or loads something else."""
NETWORKS = "architecture, backbone"
"""Settings that name a network of timm, which also takes an address or a folder."""


def read_folder(key: str, setting: object) -> tuple[Path, Config]:
    """The folder that a setting names, and the architecture in its `config.json`.

    Refuses one with code, with other weights than safetensors, or with a configuration of more
    layers or longer vectors than these have.
    """
    given, folder = f"{key}={setting}", given_path(str(setting).removeprefix(LIBRARY))
    if not (folder / CONFIG).is_file():
        raise CaptioningError(f"{given} is no folder with a {CONFIG} of transformers")
    # those of tokenizer and images too
    settings = {file.name: read_settings(given, file) for file in folder.glob(f"*{CONFIG}")}
    if not any(folder.glob("*.safetensors")):
        raise CaptioningError(
            f"{given} has no weights as *.safetensors; other files can run code when they are "
            "loaded: save it again by `save_pretrained` of transformers"
        )
    config = settings[CONFIG]
    if not isinstance(config, dict) or "${" in json.dumps(config):
        raise CaptioningError(f"{given} has a {CONFIG} that is not of transformers")
    check_sizes(given, config, tensor_shapes(folder))
    return folder, config


def read_settings(given: str, file: Path) -> Any:
    """Read a JSON file of a folder; refuse settings that run code or load something else.

    Args:
        given: the setting that names the folder, and its value.
        file: the file.
    """

    def check(node: Config) -> Config:
        named = node.keys() & NETWORKS.split(", ")
        refused = {name for name in named if re.search("[:/]", str(node[name]))}
        for name in sorted(refused | node.keys() & FOREIGN.split(", ")):
            raise CaptioningError(
                f"{given} has {quoted(name)} in {file.name}, a setting that may run code of its "
                "author or load something else, which captioning does not: use a model whose "
                "classes are in the library"
            )
        return node

    try:
        return json.loads(read_bytes(file, LARGEST_JSON), object_hook=check)
    except (ValueError, RecursionError) as error:
        raise CaptioningError(f"{given} has a damaged {file.name}: {quoted(error)}") from error


def check_sizes(given: str, config: Config, shapes: Sequence[Sequence[int]] = ()) -> None:
    """Refuse a configuration of more layers or longer vectors than tensors of these shapes have.

    Args:
        given: the setting that names the folder, and its value.
        config: the configuration.
        shapes: those of the weights, if they are known.
    """
    layers = max(MOST_LAYERS, len(shapes))
    largest = max(LARGEST_INTEGER, *itertools.chain([0], *filter(math.prod, shapes)))
    for name, number in _integers("", config):
        # the library makes objects of Python for each layer and each label
        most = layers if "layer" in name or "label" in name else largest
        if number > (LARGEST_SIDE if name == "image_size" else most):
            raise CaptioningError(
                f"{given} describes far more than its weights: {quoted(name)}={quoted(number)} in "
                "its configuration"
            )


def tensor_shapes(folder: Path) -> list[list[int]]:
    """The shapes of all tensors in a folder, none of which is read."""
    from safetensors import safe_open  # here, as most commands name no such folder

    shapes = []
    for path in folder.glob("*.safetensors"):
        with open_bounded(path, math.inf) as start:
            if int.from_bytes(start.read(8), "little") > MAX_HEADER:
                raise CaptioningError(f"{path} has a header of more than {MAX_HEADER:,} bytes")
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
        sha.update(f"{path.name} {digest_of_file(path)}\n".encode())
    return sha.hexdigest()


def is_untrained(setting: object) -> bool:
    """Tell whether a checkpoint was not trained here, but is a folder of the library."""
    return str(setting).startswith(LIBRARY)
