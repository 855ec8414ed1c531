"""Checkpoints: torch files of `captioning.run`, and safetensors files of `captioning.export`, which share a captioner.

Either may come from a stranger: only tensors and plain values are read, no more of them than the file has bytes, and a
digest over all of the content reveals damage. A safetensors file has vocabulary and configuration as JSON in its
header, and nothing that training could resume from.
"""

import hashlib
import json
import math
import pickle
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from captioning.config.registry import renewed
from captioning.decoding.confidence import are_quantiles
from captioning.errors import CaptioningError, quoted
from captioning.files import atomic_write

SECTIONS = ("backbone", "model", "decoding", "data")
"""Parts of a run's configuration that captioning needs."""
SUFFIX = ".safetensors"
KEY = "captioning"
"""The only entry in a header's metadata, since safetensors writes several in any order."""
MAX_HEADER = 2**24
"""Characters of JSON in a header; ten thousand words take a hundredth of them."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The parts of a checkpoint that captioning needs.

    Attributes:
        path: of the file.
        config: the resolved configuration of the run, plain values.
        words: of the vocabulary.
        state: tensors by name, those of the networks begin with `backbone.` and `model.`.
        score: of a validation or test, such as `val/CIDEr 54.3`, if recorded.
        quantiles: of the scores of the validation captions (`captioning.decoding.confidence`), or none.
    """

    path: Path
    config: dict[str, Any]
    words: list[str]
    state: dict[str, Tensor]
    score: str | None
    quantiles: list[float]

    @property
    def networks(self) -> dict[str, Tensor]:
        """The state of backbone and model, without the objective's, such as a baseline."""
        return {name: tensor for name, tensor in self.state.items() if name.startswith(("backbone.", "model."))}


def load(path: Path) -> Checkpoint:
    """Read a captioner from a torch or safetensors checkpoint."""
    saved = _read_safetensors(path) if is_safetensors(path) else read(path)
    inside, state = saved["captioning"], saved["state_dict"]
    if problem := _problem(inside, state):
        raise CaptioningError(f"checkpoint={path} cannot be used: {problem}")
    score = quoted(inside["score"]) if inside.get("score") else _best_score(saved.get("callbacks"))
    return Checkpoint(path, renewed(inside["config"]), inside["words"], state, score, inside.get("quantiles", []))


def _problem(inside: Any, state: Any) -> str | None:
    config, words = (inside.get("config"), inside.get("words")) if isinstance(inside, dict) else (None, None)
    if not isinstance(config, dict) or not all(isinstance(config.get(name), dict) for name in SECTIONS):
        return f"its configuration lacks sections of {', '.join(SECTIONS)}"
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        return "its vocabulary is not a list of words"
    if not isinstance(state, dict) or not all(isinstance(k, str) and isinstance(t, Tensor) for k, t in state.items()):
        return "its state_dict holds more than tensors by name"
    if infinite := [name for name, t in state.items() if t.is_floating_point() and not t.isfinite().all()]:
        return f"its weights {quoted(infinite[0])} have NaN or infinite numbers"
    return None if are_quantiles(inside.get("quantiles", [])) else "the quantiles of its scores are not ascending"


def _best_score(callbacks: Any) -> str | None:
    """The score that Lightning's `ModelCheckpoint` has saved in its state."""
    for saved in callbacks.values() if isinstance(callbacks, dict) else ():
        score = saved.get("current_score") if isinstance(saved, dict) else None
        if isinstance(score, Tensor) and score.is_floating_point() and score.numel() == 1:
            return f"{quoted(saved.get('monitor'))} {float(score):.4g}"
    return None


def read(path: Path) -> dict[str, Any]:
    """Read a whole torch checkpoint to the CPU: `captioning`, `state_dict` and the state of training."""
    if is_safetensors(path):
        raise CaptioningError(
            f"checkpoint={path} is a safetensors file, from which training cannot resume; begin a new run from its "
            f"weights with init_from={path}"
        )
    try:
        with zipfile.ZipFile(path) as archive:
            members, size = archive.infolist(), path.stat().st_size
            # torch.save compresses nothing; a few compressed or shared bytes could unpack to terabytes
            if any(m.compress_type != zipfile.ZIP_STORED for m in members) or sum(m.file_size for m in members) > size:
                raise ValueError("it is compressed")
        saved: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        if saved.pop("digest", None) != digest(saved, limit=16 * size + 2**26):
            raise ValueError("its content has another digest than was saved")
        if not {"captioning", "state_dict"} <= saved.keys():
            raise ValueError(f"it holds {', '.join(map(quoted, list(saved)[:5]))}")
    except MemoryError:
        raise
    except pickle.UnpicklingError as error:
        raise CaptioningError(
            f"checkpoint={path} is refused: it holds Python objects, which can run code when loaded"
        ) from error
    except Exception as error:  # the readers of torch and zipfile raise nearly anything for damaged files
        raise CaptioningError(
            f"checkpoint={path} is damaged, or not a checkpoint of captioning.run: {quoted(error)}"
        ) from error
    return saved


def with_digest(content: dict[str, Any]) -> dict[str, Any]:
    """The content of a torch checkpoint as `read` expects it."""
    return {**content, "digest": digest(content)}


def write(path: Path, content: dict[str, Any], keep: Path | None = None) -> None:
    """Write a torch checkpoint atomically; the file before it is renamed to `keep`."""
    with atomic_write(path, keep) as file:
        try:
            torch.save(with_digest(content), file)
        except RuntimeError as error:  # torch's writer hides what the file raised, such as a full disk
            raise OSError(str(error).splitlines()[0]) from error


