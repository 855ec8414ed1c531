"""The systems at the sizes of their files, counted by hand, narrow ones of equal size, and parts
that do not fit.
"""

import re

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from models.captioners import MASK, B, build, captioner, inputs, model_settings

from captioning.config.registry import CONF

V, D, GRID = 10_000, 512, (14, 14)


def parameters(model):
    return sum(parameter.numel() for parameter in model.parameters())


def lstm(n, *inputs):
    return 4 * n * (n + sum(inputs)) + 4 * n


def gru(n, *inputs):
    return 3 * n * (n + sum(inputs)) + 3 * n


def additive(n):
    return D * D + D + n * D + D  # W_a and b, W_h, w


ATTENTION, NORM = 4 * 512 * 512, 2 * 512  # W_Q, W_K, W_V of all heads and W_O, no biases


def transformer(encoder, decoder, hidden):
    """The output has its own weights, not those of the embedding."""
    feed_forward = 512 * hidden + hidden + hidden * 512 + 512 + NORM
    layers = encoder * (ATTENTION + NORM + feed_forward) + decoder * (
        2 * (ATTENTION + NORM) + feed_forward
    )
    return V * 512 + layers + 512 * V + V


BRIDGES = 2 * (D * 1216 + 1216 + 1216 * 1216 + 1216)  # two layers to each of h_0 and c_0
SAT = 2 * V * 512 + BRIDGES + additive(1216) + lstm(1216, 512, D) + 1216 * 512 + D * 512
MAXOUT = (1024 + 512 + D) * 1024 + 1024 + 512 * V + V
GPT2_LAYER = 12 * 512**2 + (4 + 4 + 1 + 1 + 3) * 512
SIZES = {
    "language_model": (V + 1024) * 512 + 6 * GPT2_LAYER + 2 * 512 + D * 512 + 512,
    "spatial_transformer": transformer(2, 4, 1024),
    "transformer": transformer(6, 6, 2048),
    "sat_soft": SAT + 1217,
    "sat_hard": SAT,
    "show_tell": V * 512 + D * 512 + 512 + lstm(1216, 512) + 1216 * V + V,
    "gru_attention": V * 512 + D * 1024 + 1024 + additive(1024) + gru(1024, 512, D) + MAXOUT,
    "prefix": transformer(2, 4, 1024) - 4 * (ATTENTION + NORM),
    "adaptive": V * 512
    + D * 512
    + 512
    + 5 * 936 * (936 + 512 + 512)
    + 5 * 936
    + D * 936
    + 936
    + 3 * 936 * 936
    + 2 * 936
    + V * 936
    + V,
    "up_down": V * 1000
    + additive(1000)
    + lstm(1000, 1000, D, 1000)
    + lstm(1000, 1000, D)
    + 1000 * V
    + V,
}


@pytest.mark.parametrize("name, size", SIZES.items())
def test_size(name, size):
    with torch.device("meta"):
        assert parameters(captioner(name, V, D, GRID)) == size


def test_published_sizes():
    """AoANet's with 10,369 words; ours has no biases of queries, keys and values, and one of the
    LSTM's two.

    That of Yao et al. with 20,000; ours has no biases of the three maps before the words, and none
    of the score. That of the Object Relation Transformer with 9,487; ours has no biases in its 18
    attentions. That of GPT-2 without the map of an image is of its authors' weights.
    """
    with torch.device("meta"):
        gpt2 = captioner("language_model", 50_257, D, GRID, architecture={"model_type": "gpt2"})
        assert parameters(gpt2) == 124_439_808 + 768 * (D + 1)
        model = captioner("aoa", 10_370, 2048, (6, 6), d_embed=1024, d_hidden=1024)
        assert parameters(captioner("yao_soft", 20_000, 1024, (1, 28))) == 103_249_860 - (
            468 + 468 + 20_000 + 1
        )
        assert parameters(captioner("geometry", 9_488, 2048, (6, 6))) == 54_917_952 - 18 * 4 * 512
    assert parameters(model) == 87_369_858 - (6 + 1) * 3 * 1024 - 4 * 1024


def test_systems_that_are_compared_are_of_one_size():
    sizes = {}
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("config", ["experiment=zoo_shapes"], return_hydra_config=True)
        for name in config.hydra.sweeper.params.model.split(","):
            one = compose(
                "config",
                ["experiment=zoo_shapes", f"model={name}", "~callbacks", "~logger", "~decoding"],
            )
            with torch.device("meta"):
                backbone = instantiate(one.backbone)
                model = instantiate(model_settings(one), vocab_size=40, **backbone.sizes)
                sizes[name] = parameters(backbone) + parameters(model)
    assert len(sizes) >= 14
    assert abs(SIZES["sat_soft"] / SIZES["spatial_transformer"] - 1) < 0.01
    assert max(sizes.values()) < 1.1 * min(sizes.values())


@pytest.mark.parametrize(
    "choices, settings, message",
    [
        ("sat_soft model/score=dot", {"score.project": False}, "17 features and a query 13"),
        ("gru_location", {"score.kernel_size": 4}, "kernel_size is 4"),
        ("gru_attention", {"head.width": 7}, "maxout is 7"),
        ("gru_conditional ~model/score", {}, "set a score"),
        ("sat_soft ~model/attention", {}, "a score needs attention"),
        ("adaptive model/attention=soft", {}, "set both"),
        ("adaptive ~model/attention ~model/score", {}, "set both"),
        ("gru_attention model/attention=sentinel", {}, "set both"),
        ("adaptive model/score=location", {}, "one head"),
        ("adaptive model/score=dot", {}, "one head"),
        ("adaptive", {"score.heads": 13}, "one head"),
        ("sat_soft model/head=sum", {}, "their sum needs"),
        ("sat_soft model/encoder=layers", {"encoder.heads": 5}, "heads is 5"),
        ("spatial_transformer ~model/encoder", {"scale": "sqrt"}, "\nscale\n"),
        ("spatial_transformer ~model/encoder", {"conditioning": "prefix"}, "17 features"),
    ],
)
def test_parts_that_do_not_fit(choices, settings, message):
    sizes = {} if "transformer" in choices else {"d_embed": 7, "d_hidden": 13}
    with pytest.raises(Exception) as refused:  # noqa: PT011 - Hydra's, with ours in it
        captioner(choices, 23, 17, (1, 11), **(sizes | settings))
    assert re.search(message, str(refused.value))


def test_what_has_no_attention_samples_none():
    """And says so, which is what keeps objective=reinforce from it."""
    with pytest.raises(ValueError, match="no attention"):
        build("show_tell")(*inputs(MASK), sampled=torch.ones(B, dtype=torch.bool))
    assert not captioner("sat_hard ~model/score", 23, 17, (1, 11)).stochastic
    assert captioner("show_tell model/score=dot", 23, 17, (1, 11)).stochastic
