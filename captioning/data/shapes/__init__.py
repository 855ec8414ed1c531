"""The embedded data set `data=shapes`: coloured shapes, drawn and captioned from a seed, a box for every noun."""

from captioning.data.shapes.dataset import ShapesReader

__all__ = ["ShapesReader"]
