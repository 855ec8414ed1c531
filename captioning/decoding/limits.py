"""What the numbers that a search is given must be, said before it begins."""

from typing import Any

_COUNTS = ("width", "max_length", "n", "n_best", "groups", "top_k")


def check_limits(**settings: Any) -> None:
    """Checks settings by their names; None is not checked, names that have no limit are allowed.

    Raises:
        ValueError: says what came and what is allowed.
    """
    given = {name: value for name, value in settings.items() if value is not None}
    for name in _COUNTS:
        if given.get(name, 1) < 1:
            raise ValueError(f"{name}={given[name]} is not allowed; it must be at least 1")
    if given.get("temperature", 1) <= 0:
        raise ValueError(f"temperature={given['temperature']} is not allowed; it must be above 0")
    if not 0 < given.get("top_p", 1) <= 1:
        raise ValueError(f"top_p={given['top_p']} is not allowed; it is a probability, 0 < top_p <= 1")
    if given.get("diversity", 0) < 0:
        raise ValueError(f"diversity={given['diversity']} is not allowed; it must be at least 0")
    width = given.get("width", 1)
    if given.get("n_best", 1) > width:
        raise ValueError(f"n_best={given['n_best']} is not allowed; a beam of width={width} finds no more than that")
    if width % given.get("groups", 1):
        raise ValueError(f"width={width} is not allowed; it must be a multiple of groups={given['groups']}")
