"""The built-in data set `data=shapes`: captioned scenes of coloured shapes, with a box for every noun."""

from captioning.data.shapes.dataset import ShapesReader

__all__ = ["ShapesReader"]
