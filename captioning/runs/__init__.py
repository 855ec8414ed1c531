"""A run on disk: folder, record, checkpoints, and resume."""
