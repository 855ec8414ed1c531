from collections.abc import Iterator

import pytest

from captioning.training.pace import Pace


def test_steps_and_validations_are_measured_apart() -> None:
    times: Iterator[float] = iter([100, 102, 104, 105, 125, 126, 127])
    pace = Pace(lambda: next(times))
    pace.step(7)  # resumed; the first step counts for nothing
    assert pace.left(10, 0) is None
    pace.step(8)
    pace.step(9)
    assert pace.left(10, 3) == pytest.approx(20)  # validations unknown
    pace.validation_begins()  # a second after the step, for its checkpoint
    pace.validation_ends()
    pace.step(10)
    pace.step(10)  # gradients of two batches for the next step
    assert pace.steps_per_second == pytest.approx(3 / 7)
    assert pace.left(6, 3) == pytest.approx(6 * 7 / 3 + 3 * 20)
