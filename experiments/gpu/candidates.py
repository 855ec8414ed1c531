"""Candidates for a faster step or search, now and then in one run: `python candidates.py FILE`.

None is part of the package before it was measured: each is a patch of it. A row has the seconds of
the code as it is and with the patch, in alternation, and the loss that both have after the same
updates (a graph's own has some more); a search gives the same tokens.
"""

import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from cases import Rows, stage_arguments
from fast import PUBLISHED, SMALL
from torch import Tensor, nn

from captioning.backbones.context import ContextSet
from captioning.decoding import beam, beam_search, greedy, sampling
from captioning.models.parts import additive, layers, scores
from experiments.throughput.material import built_model, composed, random_batch, training_step
from experiments.throughput.measure import GPU_MATRIX, MATRIX, count_flop, time_in_turn
from experiments.throughput.parts import NO_END

Patch = Callable[[], Any]


def norm_in_bfloat16(module: nn.LayerNorm, x: Tensor) -> Tensor:
    """LayerNorm that keeps the residual stream in bfloat16; the kernel sums in single precision."""
    with torch.autocast(x.device.type, enabled=False):
        own = (None if each is None else each.bfloat16() for each in (module.weight, module.bias))
        return nn.functional.layer_norm(x.bfloat16(), module.normalized_shape, *own, module.eps)


def causal_attend(
    query: Tensor, key: Tensor, value: Tensor, scale: Any, mask: Tensor | None, *rest: Any
) -> tuple[Tensor, Tensor | None]:
    """`attend` without the triangle of a caption's words, which rules out the flash kernel."""
    dropout, need_weights = rest
    if mask is None or mask.ndim != 2 or need_weights:
        return _attend(query, key, value, scale, mask, *rest)
    attended = nn.functional.scaled_dot_product_attention(
        query, key, value, None, dropout, is_causal=True, scale=1 / scale
    )
    return attended.transpose(1, 2).flatten(2), None


_attend = layers.attend


def plain_scores(
    keys: additive.Keys, query: Tensor, weight: Tensor, *pairs: Any, heads: int = 1
) -> Tensor:
    """Eq. 4 as it is written, for a compiler, which may keep the sums in registers."""
    sums = keys.values[:, None].float() + query[:, :, None].float()
    return (sums.tanh() * weight.float()).sum(-1).to(keys.values.dtype)


def fused_scores() -> Any:
    from kernels import FusedScores  # here, because a CPU has no Triton

    return patch.object(additive, "_AdditiveScores", FusedScores)


def compiled_scores() -> Any:
    return patch.object(scores, "additive_scores", torch.compile(plain_scores, dynamic=True))


TRANSFORMER: dict[str, Patch] = {
    "norms and residuals in bfloat16": lambda: patch.object(
        layers.ResidualNorm, "forward", norm_in_bfloat16
    ),
    "causal attention without a mask": lambda: patch.object(layers, "attend", causal_attend),
}
SOFT: dict[str, Patch] = {
    "scores by one kernel": fused_scores,
    "scores compiled alone": compiled_scores,
}
STEPS: dict[str, dict[str, Patch]] = {"spatial_transformer": TRANSFORMER, "sat_soft": SOFT}
WIDTHS = {"greedy": 1, "beam 3": 3}


@contextmanager
def patched(names: Iterable[str], patches: Mapping[str, Patch]) -> Iterator[None]:
    """With the patches of these names."""
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(patches[name]())
        yield


def graphed(action: Callable[[], Any], device: str) -> Callable[[], Any]:
    """The kernels of an action as one CUDA graph, which one call launches."""
    if device == "cpu":
        return action
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            action()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = action()

    def replay() -> Any:
        graph.replay()
        return result

    return replay


def steps(sizes: dict[str, Any], device: str) -> Iterator[dict[str, Any]]:
    """Rows of training steps: each patch alone, all of a system's, and these as one graph."""
    for system, patches in STEPS.items():
        together = [name for name in patches if name != "scores compiled alone"]
        for names, graph in (
            *(([name], False) for name in patches),
            (together, False),
            ([], True),
            (together, True),
        ):
            title = "; ".join([*["graph"] * graph, *names])
            yield _row(system, title, partial(_step, system, names, graph, sizes, device))


