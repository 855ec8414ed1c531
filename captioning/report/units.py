"""Names and values of scores as tables print them."""

from captioning.metrics.scorer import score_called


def printed(name: str, value: float) -> str:
    """A number without its unit; what is rounded to zero has no sign."""
    return score_called(name).printed(value)


def headed(name: str) -> str:
    """The head of a column: with the unit, where that is not the 0-100 of papers."""
    return score_called(name).heading
