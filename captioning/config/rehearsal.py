"""The parts of a run built once before data are read, to hear what they refuse by themselves.

The networks are built on PyTorch's device for tensors without content: that takes neither memory nor a download.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from hydra.errors import InstantiationException
from hydra.utils import get_object, instantiate
from omegaconf import DictConfig, OmegaConf
from torch import nn

from captioning.config.explain import in_part
from captioning.config.optimizer import optimizer_settings
from captioning.config.precision import precision_of
from captioning.config.settings import without_weights
from captioning.errors import CaptioningError
from captioning.tokens import NAMES


def rehearse(config: DictConfig) -> None:
    """Builds reader, networks, objective, optimiser, schedule, callbacks and trainer, and forgets them.

    Args:
        config: of a run; that each setting fits its parameter has been checked.

    Raises:
        CaptioningError: a part refuses its settings, or the objective needs another model.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they come when the parts are built to be used
        _built(config, "data.reader")
        objective = _built(config, "objective")
        model = _networks(config) or get_object(config.model._target_)
        if objective.stochastic and not getattr(model, "stochastic", False):
            raise CaptioningError(
                f"objective {config.objective._target_} learns from sampled attention, and model "
                f"{config.model._target_} samples none: use model=sat_hard or model=sat_soft, or "
                "objective=cross_entropy"
            )
        if objective.needs_attention and not getattr(model, "attends", True):
            raise CaptioningError(
                f"objective {config.objective._target_} regularises attention, and model {config.model._target_} has "
                "none: set objective.doubly_stochastic=0, or give it attention (model/score=mlp for a recurrent one)"
            )
        if objective.needs_initial and config.init_from is None:
            raise CaptioningError(
                "objective.kl_weight holds the model near the one that training begins from, and that has random "
                "weights: set init_from=CHECKPOINT, or objective.kl_weight=0"
            )
        with _refusing("optimizer"):
            optimizer = instantiate(optimizer_settings(config))([nn.Parameter(torch.zeros(1))])
        with _refusing("schedule"):
            instantiate(config.schedule)(optimizer, 1)
        callbacks = [_built(config, f"callbacks.{name}") for name, part in config.callbacks.items() if part is not None]
        _built(config, "trainer", callbacks=callbacks, logger=False, precision=precision_of(config.trainer))


def _networks(config: DictConfig) -> nn.Module | None:
    """The model behind its backbone; None where one cannot be built without content, which is no fault."""
    described = config.copy()
    changes = _built(config, "data.view")
    described.backbone = without_weights(OmegaConf.to_container(config.backbone, resolve=True))
    try:
        with torch.device("meta"):
            backbone = _built(described, "backbone")
            if config.data.views > 1:
                backbone.viewed(changes.view(1))
            return _built(described, "model", vocab_size=len(NAMES) + 1, **backbone.sizes)
    except CaptioningError as refusal:
        if isinstance(refusal.__cause__, RuntimeError):
            return None
        raise


def _built(config: DictConfig, path: str, **given: Any) -> Any:
    with _refusing(path):
        return instantiate(OmegaConf.select(config, path), **given)


@contextmanager
def _refusing(path: str) -> Iterator[None]:
    """Turns whatever a part raises into one sentence that names it."""
    try:
        yield
    except Exception as error:
        cause = error.__cause__ if isinstance(error, InstantiationException) and error.__cause__ else error
        if isinstance(cause, CaptioningError):
            raise cause from None
        raise CaptioningError(in_part(path, cause)) from cause
