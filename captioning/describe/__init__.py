"""Data sets before training: their captions, words and photographs, and what would silently
hurt.
"""
