"""A model's decode state, whatever its classes, as tensors with names, and back.

A state is dataclasses, tuples, lists and dicts around tensors; what else is in it stays as it is.
"""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from torch import Tensor


def leaves(node: Any, name: str = "") -> dict[str, Tensor]:
    """The tensors of a state by where they are in it, such as `image.layers.0.key`."""
    if isinstance(node, Tensor):
        return {name: node}
    return {
        leaf: tensor
        for key, child in _children(node)
        for leaf, tensor in leaves(child, f"{name}.{key}".lstrip(".")).items()
    }


def rebuilt(node: Any, tensors: Mapping[str, Any], name: str = "") -> Any:
    """The same state with other tensors, called as `leaves` calls them; None where there is none of that name."""
    if isinstance(node, Tensor):
        return tensors.get(name)
    children = {str(key): rebuilt(child, tensors, f"{name}.{key}".lstrip(".")) for key, child in _children(node)}
    made = node
    if is_dataclass(node) and not isinstance(node, type):
        made = replace(node, **children)
    elif isinstance(node, tuple):
        made = type(node)(*children.values()) if hasattr(node, "_fields") else tuple(children.values())
    elif isinstance(node, list):
        made = list(children.values())
    elif isinstance(node, Mapping):
        made = dict(zip(node, children.values(), strict=True))
    return made


def of_image(name: str) -> bool:
    """Whether a leaf belongs to the image, and so is stored once for its hypotheses."""
    return name.startswith("image.")


def _children(node: Any) -> Iterator[tuple[Any, Any]]:
    if is_dataclass(node):
        yield from ((field.name, getattr(node, field.name)) for field in fields(node))
    elif isinstance(node, tuple) and hasattr(node, "_fields"):
        yield from zip(node._fields, node, strict=True)
    elif isinstance(node, tuple | list):
        yield from enumerate(node)
    elif isinstance(node, Mapping):
        yield from node.items()
