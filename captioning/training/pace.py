"""How fast a training goes, and so how long it still takes."""

import time
from collections.abc import Callable


class Pace:
    """Measures steps and validations of this process, each apart.

    The first step is left out: it waits for data workers, takes memory and compiles.

    Args:
        clock: seconds.

    Attributes:
        steps: measured.
        validations: measured.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._done = 0
        self._since: float | None = None
        self.steps = self.validations = 0
        self._training = self._validating = 0.0

    @property
    def steps_per_second(self) -> float | None:
        """None before the second step."""
        return self.steps / self._training if self.steps and self._training else None

    def step(self, done: int) -> None:
        """Notes that `done` steps of the whole training are done."""
        if self._since is not None:
            self.steps += done - self._done
        self._training += self._lap()
        self._done = done

    def validation_begins(self) -> None:
        """Stops the time of steps."""
        self._training += self._lap()

    def validation_ends(self) -> None:
        """Lets it go on."""
        self._validating += self._lap()
        self.validations += 1

    def left(self, steps: float, validations: float) -> float | None:
        """Seconds for so many more, validations without effect while none is measured; None before the second step."""
        rate = self.steps_per_second
        if rate is None:
            return None
        each = self._validating / self.validations if self.validations else 0.0
        return steps / rate + validations * each

    def _lap(self) -> float:
        """Seconds since the last one; of the first none."""
        now, before = self._clock(), self._since
        self._since = now
        return 0.0 if before is None else now - before