def _step(
    system: str, names: Sequence[str], graph: bool, sizes: dict[str, Any], device: str
) -> dict[str, Any]:
    images = max(count for _, count in sizes["training"])
    settings = [*sizes["settings"], f"device={device}", f"batch.images={images}"]
    if graph and device != "cpu":
        settings.append("+optimizer.capturable=true")
    config = composed(f"model={system}", *settings)
    batch = random_batch(config, images, config.batch.captions).to(device)
    within = partial(patched, names, STEPS[system])
    now = partial(training_step(config, "bf16-mixed"), batch, False)
    begin = time.perf_counter()
    with within():
        then = partial(training_step(config, "bf16-mixed"), batch, False)
        then()
        first = time.perf_counter() - begin
        if graph:
            then = graphed(then, device)

    def changed() -> Tensor:
        with within():
            return then()

    row = _compared(now, changed, device, sizes["repeats"], count_flop(now))
    losses = {"loss now": now().item(), "loss then": changed().item()}
    return row | {"seconds of the first": first} | losses


def searches(sizes: dict[str, Any], device: str) -> Iterator[dict[str, Any]]:
    """Rows of the search for one image, as one graph of all its words."""
    for system in STEPS:
        for what, width in WIDTHS.items():
            name = f"{what}, one image, graph"
            yield _row(system, name, partial(_search, system, width, sizes, device))


class _Decoded(Exception):
    """What a search has on the device before it makes captions of it."""


def _search(system: str, width: int, sizes: dict[str, Any], device: str) -> dict[str, Any]:
    config = composed(f"model={system}", *sizes["settings"], f"device={device}")
    model: Any = built_model(config).eval()
    vectors = random_batch(config, 1, 1).inputs.to(device)
    context = ContextSet(vectors, tuple(config.context.grid))
    search: Any = greedy if width == 1 else partial(beam_search, width=width)

    def tokens() -> Tensor:
        def stop(*found: Tensor) -> None:
            raise _Decoded(found[0])

        with ExitStack() as stack:
            for module in (beam, sampling):
                stack.enter_context(patch.object(module, "to_captions", stop))
                stack.enter_context(patch.object(module, "all_ended", lambda *_: False))
            stack.enter_context(torch.autocast(device, torch.bfloat16))
            try:
                search(model, context, max_length=config.search.max_length, forbidden=NO_END)
            except _Decoded as found:
                return found.args[0]
        raise RuntimeError("the search made no captions")

    with torch.no_grad():
        replay = graphed(tokens, device)
        row = _compared(tokens, replay, device, sizes["repeats"], None)
        return row | {"same tokens": torch.equal(tokens(), replay())}


def _compared(
    now: Callable[[], Any], then: Callable[[], Any], device: str, repeats: int, flop: int | None
) -> dict[str, Any]:
    """Medians and spreads of both, and of a large product in the same minute."""
    size = GPU_MATRIX if device == "cuda" else MATRIX
    matrix = torch.randn(size, size, device=device).bfloat16()
    actions = {"now": now, "then": then, "product": lambda: matrix @ matrix}
    seconds = time_in_turn(actions, repeats, torch.device(device))
    median = {name: statistics.median(each) for name, each in seconds.items()}
    row = {f"ms {name}": 1000 * median[name] for name in ("now", "then")}
    row |= {
        f"spread {name}": (max(seconds[name]) - min(seconds[name])) / median[name]
        for name in ("now", "then")
    }
    row["now / then"] = median["now"] / median["then"]
    if flop is not None:
        product = 2 * size**3 / median["product"]
        row |= {f"share {n}": flop / median[n] / product for n in ("now", "then")}
    return row


def _row(system: str, name: str, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    row = {"system": system, "candidate": name}
    try:
        return row | measure()
    except Exception as error:  # a candidate may fail, others are measured
        return row | {"error": f"{type(error).__name__}: {error}"[:300]}
    finally:
        torch._dynamo.reset()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def main() -> None:
    given = stage_arguments(__doc__, 240.0)
    deadline = time.monotonic() + given.seconds
    rows, sizes = Rows(given.file), PUBLISHED if given.size == "published" else SMALL
    for measured in (steps, searches):
        for row in measured(sizes, given.device):
            rows.add(row)
            if time.monotonic() > deadline:
                sys.exit("the time is over; what is left was not measured")


if __name__ == "__main__":
    main()
