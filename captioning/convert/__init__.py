"""Checkpoints of other projects as checkpoints of this one."""
