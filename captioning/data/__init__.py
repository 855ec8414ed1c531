"""Captioned photographs: readers, words, batches."""
