"""Compare image-captioning architectures under one data module, one decoder and one scorer."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from captioning.captioner import TrainedCaptioner
    from captioning.notebook import score as score
    from captioning.notebook import train as train
    from captioning.notebook import write_report as write_report

__all__ = ["__version__", "load", "score", "train", "write_report"]
__version__ = "0.1.0"

# Large CPU tensors on huge pages: page faults otherwise take most of a training step where the
# kernel leaves huge pages to the program's request (`madvise`, the default of most distributions).
# PyTorch reads this at its first allocation; a value that the user has set stays.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")


def load(
    checkpoint: str | Path | None = None,
    device: str = "auto",
    decoding: Mapping[str, Any] | None = None,
    modules: Sequence[str] = (),
    bfloat16: bool = False,
) -> "TrainedCaptioner":
    """Build the bundled captioner or that of a checkpoint: `load().caption("photograph.jpg")`.

    The arguments, and what they raise, are those of
    `captioning.captioner.TrainedCaptioner.from_checkpoint`.
    """
    from captioning.machine import paused_collection

    with paused_collection():
        # Here, so that `import captioning` alone imports no PyTorch.
        from captioning.captioner import TrainedCaptioner
    return TrainedCaptioner.from_checkpoint(checkpoint, device, decoding, modules, bfloat16)


def __getattr__(name: str) -> Any:
    """Functions of `captioning.notebook`, which import the commands when they are first used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from captioning import notebook

    return getattr(notebook, name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
