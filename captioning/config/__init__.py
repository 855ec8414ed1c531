"""Settings: composed, explained, checked, and turned into objects."""
