"""What the numbers that a search is given must be to each other; what each may be stands in its annotation."""


def check_limits(width: int = 1, groups: int = 1, n_best: int = 1) -> None:
    """Refuses numbers that do not go together.

    Raises:
        ValueError: says what came and what is allowed.
    """
    if n_best > width:
        raise ValueError(f"n_best={n_best} is not allowed; a beam of width={width} finds no more than that")
    if width % groups:
        raise ValueError(f"width={width} is not allowed; it must be a multiple of groups={groups}")
