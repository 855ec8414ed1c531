"""Built-in data: `data=shapes`, captioned scenes of coloured shapes."""

from captioning.data.shapes.dataset import ShapesReader

__all__ = ["ShapesReader"]
