"""Checks of this machine, and how to fix what is not ready: `captioning doctor`."""
