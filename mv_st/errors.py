"""The one exception that means: the input is wrong, and the message says how to mend it."""

from __future__ import annotations


class UserError(ValueError):
    """A mistake in what the user gave us: a file, an option, a corpus.

    The message is one line that says what was wrong, where, and what to do. The command line prints it without a
    traceback and exits with 1.
    """
