"""A limit of the memory of a network that a configuration describes."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from captioning.files import MAX_BACKBONE

FACTORIES = {
    "empty",
    "empty_strided",
    "zeros",
    "ones",
    "full",
    "arange",
    "linspace",
    "eye",
    "rand",
    "randn",
}
"""PyTorch operations that allocate a size given as a number."""


class AllocationLimit(TorchDispatchMode):
    """Refuse to allocate tensors of more than `numbers` in all; without it, of a large backbone.

    A configuration comes with the file, and may describe an embedding of terabytes.
    """

    def __init__(self, numbers: int = MAX_BACKBONE):
        super().__init__()
        self.left = numbers

    @classmethod
    def for_file(cls, shapes: Iterable[Sequence[int]]) -> "AllocationLimit":
        """The limit for a network whose file has tensors of these shapes."""
        # Initialising a network takes some times its size, and there are tables of positions.
        return cls(8 * sum(map(math.prod, shapes)) + 2**24)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # or PyTorch imports its compiler for a second, and compiles nothing

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func.overloadpacket.__name__ in FACTORIES:
            sizes = args[0] if args and isinstance(args[0], list | tuple) else args
            # (D) the least for a tensor, as a million empty ones take long too
            self.left -= max(2**10, math.prod(size for size in sizes if isinstance(size, int)))
            if self.left < 0:
                raise ValueError(
                    "the configuration describes far more than the weights of the file"
                )
        return func(*args, **(kwargs or {}))
