"""Checkpoints of `captioning.run`: read with distrust, and matched with the networks that this version builds."""

import inspect
import pickle
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from hydra.errors import InstantiationException
from hydra.utils import get_object, instantiate
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn

from captioning.config.signatures import check_settings
from captioning.errors import CaptioningError


def read(path: Path) -> dict[str, Any]:
    """What `captioning.run` has saved, on the CPU.

    Raises:
        CaptioningError: the file is missing or damaged, is something else, or holds code.
    """
    if not path.is_file():
        below = path / "checkpoints" / "best.ckpt"
        hint = f"did you mean {below}?" if below.is_file() else "a run leaves RUN_FOLDER/checkpoints/best.ckpt"
        raise CaptioningError(f"checkpoint={path} is {'a folder' if path.is_dir() else 'not there'}; {hint}")
    if not zipfile.is_zipfile(path):  # as everything is that `torch.save` writes; its index is at the end
        raise CaptioningError(f"checkpoint={path} is no file that captioning.run has saved, or only a part of one")
    try:
        with zipfile.ZipFile(path) as archive:
            if damaged := archive.testzip():  # which torch does not look at
                raise CaptioningError(f"checkpoint={path} is damaged: its part {damaged} has another checksum")
        saved = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise CaptioningError(
            f"checkpoint={path} is refused: it holds Python objects, which can run code when loaded; "
            "those of captioning.run hold tensors and plain values only"
        ) from error
    except CaptioningError:
        raise
    except Exception as error:  # a damaged file can fail anywhere in torch's readers
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CaptioningError(f"cannot read checkpoint={path}: {reason}") from error
    if not isinstance(saved, dict) or not {"captioning", "state_dict"} <= saved.keys():
        found = f"a dict of {', '.join(map(str, list(saved)[:5]))}" if isinstance(saved, dict) else type(saved).__name__
        raise CaptioningError(f"checkpoint={path} is no checkpoint of captioning.run: it holds {found}")
    return saved


def build(path: str | Path, config: DictConfig, part: str, **sizes: Any) -> Any:
    """The object that the run called `part`: a network, a search or a reader.

    A configuration may name any function, with any arguments, and this one comes with a file: nothing else is called.

    Raises:
        CaptioningError: there is no such class or setting in this version, or it is none of the three.
    """
    node = OmegaConf.to_container(config[part])
    try:
        check_settings(part, node)
        for target in _targets(node):
            if not _is_part(get_object(target)):
                raise CaptioningError(
                    f"{part} names {target}, which is neither a network nor a search nor a reader, and is not called"
                )
        return instantiate(config[part], **sizes)
    except (CaptioningError, InstantiationException) as error:
        reason = error.__cause__ if isinstance(error, InstantiationException) and error.__cause__ else error
        raise CaptioningError(f"checkpoint={path} does not fit this version of captioning: {reason}") from error


def _targets(node: Any) -> Iterator[str]:
    if isinstance(node, Mapping):
        if "_target_" in node:
            yield node["_target_"]
        node = list(node.values())
    if isinstance(node, list):
        for value in node:
            yield from _targets(value)


def _is_part(found: Any) -> bool:
    """Whether it is a search, or the class of networks, of filters, or of readers (or splits), called with nothing."""
    if inspect.isclass(found):
        calls = [vars(base)["__call__"] for base in found.__mro__ if "__call__" in vars(base)]
        arguments = list(inspect.signature(calls[0]).parameters) if calls else None
        return issubclass(found, nn.Module) or arguments in (["self"], ["self", "log_probs", "history"])
    return inspect.isfunction(found) and list(inspect.signature(found).parameters)[:2] == ["model", "context"]


def fill(path: str | Path, name: str, network: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Loads what the checkpoint's `state` has under `name`, which must be all of the network and nothing else.

    Raises:
        CaptioningError: tensors are missing, unexpected or of another shape.
    """
    prefix = f"{name}."
    saved = {key.removeprefix(prefix): tensor for key, tensor in state.items() if key.startswith(prefix)}
    compare(path, network.state_dict(), saved, prefix)
    network.load_state_dict(saved)


def compare(path: str | Path, own: Mapping[str, Tensor], saved: Mapping[str, Tensor], prefix: str = "") -> None:
    """Refuses tensors of a checkpoint that are not those of this version's network, named with `prefix`.

    Raises:
        CaptioningError: tensors are missing, unexpected or of another shape.
    """
    problems = {
        "missing": [key for key in own if key not in saved],
        "unexpected": [key for key in saved if key not in own],
        "of another shape": [key for key in own if key in saved and own[key].shape != saved[key].shape],
    }
    found = [
        f"{len(keys)} {kind}: {', '.join(prefix + key for key in keys[:3])}{', ...' if len(keys) > 3 else ''}"
        for kind, keys in problems.items()
        if keys
    ]
    if found:
        raise CaptioningError(f"checkpoint={path} does not fit this version of captioning: {'; '.join(found)}")
