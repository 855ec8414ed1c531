"""Data sets before training: captions, words, photographs, and what would silently hurt."""
