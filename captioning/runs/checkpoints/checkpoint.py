"""Checkpoints of runs, as torch files, and of exports, as safetensors; both hold a captioner.

Either may come from a stranger: only tensors and plain values are read, no more of them than the
file has bytes, and a digest over all of the content reveals damage. A safetensors file has
vocabulary and configuration as JSON in its header, and nothing that training could resume from.
"""

import json
import math
import pickle
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, InstanceOf, ValidationError, model_validator
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from captioning.config.types import Config, format_errors
from captioning.decoding.confidence import are_quantiles
from captioning.errors import CaptioningError, quoted
from captioning.files import MAX_HEADER, atomic_write, open_bounded
from captioning.pretrained.named import SUFFIX
from captioning.runs.checkpoints.digest import digest
from captioning.runs.settings import FORMAT

SECTIONS = ("backbone", "model", "decoding", "data")
"""Parts of a run's configuration that captioning needs."""
KEY = "captioning"
"""The only entry in a header's metadata, since safetensors writes several in any order."""
Content = dict[str, Any]
"""Of the file of a checkpoint: tensors and plain values by name."""


class Checkpoint(BaseModel, strict=True, arbitrary_types_allowed=True):
    """The parts of a checkpoint that captioning needs."""

    path: Path
    config: Config  # of the run, resolved
    words: list[InstanceOf[str]] | str  # `Vocabulary.saved`
    state: dict[str, Tensor]  # names begin with `backbone.`, `model.` or `objective.`
    score: str | None  # of a validation or test, such as `val/CIDEr 54.3`
    # Of the scores of the validation captions (`captioning.decoding.confidence`), or none.
    quantiles: Any

    @model_validator(mode="after")
    def _usable(self) -> "Checkpoint":
        for name in SECTIONS:
            section = self.config.get(name)
            if not isinstance(section, dict):
                raise ValueError(f"its configuration lacks the section {name}")
            if name != "data" and not isinstance(section.get("_target_"), str):
                raise ValueError(f"its section {name} has no _target_")
        chosen = self.config.get("choices", {})
        if not isinstance(chosen, dict) or not all(
            isinstance(chosen.get(group), str | None) for group in ("model", "data", "experiment")
        ):
            raise ValueError(f"its choices {quoted(chosen)} are not names by group")
        if not isinstance(self.config.get("source", {}), dict):  # of `captioning convert`
            raise ValueError("its source is no mapping")
        if not are_quantiles(self.quantiles):
            raise ValueError("the quantiles of its scores are not ascending")
        if damaged := _infinite(self.state):
            raise ValueError(f"its weights {quoted(damaged)} have NaN or infinite numbers")
        return self

    @property
    def shapes(self) -> list[torch.Size]:
        """Those of all tensors."""
        return [tensor.shape for tensor in self.state.values()]

    @property
    def networks(self) -> dict[str, Tensor]:
        """The state of backbone and model, without the objective's, such as a baseline."""
        prefixes = "backbone.", "model."
        return {name: tensor for name, tensor in self.state.items() if name.startswith(prefixes)}


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a captioner from a torch or safetensors checkpoint."""
    saved = content(path)
    inside = saved["captioning"]
    if inside.get("format") != FORMAT:
        raise CaptioningError(f"checkpoint={path} was written by another version of captioning")
    score = quoted(inside["score"]) if inside.get("score") else _best_score(saved.get("callbacks"))
    try:
        return Checkpoint(
            path=path,
            config=inside.get("config"),
            words=inside.get("words"),
            state=saved["state_dict"],
            score=score,
            quantiles=inside.get("quantiles", []),
        )
    except ValidationError as error:
        reason = format_errors("", error.errors())
        raise CaptioningError(f"checkpoint={path} cannot be used: {reason}") from error


def _best_score(callbacks: Any) -> str | None:
    """The score that Lightning's `ModelCheckpoint` has saved in its state."""
    for saved in callbacks.values() if isinstance(callbacks, dict) else ():
        score = saved.get("current_score") if isinstance(saved, dict) else None
        if isinstance(score, Tensor) and score.is_floating_point() and score.numel() == 1:
            return f"{quoted(saved.get('monitor'))} {float(score):.4g}"
    return None


def read_checkpoint(path: Path) -> Content:
    """Read a torch checkpoint to the CPU: `captioning`, `state_dict` and training state."""
    if is_safetensors(path):
        raise CaptioningError(
            f"checkpoint={path} is a safetensors file, from which training cannot resume; begin a "
            f"new run from its weights with init_from={path}"
        )
    return content(path)


