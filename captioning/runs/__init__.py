"""Runs on disk: their folders, checkpoints, evaluations and sweeps."""
