"""Errors of the workstation side."""


class ParityError(ValueError):
    """A numeric check failed: something that should be equal is not.

    A ``ValueError``, so that every command reports it as one line with exit code 2.
    """
