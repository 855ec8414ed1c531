"""Readers of caption files."""
