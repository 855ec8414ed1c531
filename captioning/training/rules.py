"""Rules between parts, which would show in the middle of training or never."""

from collections.abc import Mapping

from captioning.backbones.base import Backbone
from captioning.backbones.precomputed import Precomputed
from captioning.config.registry import CheckedPart
from captioning.config.schemas.run import RunSettings
from captioning.errors import CaptioningError
from captioning.models import Captioner
from captioning.models.parts.recurrent_encoder import RecurrentEncoder
from captioning.runs.checkpoints.monitors import check_monitors
from captioning.training.objectives import Objective


def check_rules(
    settings: RunSettings,
    parts: Mapping[str, CheckedPart],
    backbone: Backbone,
    model: Captioner,
    objective: Objective,
) -> None:
    """Refuse parts that do not go together, which would show in the middle of training or never."""
    learner, system = parts["objective"].target.__name__, parts["model"].target.__name__
    relative = settings.model.relative
    if objective.stochastic and not model.stochastic:
        raise CaptioningError(
            f"objective {learner} learns from sampled attention, and model {system} samples none: "
            "use model=sat_hard or model=sat_soft"
        )
    if objective.needs_attention and not model.attends:
        advice = "choose another objective"
        if settings.objective.get("doubly_stochastic"):
            advice = "set objective.doubly_stochastic=0"
        raise CaptioningError(
            f"objective {learner} learns from attention, and model {system} has none: {advice}, or "
            "give it attention (model/score=mlp)"
        )
    if objective.needs_initial and settings.init_from is None:
        raise CaptioningError(
            "objective.kl_weight holds the model near the one that training begins from, which is "
            "random: set init_from=CHECKPOINT, or objective.kl_weight=0"
        )
    if settings.model.freeze and not (settings.model.path or settings.init_from):
        raise CaptioningError(
            "model.freeze=true holds weights that training begins from, and these are random: set "
            "model.path=FOLDER, or model.freeze=false"
        )
    if relative != "none" and any(isinstance(part, Precomputed) for part in backbone.modules()):
        raise CaptioningError(
            f"model.encoder.relative={relative} needs places, and backbone=features has none: set "
            "it to none"
        )
    if backbone.images > 1:
        for part in model.modules():
            if isinstance(part, RecurrentEncoder) or getattr(part, "flat", False):
                raise CaptioningError(
                    f"{type(part).__name__} reads the vectors of one image in their order, and "
                    f"{type(backbone).__name__} has {backbone.images}: choose another part"
                )
    rates = settings.optimizer
    if not backbone.trainable:
        _check_rate("backbone_lr", rates.backbone_lr, "backbone", "backbone.trainable=true")
    if not any(weight.requires_grad for weight in model.pretrained):
        unfrozen = "model=language_model model.freeze=false"
        _check_rate("pretrained_lr", rates.pretrained_lr, "language model", unfrozen)
    check_monitors(settings)


def _check_rate(key: str, rate: float | None, network: str, needed: str) -> None:
    """Refuse a learning rate of weights that are not trained."""
    if rate:
        raise CaptioningError(
            f"optimizer.{key}={rate} needs a {network} that is trained: set {needed}, or "
            f"optimizer.{key}=null"
        )
