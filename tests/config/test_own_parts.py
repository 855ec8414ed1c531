"""Parts of the user's own that cannot be built: a sentence names them, whatever they raise."""

import functools

import pytest
import torch
from lightning import Callback
from lightning.pytorch.loggers import CSVLogger
from refusals import refuses
from support import QUIET, assembled, composed, miniature

from captioning.backbones.scratch import SmallCNN
from captioning.data.shapes import ShapesReader
from captioning.data.views import RandomChange
from captioning.decoding import Filter, Filters
from captioning.metrics.ngrams import Bleu
from captioning.models import Transformer
from captioning.training.objectives import CrossEntropy

pytestmark = [pytest.mark.usefixtures("elsewhere"), *QUIET]


def broken(base):
    """A class whose constructor asks a dictionary for what it has not."""

    @functools.wraps(base.__init__)  # with its settings
    def fail(self, *_, **__):
        raise KeyError("no such layer")

    return type(f"Broken{base.__name__}", (base,), {"__init__": fail, "__module__": __name__})


BASES = (SmallCNN, ShapesReader, Filters, Transformer, CrossEntropy, Callback, RandomChange)
for each in (*BASES, CSVLogger, torch.optim.Adam, torch.optim.lr_scheduler.StepLR, Bleu):
    globals()[f"Broken{each.__name__}"] = broken(each)


class Unready(CrossEntropy):
    def prepare(self, data, model):
        raise AttributeError("no such layer")


class Uncounted(Transformer):
    def prepare(self, counts, ids=None):
        raise ZeroDivisionError("no such layer")


class Overwritten(Filter):
    def over(self, tokens):
        raise RuntimeError("no such layer")


PLACES = {
    "backbone": "BrokenSmallCNN",
    "model": "BrokenTransformer",
    "data.reader": "BrokenShapesReader",
    "data.view": "BrokenRandomChange",
    "objective": "BrokenCrossEntropy",
    "decoding.filters": "BrokenFilters",
    "optimizer": "BrokenAdam",
    "schedule": "BrokenStepLR",
    "+callbacks.mine": "BrokenCallback",
    "logger.csv": "BrokenCSVLogger",
}
LATER = {"objective": "Unready", "model": "Uncounted", "decoding.filters": "Overwritten"}


def of(place, name):
    return assembled(miniature(composed(f"{place}._target_={__name__}.{name}")))


@pytest.mark.parametrize("place, name", [*PLACES.items(), *LATER.items()])
def test_its_place_is_named(place, name):
    with refuses(rf"^{place.lstrip('+')}: .*no such layer.*Error"):
        of(place, name)


def test_a_metric():
    with refuses(r"BrokenBleu.*KeyError.*no such layer"):
        assembled(miniature(composed(f"metrics.test=[BLEU,{__name__}.BrokenBleu]")))
