"""A captioner to share: a safetensors file of its weights, with vocabulary and configuration as JSON in the header.

`captioning.export` writes it. It has all of a checkpoint that captioning needs, and nothing that training goes on from.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from captioning.errors import CaptioningError, quoted
from captioning.files import atomic_write
from captioning.runs.digest import digest

SUFFIX = ".safetensors"
KEY = "captioning"
"""In the metadata of the header: a single entry, since safetensors writes several in any order."""
LARGEST_TEXT = 2**24
"""Characters of its JSON; ten thousand words have a hundredth of them."""


def is_safetensors(path: Path) -> bool:
    """Whether a file is of this format by its first bytes, or by its name where it is no other checkpoint either."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        start = file.read(9)
    return start[8:] == b"{" or (path.suffix == SUFFIX and not start.startswith(b"PK"))


def write(
    path: Path,
    config: dict[str, Any],
    words: list[str],
    state: Mapping[str, Tensor],
    half: bool = False,
    score: str | None = None,
    quantiles: Sequence[float] = (),
) -> None:
    """Writes `path`, whole or not at all; the same captioner always gives the same bytes.

    Args:
        path: the file.
        config: of the run.
        words: of the vocabulary, in order.
        state: weights by name.
        half: writes the matrices among them in half precision, from which networks take them back into single
            precision to compute.
        score: that it has reached, such as `test/CIDEr 58.0`.
        quantiles: of the scores of its validation captions, if they are known.

    Raises:
        CaptioningError: the file cannot be written, a number is too large for half precision, or the configuration is
            no plain values that JSON has.
    """
    state = _halved(state) if half else state
    known = {"score": score, "quantiles": list(quantiles)}
    inside = {"config": config, "words": words, **{name: value for name, value in known.items() if value}}
    about = {**inside, "tensors": list(state), "digest": digest({"captioning": inside, "state_dict": state})}
    try:
        text = json.dumps(about)
        if digest(json.loads(text)) != digest(about):  # as where a key is a number
            raise ValueError("it would come back as something else")
    except (TypeError, ValueError, RecursionError) as error:
        raise CaptioningError(f"the configuration cannot be exported, since JSON has not all of it: {error}") from error
    # copies, because safetensors refuses tensors that share their numbers
    tensors = {name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in state.items()}
    with atomic_write(path) as file:
        file.write(save(tensors, {KEY: text}))


def read(path: Path) -> dict[str, Any]:
    """What `write` has written, as a checkpoint has it: `captioning` with `config` and `words`, and `state_dict`.

    Raises:
        CaptioningError: the file is damaged, or of something else.
    """
    try:
        with safe_open(path, "pt") as file:  # it checks that the tensors lie side by side and fill the file
            names, metadata = list(file.keys()), file.metadata() or {}
            if KEY not in metadata:
                found = f"{len(names)} tensors ({', '.join(map(quoted, names[:3]))}{', ...' if names[3:] else ''})"
                raise CaptioningError(
                    f"checkpoint={path} is a safetensors file of something else: it holds {found} without vocabulary "
                    "and configuration. Of such files captioners are those of captioning.export; weights of a backbone "
                    "alone go into backbone.weights"
                )
            if len(metadata[KEY]) > LARGEST_TEXT:
                raise ValueError(f"its header has {len(metadata[KEY]):,} characters")
            about = json.loads(metadata[KEY])
            inside = {name: about[name] for name in ("config", "words", "score", "quantiles") if name in about}
            if sorted(about["tensors"]) != sorted(names):
                raise ValueError("its tensors are others than its header names")
            state = {name: file.get_tensor(name) for name in about["tensors"]}
        content = {"captioning": inside, "state_dict": state}
        if about["digest"] != digest(content):
            raise ValueError("its content has another digest than was saved")
    except (CaptioningError, MemoryError):
        raise
    except Exception as error:  # a damaged file can fail anywhere in the readers
        raise CaptioningError(
            f"checkpoint={path} is damaged, or only a part of a safetensors file: {quoted(error)}"
        ) from error
    return content


def _halved(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """With matrices in half precision, biases and the scales and statistics of normalisations as they are.

    Those are few, and squares among them can be too small for it.
    """
    matrices = {name: t.half() for name, t in state.items() if t.is_floating_point() and t.dim() > 1}
    for name, tensor in matrices.items():
        if not tensor.isfinite().all():
            raise CaptioningError(
                f"half=true is not possible: the weights {quoted(name)} have numbers beyond "
                f"{torch.finfo(torch.half).max:,.0f}, the largest of half precision; leave half=false"
            )
    return {**state, **matrices}
