"""What training and decoding ask of a GPU, counted on any machine: `python roofline.py [FILE]`.

Each operator is taken as one kernel, which reads its inputs and writes its results once. Its time
is that of the memory, of the arithmetic or of its launch, whichever is longest (Williams et al.
2009). The operators are those of this code on a GPU, in bf16-mixed, without dropout. Compilers and
caches, which save reads and writes, are not counted. Steps are counted on tensors without content.
"""

import csv
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from candidates import TRANSFORMER, patched  # noqa: E402

# the root may not be installed
from captioning.files import markdown_table  # noqa: E402
from captioning.models.parts import additive  # noqa: E402
from experiments.throughput import material  # noqa: E402
from experiments.throughput.parts import decoding_variants  # noqa: E402

# of an H100; (D) what large kernels reach of the 3.35 TB/s and 989 TFLOP/s that it is sold with
BYTES, FLOP, LAUNCH = 2.6e12, 650e12, 2e-6
IMAGES = 256
STEPS = {"spatial_transformer": ["model.dropout=0"], "sat_soft": [], "sat_hard": []}
DECODING = {"greedy": 1, "beam 3": 3}  # of one image
SCORES = "additive scores"
PARTS = (  # of an operator's name, the first that is in it
    ("attention", ("scaled_dot_product",)),
    ("matrix products", ("mm", "mv")),
    ("copies between precisions", ("_to_copy",)),
    ("layout copies", ("clone", "cat", "copy_", "stack")),
    ("LayerNorm", ("layer_norm",)),
    ("loss over the vocabulary", ("log_softmax", "gather", "scatter", "new_zeros")),
    ("optimiser", ("_adam", "_foreach")),
)
FREE = ("detach", "empty", "empty_like", "new_empty", "_unsafe_view")


class LikeAGPU(TorchFunctionMode):
    """What CUDA's autocast does in single precision, and a CPU's does not."""

    single = (nn.functional.layer_norm, Tensor.softmax, Tensor.log_softmax)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func in self.single and torch.is_autocast_enabled("cpu"):
            args = (args[0].float(), *args[1:])
        return func(*args, **(kwargs or {}))


class Count(TorchDispatchMode):
    """Kernels, bytes, FLOP and seconds of each part, and the seconds by what limits a kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: dict[str, Counter[str]] = defaultdict(Counter)
        self.inside: str | None = None

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        space, _, name = func._schema.name.partition("::")
        if space == "prim" or func.is_view or name in FREE:
            return result
        moved = sum(_bytes(x) for x in _tensors(args, kwargs)) + sum(map(_bytes, _tensors(result)))
        formula = flop_registry.get(func._overloadpacket)
        flop = formula(*args, **kwargs, out_val=result) if formula else 0
        if name == "mv":
            flop = 2 * args[0].numel()
        part = next((part for part, names in PARTS if any(n in name for n in names)), "other")
        seconds = {"memory": moved / BYTES, "arithmetic": flop / FLOP, "launch": LAUNCH}
        limit = max(seconds, key=lambda each: seconds[each])
        counts = {"kernels": 1, "bytes": moved, "flop": flop, limit: seconds[limit]}
        self.parts[self.inside or part].update(counts)
        return result

    @contextmanager
    def as_part(self, owner: type, name: str, part: str) -> Iterator[None]:
        """Count what a function of `owner` does as one part."""
        function = getattr(owner, name)

        def counted(*args: Any) -> Any:
            self.inside = part
            try:
                return function(*args)
            finally:
                self.inside = None

        with patch.object(owner, name, staticmethod(counted)):
            yield

    def rows(self, system: str, what: str) -> list[dict[str, Any]]:
        """A row for each part, the slowest first, and one for their sum."""
        total = Counter[str]()
        for counts in self.parts.values():
            total.update(counts)
        rows = [
            {
                "system": system,
                "what": what,
                "part": part,
                "kernels": counts["kernels"],
                "GB": counts["bytes"] / 1e9,
                "TFLOP": counts["flop"] / 1e12,
                **{f"ms by {limit}": 1000 * counts[limit] for limit in LIMITS},
                "ms": 1000 * sum(counts[limit] for limit in LIMITS),
            }
            for part, counts in [*self.parts.items(), ("all", total)]
        ]
        return sorted(rows, key=lambda row: row["ms"])[::-1]


LIMITS = ("memory", "arithmetic", "launch")


def _tensors(*trees: Any) -> Iterator[Tensor]:
    yield from {id(x): x for x in tree_leaves(trees) if isinstance(x, Tensor)}.values()


def _bytes(x: Tensor) -> int:
    """Those that are there: an expanded axis is read once."""
    shape = [size for size, stride in zip(x.shape, x.stride(), strict=True) if stride]
    return x.element_size() * torch.Size(shape).numel()


def count_step(system: str, settings: list[str], images: int) -> Count:
    """Count a training step, after one that makes the state of the optimiser."""
    config = material.composed(f"model={system}", "device=cpu", f"batch.images={images}", *settings)
    batch = material.random_batch(config, images, config.batch.captions)
    task = material.random_task(config, images, config.batch.captions)
    counted, scores = Count(), additive._AdditiveScores
    with (
        patch("torch.compiler.is_compiling", _as_on_a_gpu),
        patch.object(material, "random_task", lambda *_: task),  # made of numbers, fake ones lack
        patch.object(nn.Module, "to", lambda module, device: module),  # fake ones cannot move
        FakeTensorMode(allow_non_fake_inputs=True),
        LikeAGPU(),
    ):
        step = material.training_step(config, "bf16-mixed")
        step(batch, False)
        with (
            counted.as_part(scores, "forward", SCORES),
            counted.as_part(scores, "backward", SCORES),
            counted,
        ):
            step(batch, False)
    return counted


def _as_on_a_gpu() -> bool:
    """Whether the module that asks takes the path of a GPU when it is compiled."""
    return str(sys._getframe(1).f_globals["__name__"]).endswith((".additive", ".numerics"))


def count_decoding(system: str, width: int) -> Count:
    """Count the search for 15 words for one image."""
    config = material.composed(f"model={system}", "device=cpu")
    with LikeAGPU(), Count() as counted:
        decoding_variants(config, width, 1, "bf16-mixed").ours()
    return counted


def main() -> None:
    rows = []
    for system, settings in STEPS.items():
        what = f"step, {IMAGES} x 5"
        rows += count_step(system, settings, IMAGES).rows(system, what)
        if system == "spatial_transformer":
            for names in (*([name] for name in TRANSFORMER), TRANSFORMER):
                with patched(names, TRANSFORMER):
                    counted = count_step(system, settings, IMAGES)
                rows += counted.rows(system, f"{what}, {'; '.join(names)}")[:1]
        for what, width in DECODING.items():
            rows += count_decoding(system, width).rows(system, f"{what}, one image")[:1]
    cells = [
        {name: f"{x:.4g}" if isinstance(x, float) else str(x) for name, x in row.items()}
        for row in rows
    ]
    print(markdown_table(list(cells[0]), [list(row.values()) for row in cells]))
    for path in sys.argv[1:]:
        with Path(path).open("w", newline="", encoding="utf-8") as file:
            table = csv.DictWriter(file, list(cells[0]), lineterminator="\n")
            table.writeheader()
            table.writerows(cells)


if __name__ == "__main__":
    main()
