"""The two forms of a captioner, compared before the first step."""

from contextlib import nullcontext

import pytest
from refusals import refuses
from torch import nn

from captioning.models.protocol import Captioner, CaptionOutput, Step
from captioning.training.agreement import check_agreement, has_own_parts

from .world import data, examples, module, show_attend_tell, transformer


class Own(Captioner):
    """A captioner around another one, with a fault of its own."""

    def __init__(self, model, fault):
        super().__init__()
        self.model, self.fault = model, fault
        self.start, self.readout, self.dropout = model.start, model.readout, nn.Dropout(0.5)

    readout = start = None  # those of the model

    def forward(self, context, tokens, **how):
        hidden = self.dropout(self.model(context, tokens, **how).hidden)
        if self.fault == "window":  # symmetric in place of causal padding
            hidden = hidden + 0.1 * nn.functional.pad(hidden[:, :, 1:], (0, 0, 0, 1))
        if self.fault == "mean":
            hidden = hidden + hidden.mean(dim=2, keepdim=True)
        return CaptionOutput(hidden)

    def step(self, tokens, state):
        step = self.model.step(tokens, state)
        logits = 1.1 * step.logits if self.fault == "scale" else step.logits
        return Step(logits, None, step.state)


def check(model):
    splits = {"train": examples(6), "val": examples(2), "test": examples(2)}
    check_agreement(module(model), data(splits))


def sampled():
    model = show_attend_tell()
    model.attention.mode = "sample"
    return model


@pytest.mark.parametrize("build", [transformer, show_attend_tell, sampled])
def test_forms_that_agree(build):
    model = Own(build(), None)
    check(model)
    assert model.training  # with its dropout, which is off for the comparison
    assert has_own_parts(model)
    assert not has_own_parts(model.model)


@pytest.mark.parametrize(
    "fault, said",
    [
        ("window", r"forward sees later words\. Step 1 of caption 1 of training image 1"),
        ("mean", "forward sees later words"),
        ("scale", r"forward and step disagree\. Step 1 of caption 1"),
        (None, None),
    ],
)
@pytest.mark.parametrize("build", [transformer, show_attend_tell])
def test_forms_that_do_not(build, fault, said):
    with refuses(said) if said else nullcontext():
        check(Own(build(), fault))
