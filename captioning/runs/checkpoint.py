"""Checkpoints of `captioning.run`: read with distrust, and matched with the networks that this version builds.

A checkpoint is a file of `torch.save` that loads with `weights_only=True`, or for captioning alone one of safetensors
(`captioning.runs.weights_file`). Its `digest` is over all that it holds, so that a damaged file is known for one,
wherever the damage is.
"""

import math
import pickle
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from captioning.config.paths import check_checkpoint
from captioning.config.registry import renewed
from captioning.decoding.confidence import are_quantiles
from captioning.errors import CaptioningError, quoted
from captioning.runs import weights_file
from captioning.runs.digest import digest

SECTIONS = ("backbone", "model", "decoding", "data")
"""Parts of a run's configuration that captioning needs."""
FACTORIES = {"empty", "empty_strided", "zeros", "ones", "full", "arange", "linspace", "eye", "rand", "randn"}
"""The operations of PyTorch that make tensors of a size that is only a number."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What captioning needs of a checkpoint.

    Attributes:
        path: of the file.
        config: the resolved configuration of the run, plain values.
        words: of the vocabulary.
        state: tensors by name, those of the networks begin with `backbone.` and `model.`.
        score: what validation gave them, as `val/CIDEr 54.3`, or a test, where that is recorded.
        quantiles: of the scores of the validation captions (`captioning.decoding.confidence`); none where they were not
            kept.
    """

    path: Path
    config: dict[str, Any]
    words: list[str]
    state: dict[str, Tensor]
    score: str | None
    quantiles: list[float]

    @property
    def networks(self) -> dict[str, Tensor]:
        """Of the state what captions; the rest is the objective's, such as a baseline."""
        return {name: tensor for name, tensor in self.state.items() if name.startswith(("backbone.", "model."))}


def load(path: Path) -> Checkpoint:
    """A captioner's checkpoint, or what `captioning.export` has made of one.

    Raises:
        CaptioningError: as for `read`; or its configuration, vocabulary or weights are none.
    """
    saved = weights_file.read(path) if weights_file.is_safetensors(path) else read(path)
    inside = saved["captioning"]
    config, words = (inside.get("config"), inside.get("words")) if isinstance(inside, dict) else (None, None)
    state = saved["state_dict"]
    if not isinstance(config, dict) or not all(isinstance(config.get(name), dict) for name in SECTIONS):
        raise _no_captioner(path, f"its configuration has not the sections {', '.join(SECTIONS)}")
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise _no_captioner(path, "its vocabulary is no list of words")
    if not isinstance(state, dict) or not all(isinstance(k, str) and isinstance(t, Tensor) for k, t in state.items()):
        raise _no_captioner(path, "its state_dict does not hold tensors by their names alone")
    for name, tensor in state.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise _no_captioner(path, f"its weights {quoted(name)} are not all numbers (NaN or infinite)")
    quantiles = inside.get("quantiles", [])
    if not are_quantiles(quantiles):
        raise _no_captioner(path, "the quantiles of its scores are no ascending list of numbers")
    score = quoted(inside["score"]) if inside.get("score") else _score(saved.get("callbacks"))
    return Checkpoint(path, renewed(config), words, state, score, quantiles)


def _score(callbacks: Any) -> str | None:
    """From what Lightning's `ModelCheckpoint` has saved of itself."""
    for saved in callbacks.values() if isinstance(callbacks, dict) else ():
        score = saved.get("current_score") if isinstance(saved, dict) else None
        if isinstance(score, Tensor) and score.is_floating_point() and score.numel() == 1:
            return f"{quoted(saved.get('monitor'))} {float(score):.4g}"
    return None


def _no_captioner(path: Path, reason: str) -> CaptioningError:
    return CaptioningError(f"checkpoint={path} cannot be used: {reason}")


