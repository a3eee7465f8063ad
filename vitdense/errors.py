"""Errors of the workstation side."""

# What MMEngine, MMDetection, MMSegmentation and torch raise for a config that names an unknown type or a value out of
# range; commands turn these into one line.
CONFIG_MISTAKES = (KeyError, TypeError, AttributeError, AssertionError, IndexError, ArithmeticError, RuntimeError)


class ParityError(ValueError):
    """A numeric check failed: something that should be equal is not.

    A ``ValueError``, so that every command reports it as one line with exit code 2.
    """
