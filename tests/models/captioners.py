"""The registry of captioners: every system of conf/model and mixtures of their parts, each small,
for the laws to hold.

A system or part that is added to conf/model is among them by itself. V words, L context vectors of
D features on a grid; sizes are different primes where they can be.
"""

from copy import deepcopy
from functools import cache
from typing import Any

import torch
import yaml
from hydra import compose, initialize_config_dir
from hydra.utils import get_class, instantiate
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from captioning.backbones.context import ContextSet
from captioning.config.registry import CONF, strip_extra_keys
from captioning.tokens import BOS

V, D, GRID = 23, 17, (1, 11)
B, N, C, L = 2, 3, 5, 11
MASK = torch.tensor(
    [[k not in (1, 7, 10) for k in range(L)], [k in (0, 2, 3, 5) for k in range(L)]]
)
SMALL: dict[str, Any] = {
    "d_embed": 7,
    "d_hidden": 19,
    "d_model": 14,
    "d_ff": 19,
    "heads": 2,
    "decoder_layers": 2,
    "max_tokens": 29,
}
OF_ENCODERS = {"layers": 1, "encoder.layers": 1, "encoder.heads": 2, "memory": 3, "prefix": 4}
SMALL |= {f"encoder.{key}": value for key, value in (SMALL | OF_ENCODERS).items()}
"""Settings of those captioners that have them."""


def parts(option: str, group: str = "model") -> dict[str, Any]:
    """The class of a file of conf, and its part of each group."""
    file = yaml.safe_load((CONF / group / f"{option}.yaml").read_text(encoding="utf-8"))
    found = {"_target_": file["_target_"]} if "_target_" in file else {}
    for entry in file.get("defaults", []):
        if isinstance(entry, dict):
            found |= {key.split()[-1]: choice for key, choice in entry.items()}
        elif entry != "_self_":
            found |= parts(entry, group) | found
    return found


OWN: dict[str, dict[str, Any]] = {
    "aoa": {
        "d_hidden": 14,
        "score.heads": 2,
        "attention.dropout": 0.0,
        "encoder.dropout": 0.0,
    },  # as wide as its encoder
    "meshed_memory": {"encoder.layers": 2},
    "rnn_search": {"score.d_attention": 13, "head.width": 6},
    "x_linear": {
        "d_hidden": 16,
        "encoder.d_model": 16,
        "attention.heads": 2,
        "attention.dropout": 0.0,
        "encoder.dropout": 0.0,
    },
}
"""Settings of those systems that need others."""
SYSTEMS = sorted(file.stem for file in CONF.glob("model/*.yaml"))
MIXTURES: list[tuple[str, dict[str, Any]]] = [
    ("sat_soft model/score=scaled_dot", {"d_hidden": D}),
    ("sat_soft model/score=projected_dot", {"score.d_attention": 13}),
    ("hui_soft", {"score.learned_scale": True}),
    (
        "sat_hard model/score=location model/cell=gru",
        {"attention.temperature": 0.5, "cell.reset": "after"},
    ),
    (
        "sat_soft model/encoder=layers model/score=location",
        {"score.heads": 2, "score.d_attention": 6},
    ),
    ("sat_hard model/cell=up_down model/inject=first", {}),
    (
        "gru_attention model/inject=every",
        {"attention.smoothing": True, "attention.gate": True},
    ),
    (
        "gru_conditional model/inject=first",
        {"cell.query": "before", "cell.reset": "before", "head.width": 19},
    ),
    ("up_down", {"cell.query": "before", "attention.window": 3}),
    (
        "sat_soft model/encoder=layers model/initial=layer",
        {"encoder.dropout": 0.0, "head.tanh": True, "initial.norm": True, "head.bias": "zero"},
    ),
    ("lstm_bottleneck", {"initial.pool": "flat"}),
    ("sat_soft model/encoder=transposed", {}),
    ("sat_soft", {"attention.mode": "argmax"}),
    ("spatial_transformer ~model/encoder", {}),
    (
        "spatial_transformer",
        {"norm": "pre", "encoder.positions": "2d", "text_positions": "learned"},
    ),
    ("transformer model/encoder=self_attention_block", {}),
    ("transformer", {"encoder.positions": "learned"}),
    ("transformer model/encoder=transposed", {"encoder.upsample_steps": 2}),
    ("spatial_transformer model/encoder=transposed_spatial_transformer", {}),
    (
        "transformer model/encoder=relative",
        {"encoder.memory": 3, "conditioning": "meshed", "encoder.layers": 2, "norm": "pre"},
    ),
    (
        "up_down model/encoder=geometry model/cell=aoa",
        {"encoder.layers": 2, "encoder.shared": True, "cell.tied": False, "attention.dropout": 0.2},
    ),
    ("sat_soft model/encoder=pyramid model/initial=last", {"encoder.pyramid": [1, 3]}),
    ("transformer model/encoder=recurrent", {"encoder.cell": "lstm", "encoder.pyramid": [1, 1]}),
    ("prefix", {"conditioning": "causal_prefix", "norm": "pre"}),
    ("prefix model/encoder=queries", {}),
    ("prefix model/encoder=pooled", {"scale": "sqrt_d"}),
]
TOLD = {f"model/{group}={option}" for name in SYSTEMS for group, option in parts(name).items()}
TOLD |= {choice for choices, _ in MIXTURES for choice in choices.split()}
ALONE = sorted(
    {f"model/{file.parent.name}={file.stem}" for file in CONF.glob("model/*/*.yaml")} - TOLD
)
"""Parts of no system and no mixture."""
CAPTIONERS = {name: (name, OWN.get(name, {})) for name in SYSTEMS}
CAPTIONERS |= {
    " ".join(
        [choices, *(f"{key}={value}" for key, value in settings.items() if key not in SMALL)]
    ): (choices, settings)
    for choices, settings in [*MIXTURES, *((f"sat_soft {a}", {}) for a in ALONE)]
}
"""Every captioner by a name that tells it, with what to compose and the settings to change."""
LAYERED = [
    name
    for name in CAPTIONERS
    if parts(name.split()[0])["_target_"] == "captioning.models.Transformer"
]


