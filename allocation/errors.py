"""The one error a user can mend."""


class InputError(Exception):
    """Bad input. The message is one line: the file, row or key, what is wrong, and the remedy."""
