"""What a command ends with that is no defect of the program."""


class CaptioningError(Exception):
    """What a user can mend: says what came, what is allowed and what to do; commands print it alone and exit with 1."""


def quoted(value: object) -> str:
    """What came, for a message: at most 200 characters of it, the end of a path or an expression among them."""
    text = str(value)
    return text if len(text) <= 200 else f"{text[:98]} .. {text[-98:]}"


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
