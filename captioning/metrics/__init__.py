"""Scores of generated captions: strings in, numbers on the scale of papers out."""

from captioning.metrics.metric import Metric, ScoredImage
from captioning.metrics.scorer import Scorer, Scores
from captioning.metrics.statistics import MetricResult
from captioning.metrics.table import SCORES, score_called

__all__ = ["SCORES", "Metric", "MetricResult", "ScoredImage", "Scorer", "Scores", "score_called"]
