"""Scores of generated captions: strings in, numbers on the scale of papers out."""

from captioning.metrics.scorer import DEFAULT_METRICS, METRICS, SCORES, Scorer, Scores, score_called

__all__ = ["DEFAULT_METRICS", "METRICS", "SCORES", "Scorer", "Scores", "score_called"]
