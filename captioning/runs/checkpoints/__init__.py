"""Checkpoints: what chooses them, what they hold, and networks rebuilt from them."""