def read(path: Path) -> dict[str, Any]:
    """What `captioning.run` has saved, on the CPU, whole: `captioning`, `state_dict` and what resuming needs.

    Raises:
        CaptioningError: the file is missing or damaged, is something else, or holds code.
    """
    check_checkpoint("checkpoint", path)
    if weights_file.is_safetensors(path):
        raise CaptioningError(
            f"checkpoint={path} is a safetensors file, and no such file holds what training goes on from; a captioner "
            f"of captioning.export is begun from in a new run, with init_from={path}"
        )
    try:
        if not zipfile.is_zipfile(path):  # as everything is that `torch.save` writes; its index is at the end
            raise CaptioningError(f"checkpoint={path} is no file that captioning.run has saved, or only a part of one")
        with zipfile.ZipFile(path) as archive:
            members, size = archive.infolist(), path.stat().st_size
            # `torch.save` packs nothing; a few packed or shared bytes could be terabytes
            if any(m.compress_type != zipfile.ZIP_STORED for m in members) or sum(m.file_size for m in members) > size:
                raise CaptioningError(f"checkpoint={path} is no file that captioning.run has saved: it is compressed")
            if damaged := archive.testzip():  # which torch does not look at
                raise CaptioningError(f"checkpoint={path} is damaged: its part {damaged} has another checksum")
        saved = torch.load(path, map_location="cpu", weights_only=True)
        if not isinstance(saved, dict) or not {"captioning", "state_dict"} <= saved.keys():
            keys = f"a dict of {', '.join(map(quoted, list(saved)[:5]))}" if isinstance(saved, dict) else None
            raise CaptioningError(
                f"checkpoint={path} is no checkpoint of captioning.run: it holds {keys or type(saved).__name__}"
            )
        expected = saved.pop("digest", None)
        if expected is None:
            raise CaptioningError(f"checkpoint={path} does not fit this version of captioning: it has no digest")
        if expected != digest(saved, most=16 * size + 2**26):
            raise CaptioningError(f"checkpoint={path} is damaged: its content has another digest than was saved")
    except pickle.UnpicklingError as error:
        raise CaptioningError(
            f"checkpoint={path} is refused: it holds Python objects, which can run code when loaded; "
            "those of captioning.run hold tensors and plain values only"
        ) from error
    except (CaptioningError, MemoryError):
        raise
    except Exception as error:  # a damaged file can fail anywhere in the readers of torch and zipfile
        raise CaptioningError(f"checkpoint={path} is damaged and cannot be read: {quoted(error)}") from error
    return saved


def sealed(content: dict[str, Any]) -> dict[str, Any]:
    """The content of a checkpoint with its digest."""
    return {**content, "digest": digest(content)}


def fill_network(path: Path, name: str, network: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Loads what the checkpoint's `state` has under `name`, which must be all of the network and nothing else.

    Raises:
        CaptioningError: tensors are missing, unexpected or of another shape or kind.
    """
    prefix = f"{name}."
    saved = {key.removeprefix(prefix): tensor for key, tensor in state.items() if key.startswith(prefix)}
    compare(path, network.state_dict(), saved, prefix)
    network.load_state_dict(saved)


def compare(path: Path, own: Mapping[str, Tensor], saved: Mapping[str, Tensor], prefix: str = "") -> None:
    """Refuses tensors of a checkpoint that are not those of this version's network, named with `prefix`.

    Raises:
        CaptioningError: tensors are missing, unexpected or of another shape or kind.
    """
    both = [key for key in own if key in saved]
    problems = {
        "missing": [key for key in own if key not in saved],
        "unexpected": [key for key in saved if key not in own],
        "of another shape": [key for key in both if own[key].shape != saved[key].shape],
        "of another kind of number": [key for key in both if _kind(own[key]) != _kind(saved[key])],
    }
    found = [
        f"{len(keys)} {kind}: {', '.join(quoted(prefix + key) for key in keys[:3])}{', ...' if len(keys) > 3 else ''}"
        for kind, keys in problems.items()
        if keys
    ]
    if found:
        raise CaptioningError(f"checkpoint={path} does not fit this version of captioning: {'; '.join(found)}")


def _kind(tensor: Tensor) -> object:
    return "floating" if tensor.is_floating_point() else tensor.dtype  # half precision is widened when it is loaded


class AllocationLimit(TorchDispatchMode):
    """Refuses to make tensors of more than `numbers` numbers in all.

    A configuration comes with the file, and may describe an embedding of terabytes.
    """

    def __init__(self, numbers: int) -> None:
        super().__init__()
        self.left = numbers

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # PyTorch would import its compiler for a second, to keep it from what nobody compiles

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        if func.overloadpacket.__name__ in FACTORIES:
            sizes = args[0] if args and isinstance(args[0], list | tuple) else [a for a in args if isinstance(a, int)]
            self.left -= math.prod(sizes)
            if self.left < 0:
                raise ValueError("what it describes is far larger than the weights that it holds")
        return func(*args, **(kwargs or {}))