def keep_quantiles(path: Path, quantiles: Sequence[float]) -> None:
    """Rewrite a checkpoint of either kind with the quantiles of the scores of its validation captions."""
    if is_safetensors(path):
        export = load(path)
        write_safetensors(path, export.config, export.words, export.state, False, export.score, quantiles)
    else:
        saved = read(path)
        saved["captioning"]["quantiles"] = list(quantiles)
        write(path, saved)


def is_safetensors(path: Path) -> bool:
    """Recognise a safetensors file by its first bytes, or by its name if it is not a zip archive."""
    with path.open("rb") as file:
        start = file.read(9)
    return start[8:] == b"{" or (path.suffix == SUFFIX and not start.startswith(b"PK"))


def write_safetensors(
    path: Path,
    config: dict[str, Any],
    words: list[str],
    state: Mapping[str, Tensor],
    half: bool = False,
    score: str | None = None,
    quantiles: Sequence[float] = (),
) -> None:
    """Write a captioner to share, atomically; the same captioner always gives the same bytes.

    Args:
        path: the file.
        config: of the run.
        words: of the vocabulary, in order.
        state: weights by name.
        half: store matrices in half precision; networks widen them to single precision when they load.
        score: such as `test/CIDEr 58.0`.
        quantiles: of the scores of its validation captions.
    """
    state = _halved(state) if half else state
    known = {"score": score, "quantiles": list(quantiles)}
    inside = {"config": config, "words": words, **{name: value for name, value in known.items() if value}}
    about = {**inside, "tensors": list(state), "digest": digest({"captioning": inside, "state_dict": state})}
    try:
        text = json.dumps(about)
        if digest(json.loads(text)) != digest(about):  # as if a key is a number
            raise ValueError("JSON would change it")
    except (TypeError, ValueError, RecursionError) as error:
        raise CaptioningError(f"the configuration cannot be exported, since JSON has not all of it: {error}") from error
    # copies, because safetensors refuses tensors that share their numbers
    tensors = {name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in state.items()}
    with atomic_write(path) as file:
        file.write(save(tensors, {KEY: text}))


def _halved(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    # Biases and the scales and statistics of normalisations are few, and squares among them underflow in half.
    matrices = {name: t.half() for name, t in state.items() if t.is_floating_point() and t.dim() > 1}
    if infinite := [name for name, tensor in matrices.items() if not tensor.isfinite().all()]:
        raise CaptioningError(
            f"half=true is not possible: the weights {quoted(infinite[0])} exceed {torch.finfo(torch.half).max:,.0f}, "
            "the largest number of half precision; leave half=false"
        )
    return {**state, **matrices}


def _read_safetensors(path: Path) -> dict[str, Any]:
    """The content in the layout of a torch checkpoint."""
    try:
        with safe_open(path, "pt") as file:
            names, metadata = list(file.keys()), file.metadata() or {}
            if KEY not in metadata:
                raise CaptioningError(
                    f"checkpoint={path} has {len(names)} tensors ({', '.join(map(quoted, names[:3]))}, ...) without "
                    "vocabulary and configuration. Captioners are safetensors files of captioning.export; weights of a "
                    "backbone alone are set with backbone.weights"
                )
            if len(metadata[KEY]) > MAX_HEADER:
                raise ValueError(f"its header has {len(metadata[KEY]):,} characters")
            about = json.loads(metadata[KEY])
            inside = {name: about[name] for name in ("config", "words", "score", "quantiles") if name in about}
            if sorted(about["tensors"]) != sorted(names):
                raise ValueError("its header names other tensors")
            state = {name: file.get_tensor(name) for name in about["tensors"]}
        content = {"captioning": inside, "state_dict": state}
        if about["digest"] != digest(content):
            raise ValueError("its content has another digest than was saved")
    except (CaptioningError, MemoryError):
        raise
    except Exception as error:  # the readers raise nearly anything for damaged files
        raise CaptioningError(f"checkpoint={path} is damaged or incomplete: {quoted(error)}") from error
    return content


def digest(content: Any, limit: float = math.inf) -> str:
    """BLAKE2b over nested mappings and lists: each value, each tensor's bytes, and its place.

    Raises:
        ValueError: a tensor is larger than its storage, or there are more than `limit` bytes, counting a value in each
            of its places.
    """
    blake = hashlib.blake2b(digest_size=32)
    for place, value in _leaves(content, ""):
        content_bytes: Any = b""
        if isinstance(value, Tensor):
            count = value.numel() * value.element_size()
            if value.layout != torch.strided or count > value.untyped_storage().nbytes():
                raise ValueError(f"{place} is not a tensor as torch.save writes them")
            if count <= limit:
                content_bytes = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
            value = (value.dtype, tuple(value.shape))
        text = f"{place}\0{type(value).__name__} {value!r}\0".encode("utf-8", errors="surrogatepass")
        limit -= len(text) + len(content_bytes)
        if limit < 0:
            raise ValueError("it describes far more than it holds")
        blake.update(text)
        blake.update(content_bytes)
    return blake.hexdigest()


def _leaves(node: Any, place: str) -> Iterator[tuple[str, Any]]:
    if isinstance(node, Mapping | list | tuple):
        yield place, len(node)
        for key, value in node.items() if isinstance(node, Mapping) else enumerate(node):
            yield from _leaves(value, f"{place}/{key!r}")
    else:
        yield place, node
