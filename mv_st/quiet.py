"""Less to read: the log of a part of the program that says what is said elsewhere, or goes without saying."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def errors_only(name: str) -> Iterator[None]:
    """Let a logger report nothing below errors for a while.

    Args:
        name: Name of the logger.

    Example:
        >>> with errors_only("noisy"):
        ...     logging.getLogger("noisy").isEnabledFor(logging.WARNING)
        False
        >>> logging.getLogger("noisy").isEnabledFor(logging.WARNING)
        True
    """
    log = logging.getLogger(name)
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)