def content(path: Path) -> Content:
    """Read a checkpoint of either kind in the layout of torch checkpoints, without the digest."""
    read = _read_safetensors if is_safetensors(path) else _read_torch
    try:
        saved = read(path)
        if saved.pop("digest", None) != digest(saved, limit=16 * path.stat().st_size + 2**26):
            raise ValueError("its content has another digest than was saved")
        if not {"captioning", "state_dict"} <= saved.keys():
            raise ValueError(f"it holds {', '.join(map(quoted, list(saved)[:5]))}")
    except MemoryError:
        raise
    except Exception as error:  # the readers raise nearly anything for damaged files
        code = "it holds Python objects, which can run code when loaded"
        reason = code if isinstance(error, pickle.UnpicklingError) else quoted(error)
        raise CaptioningError(
            f"checkpoint={path} is damaged, or not a checkpoint of captioning: {reason}"
        ) from error
    return saved


def _read_torch(path: Path) -> Content:
    with zipfile.ZipFile(path) as archive:
        members, size = archive.infolist(), path.stat().st_size
        # torch.save compresses nothing; a few compressed or shared bytes could unpack to terabytes
        compressed = any(m.compress_type != zipfile.ZIP_STORED for m in members)
        if compressed or sum(m.file_size for m in members) > size:
            raise ValueError("it is compressed")
    return torch.load(path, map_location="cpu", weights_only=True)


def _read_safetensors(path: Path) -> Content:
    with safe_open(path, "pt") as file:
        names, text = list(file.keys()), (file.metadata() or {}).get(KEY)
        if text is None:
            raise ValueError(
                f"its tensors ({', '.join(map(quoted, names[:3]))}, ...) come without vocabulary "
                "and configuration; weights of a backbone alone are set with backbone.weights"
            )
        if len(text) > MAX_HEADER:
            raise ValueError(f"its header has {len(text):,} characters")
        about = json.loads(text)
        if sorted(about["tensors"]) != sorted(names):
            raise ValueError("its header names other tensors")
        state = {name: file.get_tensor(name) for name in about.pop("tensors")}
    return {"digest": about.pop("digest"), "captioning": about, "state_dict": state}


def is_safetensors(path: Path) -> bool:
    """Recognise safetensors by the first bytes, or by name unless a zip archive."""
    with open_bounded(path, math.inf) as file:
        start = file.read(9)
    return start[8:] == b"{" or (path.suffix == SUFFIX and not start.startswith(b"PK"))


def with_digest(content: Content) -> Content:
    """The content of a torch checkpoint as `read` expects it."""
    return {**content, "digest": digest(content)}


def write_checkpoint(path: Path, content: Content, keep: Path | None = None) -> None:
    """Write a torch checkpoint atomically; the file before it is renamed to `keep`."""
    with atomic_write(path, keep) as file:
        try:
            torch.save(with_digest(content), file)
        except RuntimeError:
            # The library hides what the file raised, such as a full disk: it raises that again.
            file.write(bytes(2**20))
            file.flush()
            raise


def keep_quantiles(path: Path, quantiles: Sequence[float]) -> None:
    """Rewrite a checkpoint of either kind with the quantiles of its scores.

    They are scores of its validation captions.
    """
    if is_safetensors(path):
        export = load_checkpoint(path)
        captioner = export.config, export.words, export.state
        write_safetensors(path, *captioner, score=export.score, quantiles=quantiles)
    else:
        saved = content(path)
        saved["captioning"]["quantiles"] = list(quantiles)
        write_checkpoint(path, saved)


def write_safetensors(
    path: Path,
    config: Config,
    words: list[str] | str,
    state: Mapping[str, Tensor],
    half: bool = False,
    score: str | None = None,
    quantiles: Sequence[float] = (),
) -> None:
    """Write a captioner to share, atomically; the same captioner always gives the same bytes.

    With `half`, matrices are stored in half precision; networks widen them to single precision when
    they load.
    """
    if half:
        # Biases and the scales and statistics of normalisations are few, and squares among them
        # underflow in half.
        floats = {name: t for name, t in state.items() if t.is_floating_point()}
        matrices = {name: t.half() for name, t in floats.items() if t.dim() > 1}
        if name := _infinite(matrices):
            raise CaptioningError(
                f"half=true is not possible: the weights {quoted(name)} exceed it; leave half=false"
            )
        state = {**state, **matrices}
    inside = json.loads(json.dumps(captioner_section(config, words, quantiles, score)))  # as read
    content_digest = digest({"captioning": inside, "state_dict": state})
    about = {**inside, "tensors": list(state), "digest": content_digest}
    # copies, because safetensors refuses tensors that share their numbers
    copies = {name: t.clone(memory_format=torch.contiguous_format) for name, t in state.items()}
    with atomic_write(path) as file:
        file.write(save(copies, {KEY: json.dumps(about)}))


def captioner_section(
    config: Config,
    words: list[str] | str,
    quantiles: Sequence[float] = (),
    score: str | None = None,
) -> Content:
    """What a checkpoint has of a captioner beside its weights."""
    section: Content = {"format": FORMAT, "config": config, "words": words}
    if score:
        section["score"] = score
    if quantiles:
        section["quantiles"] = list(quantiles)
    return section


def _infinite(state: Mapping[str, Tensor]) -> str | None:
    """The first tensor with a number that is not finite."""
    for name, tensor in state.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            return name
    return None
