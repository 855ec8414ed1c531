"""Projects whose checkpoints run here, a module each with its table of names."""
