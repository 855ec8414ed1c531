"""Lightning callbacks of a run."""
