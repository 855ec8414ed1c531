"""The one exception for what a user can mend: bad input, a bad setting, a missing program."""


class CaptioningError(Exception):
    """Says what came, what is allowed and what to do; commands print it without a traceback and exit with 1."""
