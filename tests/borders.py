"""What property tests at the borders share: any values, any bytes, and the outcomes that are allowed."""

from collections.abc import Callable
from typing import TypeVar

from hypothesis import strategies as st

from captioning.config.explain import explain, is_expected

T = TypeVar("T")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.just("half \ud83d"),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=8), children, max_size=3),
    max_leaves=8,
)
"""All that JSON can say, and numbers that it cannot."""


def mutated(content: bytes) -> st.SearchStrategy[bytes]:
    """The content with some bytes in place of others."""
    places = st.integers(0, len(content))
    return st.builds(
        lambda start, length, new: content[:start] + new + content[start + length :],
        places,
        places,
        st.binary(max_size=9),
    )


def read_or_refused(read: Callable[[], T]) -> tuple[T | None, str | None]:
    """What is read, or the sentence that it is refused with; any other exception is a failure."""
    try:
        return read(), None
    except Exception as error:
        if not is_expected(error):
            raise
        said = explain(error)
    said.encode()  # it can be printed
    return None, said
