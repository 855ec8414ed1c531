"""What people call the systems: in tables, curves and pictures the same."""

from typing import Final

SMALL = "_small"
NAMES: Final = {
    "spatial_transformer": "spatial transformer",
    "transformer": "transformer",
    "patches_transformer": "spatial transformer over patches",
    "sat_soft": "Show, Attend and Tell, soft",
    "sat_hard": "Show, Attend and Tell, hard",
    "sat_soft_self_attention": "Show, Attend and Tell, soft, behind self-attention",
    "hui_soft": "Hui's soft attention",
    "show_tell": "Show and Tell",
    "lstm_every": "LSTM, image beside every word",
    "lstm_bottleneck": "LSTM, image as one state",
    "gru_attention": "GRU with attention",
    "gru_location": "GRU with location-aware attention",
    "gru_conditional": "conditional GRU with attention",
    "up_down": "Bottom-Up and Top-Down",
}
"""By the file of `conf/model`; one called `NAME_small` is the same system, narrow."""


def system_name(model: str) -> str:
    """A system by its configuration; those of users are called as their files are."""
    name = NAMES.get(model.removesuffix(SMALL))
    return model if name is None else name + (", small" if model.endswith(SMALL) else "")