def attention_of(name: str) -> Any:
    """The class of its attention, if it has any."""
    system, *changes = name.split()
    chosen = parts(system) | dict(
        change.removeprefix("model/").split("=") for change in changes if "=" in change
    )
    kind = chosen.get("attention") and get_class(
        parts(chosen["attention"], "model/attention")["_target_"]
    )
    return kind if kind and (chosen.get("score") or not kind.scored) else None


BLIND = [name for name in CAPTIONERS if name not in LAYERED and not attention_of(name)]
"""Those without attention."""
STOCHASTIC = [
    name
    for name, (_, settings) in CAPTIONERS.items()
    if getattr(attention_of(name), "stochastic", False) and settings.get("score.heads", 1) == 1
]
"""Those with locations to sample: of one head."""


@cache
def composed(choices: str) -> DictConfig:
    """The configuration of a run with the model `choices`, `sat_soft model/score=dot`, and with
    Hydra's own.
    """
    with initialize_config_dir(str(CONF), version_base="1.3"):
        chosen = [
            f"model={choices}",
            "~data ~decoding ~trainer ~callbacks ~logger",
        ]  # what no model is made of
        return compose("config", " ".join(chosen).split(), return_hydra_config=True)


def model_settings(config: DictConfig) -> dict[str, Any]:
    """What its constructor gets."""
    return strip_extra_keys({"model": OmegaConf.to_container(config.model, resolve=True)})["model"]


def captioner(
    choices: str, vocab_size: int, d_context: int, grid: tuple[int, int], **settings: Any
) -> nn.Module:
    """A model of `conf/model`, with settings such as `d_hidden` or, as `**{"score.d_attention":
    5}`, of its parts.
    """
    config = composed(choices).copy()
    for key, value in settings.items():
        OmegaConf.update(config.model, key, value)
    return instantiate(
        model_settings(config), vocab_size=vocab_size, d_context=d_context, grid=grid
    )


@cache
def _built(name: str, seed: int, changes: tuple[tuple[str, Any], ...]) -> nn.Module:
    choices, settings = CAPTIONERS[name]
    model = composed(choices).model
    small = {key: value for key, value in SMALL.items() if OmegaConf.select(model, key)}
    torch.manual_seed(seed)
    return randomised(
        captioner(choices, V, D, GRID, **(small | settings | dict(changes))), seed=seed
    )


def build(name: str, seed: int = 0, **changes: Any) -> nn.Module:
    """An entry of `CAPTIONERS` in double precision, evaluating, every parameter random: biases and
    norms too.
    """
    return deepcopy(_built(name, seed, tuple(changes.items())))


def randomised(part: Any, std: float = 0.3, seed: int = 0) -> Any:
    """A part in double precision, evaluating, every parameter random: biases and norms too."""
    torch.manual_seed(seed)
    for parameter in part.double().eval().parameters():
        nn.init.normal_(parameter, std=std)
    return part


def normal(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def inputs(
    mask: Tensor | None = None, b: int = B, n: int = N, c: int = C
) -> tuple[ContextSet, Tensor]:
    """Images and captions that fit every entry."""
    tokens = torch.randint(4, V, (b, n, c), generator=torch.Generator().manual_seed(2))
    tokens[..., 0] = BOS
    return ContextSet(normal(b, L, D), GRID, mask), tokens


def repeatable(x: Tensor) -> Tensor:
    """In place of dropout: elementwise, so it does not mind the shape, and not linear, so it must
    be at the place.
    """
    return x * (1.5 + 0.25 * x.cos())


def led(model: nn.Module, locations: Tensor) -> Tensor:
    """In place of the numbers that draw locations, `locations` `[B, N, C]` themselves; `model` then
    takes these.
    """
    draw = type(model.attention).draw

    def take(alpha: Tensor, number: Tensor | None = None) -> Tensor:
        given = number is not None and not number.is_floating_point()
        return number if given else draw(model.attention, alpha, number)

    model.attention.draw = take
    return locations


class Largest(TorchDispatchMode):
    """The most numbers in a tensor that any operation gives."""

    numbers = 0

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        found = operation(*args, **(kwargs or {}))
        for each in found if isinstance(found, tuple | list) else [found]:
            if isinstance(each, Tensor):
                self.numbers = max(
                    self.numbers, each.untyped_storage().nbytes() // each.element_size()
                )
        return found
