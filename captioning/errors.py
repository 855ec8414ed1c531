"""What a command ends with that is no defect of the program."""


class CaptioningError(Exception):
    """What a user can mend: says what came, what is allowed and what to do; commands print it alone and exit with 1."""


class Stopped(Exception):
    """A signal has ended the work; says how to go on.

    Attributes:
        exit_code: 128 and the number of the signal, as shells have it.
    """

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + signal_number
