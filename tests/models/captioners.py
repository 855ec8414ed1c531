"""The registry of captioners: every system of conf/model and mixtures of their parts, each small,
for the laws to hold.

A system that is added to conf/model is among them by itself, a part by a mixture. V words, L
context vectors of D features on a grid; sizes are different primes where they can be.
"""

from copy import deepcopy
from functools import cache, partial

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from models.tensors import close, normal, randomised
from omegaconf import OmegaConf
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from captioning.backbones.context import ContextSet
from captioning.config.registry import CONF
from captioning.config.schemas.parts import strip_extra_keys
from captioning.tokens import BOS

V, D, GRID = 23, 17, (1, 11)
B, N, C, L = 2, 3, 5, 11
MASK = torch.tensor(
    [[k not in (1, 7, 10) for k in range(L)], [k in (0, 2, 3, 5) for k in range(L)]]
)


OF_SIX = torch.tensor([[True, False, True, True, True, False], [True] * 6])
"""A mask of parts on a grid of six places."""


def all_or(mask):
    """For tests of all places and of some."""
    return pytest.mark.parametrize("mask", [None, mask], ids=["all", "masked"])


masks = all_or(MASK)
SMALL = {
    "d_embed": 7,
    "d_hidden": 19,
    "d_model": 14,
    "d_ff": 19,
    "heads": 2,
    "decoder_layers": 2,
    "max_tokens": 29,
}
OF_ENCODERS = SMALL | {"layers": 1, "memory": 3, "prefix": 4}
OF_ENCODERS |= {"encoder.layers": 1, "encoder.heads": 2}
SMALL |= {f"encoder.{key}": value for key, value in OF_ENCODERS.items()}
"""Settings of those captioners that have them."""


GPT2 = "{model_type:gpt2,n_embd:14,n_layer:2,n_head:2,n_positions:64}"
OPT = (
    "{model_type:opt,hidden_size:14,word_embed_proj_dim:6,ffn_dim:19,num_hidden_layers:2,"
    "num_attention_heads:2,max_position_embeddings:64}"
)
OWN = {
    "aoa": "model.d_hidden=14 model.score.heads=2 "
    "model.attention.dropout=0 model.encoder.dropout=0",
    "language_model": f"model.architecture={GPT2}",
    "meshed_memory": "model.encoder.layers=2",
    "rnn_search": "model.score.d_attention=13 model.head.width=6",
    "x_linear": "model.d_hidden=16 model.encoder.d_model=16 model.attention.heads=2 "
    "model.attention.dropout=0 model.encoder.dropout=0",
}
"""Settings of those systems that need others."""
SYSTEMS = sorted(file.stem for file in CONF.glob("model/*.yaml"))
MIXTURES = f"""
sat_soft model/score=scaled_dot model.d_hidden={D}
sat_soft model/score=projected_dot model.score.d_attention=13
sat_soft model/score=dot
sat_soft model/score=linear
sat_soft model/score=uniform
sat_soft model/attention=local
hui_soft model.score.learned_scale=true
sat_hard model/score=location model/cell=gru model.attention.temperature=0.5 model.cell.reset=after
sat_soft model/encoder=layers model/score=location model.score.heads=2 model.score.d_attention=6
sat_hard model/cell=up_down model/inject=first
gru_attention model/inject=every model.attention.smoothing=true model.attention.gate=true
gru_conditional model/inject=first model.cell.query=before model.cell.reset=before \
  model.head.width=19
up_down model.cell.query=before model.attention.window=3
sat_soft model/encoder=layers model/initial=layer model.encoder.dropout=0 \
  model.head.tanh=true model.initial.norm=true model.head.bias=zero
lstm_bottleneck model.initial.pool=flat
sat_soft model/encoder=transposed
sat_soft model.attention.mode=argmax
spatial_transformer ~model/encoder
spatial_transformer model.conditioning=uniform
spatial_transformer model.norm=pre model.encoder.positions=2d model.text_positions=learned
transformer model/encoder=self_attention_block
transformer model.encoder.positions=learned
transformer model/encoder=transposed model.encoder.upsample_steps=2
spatial_transformer model/encoder=transposed_spatial_transformer
transformer model/encoder=relative model.encoder.memory=3 model.conditioning=meshed \
  model.encoder.layers=2 model.norm=pre
up_down model/encoder=geometry model/cell=aoa model.encoder.layers=2 model.encoder.shared=true \
  model.cell.tied=false model.attention.dropout=0.2
sat_soft model/encoder=pyramid model/initial=last model.encoder.pyramid=[1,3]
transformer model/encoder=recurrent model.encoder.cell=lstm model.encoder.pyramid=[1,1]
prefix model.conditioning=causal_prefix model.norm=pre
prefix model/encoder=queries
up_down model/cell=lstm model.cell.maxout=true model/encoder=layers model.encoder.layers=0 \
  model.encoder.batch_norm=both model.encoder.embed=relu \
  model/inject=whole model.inject.whole=null model.inject.width=9
aoa model.d_hidden=14 model.score.heads=2 model.attention.dropout=0 model.encoder.dropout=0 \
  model.score.norm=deviation model.score.biases=true model.encoder.norm=pre_deviation \
  model.encoder.batch_norm=input
transformer model.biases=true model.encoder.biases=true model.norm=pre_deviation
prefix model.biases=true
prefix model/encoder=pooled model.scale=sqrt_d
language_model model.conditioning=cross model.architecture={GPT2}
language_model model.conditioning=cross model/encoder=layers model.architecture={GPT2}
language_model model.architecture={OPT}
language_model model/encoder=pooled model.begin=image model.architecture={GPT2}
language_model model/encoder=pooled model.lora=3 model.architecture={OPT}
"""
CAPTIONERS = [*SYSTEMS, *MIXTURES.strip().splitlines()]
"""Every captioner by what a run composes it from."""


