"""A checkpoint as a file to share."""
