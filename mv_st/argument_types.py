"""What the words of the command line may be: each function reads one, or says what is wrong with it."""

from __future__ import annotations

import argparse


def positive_int(text: str) -> int:
    """A whole number from 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return value


def positive_float(text: str) -> float:
    """A number above 0."""
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def views(text: str) -> tuple[str, ...]:
    """Kinds of views."""
    kinds = tuple(text.split(","))
    if not set(kinds) <= {"gru", "linear"}:
        raise argparse.ArgumentTypeError(f"{text}: views are gru and linear, with commas between them")
    return kinds
