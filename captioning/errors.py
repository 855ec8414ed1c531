"""What a command ends with that is no defect of the program."""


class CaptioningError(Exception):
    """What a user can mend: says what came, what is allowed and what to do; commands print it alone and exit with 1."""


class Stopped(BaseException):
    """A signal has ended the work; says how to go on. No `Exception`, or a sweep would go on to its next job.

    Attributes:
        exit_code: 128 and the number of the signal, as shells have it.
    """

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message, signal_number)
        self.exit_code = 128 + signal_number

    def __str__(self) -> str:
        return str(self.args[0])


QUOTED = 200
"""Characters of what came that a message shows."""


def quoted(value: object) -> str:
    """What came, as YAML would have it, on one line of at most `QUOTED` characters; of an error what it says."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = " ".join(str(value)[: 4 * QUOTED].split()) or (type(value).__name__ if isinstance(value, Exception) else "")
    return text if len(text) <= QUOTED else f"{text[: QUOTED - 3]}..."
