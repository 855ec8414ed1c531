"""Schemas of commands that are long, or that two commands share."""