@cache
def composed(choices):
    """The configuration of a run with the model `choices`, `sat_soft model/score=dot`, and with
    Hydra's own.
    """
    others = "~backbone ~data ~decoding ~optimizer ~schedule ~trainer ~callbacks ~logger"
    with initialize_config_dir(str(CONF), version_base="1.3"):
        overrides = f"model={choices} {others}".split()
        return compose("config", overrides, return_hydra_config=True)


def model_settings(config):
    """What its constructor gets."""
    return strip_extra_keys({"model": OmegaConf.to_container(config.model, resolve=True)})["model"]


def captioner(choices, vocab_size, d_context, grid, **settings):
    """A model of `conf/model`, with settings such as `d_hidden` or, as `**{"score.d_attention":
    5}`, of its parts.
    """
    config = composed(choices).copy()
    for key, value in settings.items():
        OmegaConf.update(config.model, key, value)
    return instantiate(
        model_settings(config),
        _convert_="all",
        vocab_size=vocab_size,
        d_context=d_context,
        grid=grid,
    )


@cache
def _built(name, seed, grid, changes):
    choices = f"{name} {OWN.get(name, '')}"
    model = composed(choices).model
    settings = {
        key: value
        for key, value in SMALL.items()
        if OmegaConf.select(model, key) and f"model.{key}=" not in choices
    }
    if OPT in choices:  # in the library its softmax is in float32 always, and GPT-2's never
        from transformers.models.gpt2 import modeling_gpt2
        from transformers.models.opt import modeling_opt

        modeling_opt.eager_attention_forward = modeling_gpt2.eager_attention_forward
    torch.manual_seed(seed)
    return randomised(captioner(choices, V, D, grid, **(settings | dict(changes))), seed=seed)


def build(name, seed=0, grid=GRID, **changes):
    """An entry of `CAPTIONERS` in double precision, evaluating, every parameter random: biases and
    norms too.
    """
    return deepcopy(_built(name, seed, grid, tuple(changes.items())))


agree = partial(close, atol=1e-10)


def inputs(mask=None, b=B, n=N, c=C):
    """Images and captions that fit every entry."""
    tokens = torch.randint(4, V, (b, n, c), generator=torch.Generator().manual_seed(2))
    tokens[..., 0] = BOS
    return ContextSet(normal(b, L, D), GRID, mask), tokens


def led(model, locations):
    """In place of the numbers that draw locations, `locations` `[B, N, C]` themselves; `model` then
    takes these.
    """
    draw = type(model.attention).draw

    def take(alpha, number=None):
        given = number is not None and not number.is_floating_point()
        return number if given else draw(model.attention, alpha, number)

    model.attention.draw = take
    return locations


class Largest(TorchDispatchMode):
    """The most numbers in a tensor that any operation gives."""

    numbers = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        found = operation(*args, **(kwargs or {}))
        for each in found if isinstance(found, tuple | list) else [found]:
            if isinstance(each, Tensor):
                self.numbers = max(
                    self.numbers, each.untyped_storage().nbytes() // each.element_size()
                )
        return found
