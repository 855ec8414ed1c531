"""Captioners in other forms than that of a checkpoint."""
