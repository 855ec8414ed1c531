"""The systems at the sizes of their files, counted by hand, and narrow ones of equal size."""

from itertools import pairwise

import pytest
import torch
import yaml
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from models.captioners import captioner, composed
from omegaconf import OmegaConf
from torch import nn

from captioning.config.registry import CONF, build, renewed
from captioning.config.settings import of_parts

V, D, GRID = 10_000, 512, (14, 14)


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def lstm(n: int, *inputs: int) -> int:
    return 4 * n * (n + sum(inputs)) + 4 * n


def gru(n: int, *inputs: int) -> int:
    return 3 * n * (n + sum(inputs)) + 3 * n


def additive(n: int) -> int:
    return D * D + D + n * D + D  # W_a and b, W_h, w


SAT = 2 * (D * 1216 + 1216 + 1216 * 1216 + 1216) + additive(1216) + lstm(1216, 512, D) + 1216 * 512 + D * 512
MAXOUT = (1024 + 512 + D) * 1024 + 1024 + 512 * V + V
NORM, FEED_FORWARD = 2 * 512, 2 * 512 * 2048 + 2048 + 512
ATTENTION = 4 * 512 * 512  # W_Q, W_K, W_V of all heads and W_O, no biases
SMALL_FEED_FORWARD = 512 * 1024 + 1024 + 1024 * 512 + 512
SIZES = {
    "spatial_transformer": V * 512  # and the output has its own weights, not those of the embedding
    + 2 * (ATTENTION + NORM + SMALL_FEED_FORWARD + NORM)
    + 4 * (2 * (ATTENTION + NORM) + SMALL_FEED_FORWARD + NORM)
    + 512 * V
    + V,
    "sat_soft": V * 512 + SAT + 1217 + 512 * V,
    "sat_hard": V * 512 + SAT + 512 * V,
    "sat_soft_self_attention": V * 512 + SAT + 1217 + 512 * V + D * (64 + 64 + 256) + 256 * D + 1,
    "show_tell": V * 512 + D * 512 + 512 + lstm(1216, 512) + 1216 * V + V,
    "lstm_every": V * 512 + D * 512 + 512 + lstm(1216, 512, 512) + 1216 * V + V,
    "gru_attention": V * 512 + D * 1024 + 1024 + additive(1024) + gru(1024, 512, D) + MAXOUT,
    "gru_location": V * 512 + D * 1024 + 1024 + additive(1024) + 10 * 25 + 10 * D + gru(1024, 512, D) + MAXOUT,
    "up_down": V * 1000 + additive(1000) + lstm(1000, 1000, D, 1000) + lstm(1000, 1000, D) + 1000 * V + V,
    "transformer": V * 512
    + 6 * (ATTENTION + NORM + FEED_FORWARD + NORM)
    + 6 * (2 * (ATTENTION + NORM) + FEED_FORWARD + NORM)
    + 512 * V
    + V,
}


SIZES["patches_transformer"] = (
    SIZES["spatial_transformer"] + 4 * (ATTENTION + NORM + SMALL_FEED_FORWARD + NORM) + 2 * NORM
)


@pytest.mark.parametrize(("name", "size"), SIZES.items())
def test_size(name: str, size: int) -> None:
    with torch.device("meta"):
        assert parameters(captioner(name, V, D, GRID)) == size


def test_soft_attention_is_about_as_large_as_the_spatial_transformer() -> None:
    assert SIZES["spatial_transformer"] == 27_052_816
    assert abs(SIZES["sat_soft"] / SIZES["spatial_transformer"] - 1) < 0.01


def test_a_system_without_convolution_is_as_large_as_one_with_it() -> None:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        backbone = compose("config", ["model=patches_transformer", "backbone.dim=512", "backbone.size=224"]).backbone
    size = SIZES["patches_transformer"] + parameters(instantiate(backbone))
    vgg11 = sum(9 * a * b + b for a, b in pairwise([3, 64, 128, 256, 256, 512, 512, 512, 512]))  # to features.19
    assert abs(size / (SIZES["spatial_transformer"] + vgg11) - 1) < 0.02


def test_the_narrow_systems_of_the_comparison_are_of_one_size() -> None:
    sizes = {}
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("config", ["experiment=zoo_shapes"], return_hydra_config=True)
        for name in config.hydra.sweeper.params.model.split(","):
            one = compose("config", ["experiment=zoo_shapes", f"model={name}"])
            with torch.device("meta"):
                backbone = instantiate(one.backbone)
                model = instantiate(
                    of_parts({"model": OmegaConf.to_container(one.model, resolve=True)})["model"],
                    vocab_size=40,
                    **backbone.sizes,
                )
                sizes[name] = parameters(backbone) + parameters(model)
    assert set(sizes) == {file.stem for file in CONF.glob("model/*_small.yaml")}
    assert max(sizes.values()) < 1.1 * min(sizes.values())


@pytest.mark.parametrize(("name", "attention"), [("sat_soft", "gated"), ("sat_hard", "hard"), ("show_tell", "soft")])
def test_settings_from_before_attention_was_a_part(name: str, attention: str) -> None:
    """They gave the same networks; without a score there was none, whatever they were."""
    settings = OmegaConf.to_container(composed(f"{name} model/attention={attention}").model, resolve=True)
    today = of_parts({"model": settings})["model"]
    stored = {key: value for key, value in today.items() if key != "attention"}
    stored |= {key: value for key, value in today["attention"].items() if not key.startswith("_")}
    found = renewed(stored)
    assert found.get("attention") == (today["attention"] if today.get("score") else None)
    with torch.device("meta"):
        one, other = (build("model", each, vocab_size=7, d_context=5, grid=GRID) for each in (found, today))
    assert [*one.state_dict()] == [*other.state_dict()]


def test_every_system_has_a_title() -> None:
    titles = [yaml.safe_load(file.read_text(encoding="utf-8"))["title"] for file in CONF.glob("model/*.yaml")]
    assert len(set(titles)) == len(titles)
    assert not [title for title in titles if "_" in title]
