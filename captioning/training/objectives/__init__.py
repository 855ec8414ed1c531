"""Objectives: how a batch becomes a loss."""

from captioning.training.objectives.cross_entropy import CrossEntropy
from captioning.training.objectives.draws import Draws
from captioning.training.objectives.loss import Loss, Objective
from captioning.training.objectives.reinforce import Reinforce
from captioning.training.objectives.self_critical import SelfCritical
from captioning.training.objectives.task import Task

__all__ = ["CrossEntropy", "Draws", "Loss", "Objective", "Reinforce", "SelfCritical", "Task"]
