"""Captioned photographs, from the files that they come in."""
