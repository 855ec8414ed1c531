"""Parts that do not fit are refused by name when they are built, which takes no data."""

import re

import pytest
from models.captioners import captioner

SIZES = {"d_embed": 7, "d_hidden": 13}


@pytest.mark.parametrize(
    ("choices", "settings", "message"),
    [
        ("sat_soft model/score=dot", {"score.project": False}, "17 features and a query 13; set project=true"),
        ("up_down model/score=scaled_dot", {"score.project": False}, "a query 13; set project=true"),
        ("gru_location", {"score.reach": 3}, "reach is 3; it must be even"),
        ("gru_attention", {"head.width": 7}, "width of the maxout is 7; it must be even"),
        ("gru_conditional ~model/score", {}, "attention between its cells, and the model has none: set a score"),
        ("show_tell", {"inject.project": False}, "17 features cannot be read as a word of 7; set project=true"),
        ("sat_soft ~model/attention", {}, "a score needs attention"),
        ("sat_soft", {"attention.choice": "hard"}, "\nchoice\n"),
        ("sat_soft", {"attention.temperature": 0.0}, "\ntemperature\n"),
        ("spatial_transformer ~model/encoder", {"scale": "sqrt"}, "\nscale\n"),
        ("sat_soft model/encoder=layers", {"encoder.heads": 5}, "d_feat is 512 and heads is 5"),
        ("spatial_transformer", {"heads": 5}, "d_feat is 512 and heads is 5; d_feat must be a multiple of heads"),
    ],
)
def test_parts_that_do_not_fit(choices: str, settings: dict[str, object], message: str) -> None:
    sizes = {} if "transformer" in choices else {"d_embed": 7, "d_hidden": 13}
    with pytest.raises(Exception, match=re.escape(message)):
        captioner(choices, 23, 17, (1, 11), **(sizes | settings))


@pytest.mark.parametrize("name", ["show_tell", "sat_soft", "spatial_transformer"])
def test_an_empty_grid(name: str) -> None:
    with pytest.raises(Exception, match=r"\ngrid\.0\n"):
        captioner(name, 23, 17, (0, 5))


@pytest.mark.parametrize("choices", ["sat_hard ~model/score", "show_tell", "spatial_transformer"])
def test_what_cannot_be_sampled_says_so(choices: str) -> None:
    """Which is what keeps objective=reinforce from it."""
    assert not captioner(choices, 23, 17, (1, 11)).stochastic
    assert captioner("show_tell model/score=dot", 23, 17, (1, 11)).stochastic
