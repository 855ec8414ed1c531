"""A run's folder: its name, record, lock and source, and the search for an earlier run."""
