"""A run on disk: its folder, its record, its checkpoints, and how it goes on."""
