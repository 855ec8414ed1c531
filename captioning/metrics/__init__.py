"""Scores of generated captions: strings in, numbers on the scale of papers out."""

from captioning.metrics.scorer import DEFAULT_METRICS, METRICS, Scorer, Scores

__all__ = ["DEFAULT_METRICS", "METRICS", "Scorer", "Scores"]
