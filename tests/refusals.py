"""What the package refuses, told by its sentence."""

import pytest

from captioning.errors import CaptioningError


def refuses(sentence):
    """A context in which our own error must come, with a part that this pattern fits."""
    return pytest.raises(CaptioningError, match=sentence)
