"""The registry of captioners: every system of conf/model and mixtures of their parts, each small, for the laws to hold.

V words, L context vectors of D features on a grid; sizes are different primes where they can be.
"""

from copy import deepcopy
from functools import cache
from typing import Any

import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn

from captioning.backbones.context import ContextSet
from captioning.config.registry import CONF
from captioning.config.settings import of_parts
from captioning.tokens import BOS

V, D, GRID = 23, 17, (1, 11)
B, N, C, L = 2, 3, 5, 11
MASK = torch.tensor([[k not in (1, 7, 10) for k in range(L)], [k in (0, 2, 3, 5) for k in range(L)]])

RECURRENT = {"d_embed": 7, "d_hidden": 13}
DECODER = {"d_feat": 14, "heads": 2, "d_hidden": 19, "decoder_layers": 2, "max_tokens": 29}
TRANSFORMER = DECODER | {"encoder.layers": 1}
SYSTEMS: dict[str, dict[str, Any]] = {
    "spatial_transformer": TRANSFORMER,
    "transformer": TRANSFORMER,
    "show_tell": RECURRENT,
    "lstm_every": RECURRENT,
    "lstm_bottleneck": RECURRENT,
    "sat_soft": RECURRENT,
    "sat_hard": RECURRENT,
    "sat_soft_self_attention": RECURRENT,
    "hui_soft": RECURRENT,
    "gru_attention": RECURRENT,
    "gru_location": RECURRENT,
    "gru_conditional": RECURRENT,
    "up_down": RECURRENT,
    "patches_transformer": TRANSFORMER,
}
MIXTURES: dict[str, dict[str, Any]] = {
    "sat_hard model/score=linear": RECURRENT,
    "sat_hard model/score=dot": RECURRENT,
    "sat_soft model/score=scaled_dot": RECURRENT | {"d_hidden": D},
    "sat_soft model/score=projected_dot": RECURRENT | {"score.d_attention": 19},
    "hui_soft": RECURRENT | {"score.learned_scale": True},
    "sat_hard model/score=location model/cell=gru": RECURRENT | {"attention.temperature": 0.5, "cell.reset": "after"},
    "sat_hard model/cell=up_down model/inject=first": RECURRENT,
    "gru_attention model/cell=gru_printed model/inject=every": RECURRENT
    | {"attention.smoothing": True, "attention.gate": True},
    "show_tell model/cell=gru_printed": RECURRENT,
    "gru_conditional model/inject=first": RECURRENT
    | {"cell.query": "before", "cell.reset": "before", "head.width": 19},
    "up_down": RECURRENT | {"cell.query": "before", "attention.window": 3},
    "sat_soft model/encoder=layers model/initial=layer": RECURRENT
    | {"encoder.d_feat": 14, "encoder.heads": 2, "encoder.d_hidden": 19, "encoder.dropout": 0.0, "head.tanh": True}
    | {"initial.norm": True, "head.bias": "zero"},
    "lstm_bottleneck": RECURRENT | {"initial.pool": "flat"},
    "sat_soft": RECURRENT | {"attention.choice": "argmax"},
    "sat_soft model/attention=local": RECURRENT,
    "spatial_transformer ~model/encoder": DECODER,
    "spatial_transformer": TRANSFORMER | {"norm": "pre", "encoder.positions": "2d", "text_positions": "learned"},
    "transformer model/encoder=self_attention_block": DECODER,
    "transformer": TRANSFORMER | {"encoder.positions": "learned"},
    "transformer model/encoder=transposed": DECODER | {"encoder.doublings": 2},
    "spatial_transformer model/encoder=transposed_spatial_transformer": DECODER | {"encoder.behind.layers": 1},
}
CAPTIONERS: dict[str, tuple[str, dict[str, Any]]] = {name: (name, sizes) for name, sizes in SYSTEMS.items()} | {
    " ".join([name, *(f"{key}={value}" for key, value in sizes.items() if key not in RECURRENT | TRANSFORMER)]): (
        name,
        sizes,
    )
    for name, sizes in MIXTURES.items()
}
"""Every captioner by a name that tells it, with what to compose and the settings to change."""
BLIND = [name for name in CAPTIONERS if name.startswith(("show_tell", "lstm_"))]
"""Those without attention."""
STOCHASTIC = [name for name in CAPTIONERS if "transformer" not in name and name not in BLIND]
"""Those with locations to sample."""


@cache
def composed(choices: str) -> DictConfig:
    """The configuration of a run with the model `choices`, `sat_soft model/score=dot`, and with Hydra's own."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("config", f"model={choices}".split(), return_hydra_config=True)


def captioner(choices: str, vocab_size: int, d_context: int, grid: tuple[int, int], **settings: Any) -> nn.Module:
    """A model of `conf/model`, with settings such as `d_hidden` or, as `**{"score.d_attention": 5}`, of its parts."""
    config = composed(choices).copy()
    for key, value in settings.items():
        OmegaConf.update(config.model, key, value)
    parts = of_parts({"model": OmegaConf.to_container(config.model, resolve=True)})
    return instantiate(parts["model"], vocab_size=vocab_size, d_context=d_context, grid=grid)


@cache
def _built(name: str, seed: int, changes: tuple[tuple[str, Any], ...]) -> nn.Module:
    choices, sizes = CAPTIONERS[name]
    torch.manual_seed(seed)
    model = captioner(choices, V, D, GRID, **(sizes | dict(changes))).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model


def build(name: str, seed: int = 0, **changes: Any) -> nn.Module:
    """An entry of `CAPTIONERS` in double precision, evaluating, every parameter random: biases and norms too."""
    return deepcopy(_built(name, seed, tuple(changes.items())))


def normal(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def inputs(mask: Tensor | None = None, b: int = B, n: int = N, c: int = C) -> tuple[ContextSet, Tensor]:
    """Images and captions that fit every entry."""
    tokens = torch.randint(4, V, (b, n, c), generator=torch.Generator().manual_seed(2))
    tokens[..., 0] = BOS
    return ContextSet(normal(b, L, D), GRID, mask), tokens


def randomised(part: Any, std: float = 0.3) -> Any:
    """A part in double precision, evaluating, every parameter random: biases and norms too."""
    torch.manual_seed(0)
    for parameter in part.double().eval().parameters():
        nn.init.normal_(parameter, std=std)
    return part


def repeatable(x: Tensor) -> Tensor:
    """In place of dropout: elementwise, so it does not mind the shape, and not linear, so it must be at the place."""
    return x * (1.5 + 0.25 * x.cos())


def led(model: nn.Module, locations: Tensor) -> Tensor:
    """In place of the numbers that draw locations, `locations` `[B, N, C]` themselves; `model` then takes these."""
    draw = type(model.attention).draw

    def take(alpha: Tensor, number: Tensor | None = None) -> Tensor:
        given = number is not None and not number.is_floating_point()
        return number if given else draw(model.attention, alpha, number)

    model.attention.draw = take
    return locations
