"""Progress of long work: a bar on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")

_SECONDS_BETWEEN_LINES = 15.0


class _PlainProgress:
    """The part of the tqdm interface that we use, written as occasional lines instead of a moving bar."""

    def __init__(self, iterable: Iterable[Any] | None, total: int | None, desc: str, unit: str) -> None:
        self.iterable = iterable
        self.total = total if total is not None else _length_of(iterable)
        self.desc = desc
        self.unit = unit
        self.n = 0
        self._last_line = time.monotonic()

    def update(self, n: int = 1) -> None:
        self.n += n
        now = time.monotonic()
        if now - self._last_line >= _SECONDS_BETWEEN_LINES:
            self._last_line = now
            of_total = f"/{self.total:,}" if self.total else ""
            print(f"{self.desc}: {self.n:,}{of_total} {self.unit}", file=sys.stderr, flush=True)

    def close(self) -> None:
        pass

    def __iter__(self) -> Iterator[Any]:
        for item in self.iterable or ():
            yield item
            self.update()

    def __enter__(self) -> _PlainProgress:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def progress_bar(iterable: Iterable[T] | None = None, *, total: int | None = None, desc: str, unit: str = "it") -> Any:
    """Show progress on standard error.

    Args:
        iterable: What to iterate over; leave it out to call `update(n)` by hand.
        total: Number of units, if `iterable` has no length.
        desc: What is being done.
        unit: Name of the things counted.

    Returns:
        A tqdm bar on a terminal, otherwise an object with the same `update`, `close`, iteration and `with`.
    """
    if sys.stderr.isatty():
        from tqdm import tqdm

        return tqdm(iterable, total=total, desc=desc, unit=f" {unit}", unit_scale=True, file=sys.stderr)
    return _PlainProgress(iterable, total, desc, unit)


def _length_of(iterable: Iterable[Any] | None) -> int | None:
    try:
        return len(iterable)  # type: ignore[arg-type]
    except TypeError:
        return None
