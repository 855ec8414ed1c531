"""Objectives: how a batch becomes a loss."""

from captioning.training.objectives.base import BatchRandom, Loss, Objective, TrainingData
from captioning.training.objectives.cross_entropy import CrossEntropy
from captioning.training.objectives.reinforce import Reinforce
from captioning.training.objectives.self_critical import SelfCritical

__all__ = [
    "BatchRandom",
    "CrossEntropy",
    "Loss",
    "Objective",
    "Reinforce",
    "SelfCritical",
    "TrainingData",
]
