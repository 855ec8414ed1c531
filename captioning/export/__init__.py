"""Captioners as files to share and as graphs."""
