"""Built-in data: `data=shapes`, captioned scenes of coloured shapes, and `data=moving_shapes`,
clips of them.
"""

from captioning.data.shapes.dataset import ShapesReader
from captioning.data.shapes.moving import MovingShapesReader

__all__ = ["MovingShapesReader", "ShapesReader"]
