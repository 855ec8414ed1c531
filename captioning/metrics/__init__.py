"""Scores of generated captions: strings in, numbers on the scale of papers out."""

from captioning.metrics.caption_scores import CaptionScores
from captioning.metrics.scorer import METRICS, Scorer, Scores

__all__ = ["METRICS", "CaptionScores", "Scorer", "Scores"]
