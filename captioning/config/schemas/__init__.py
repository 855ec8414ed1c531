"""Schemas of commands that are long."""
