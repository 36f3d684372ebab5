"""Output that appears whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import UserError


@contextmanager
def whole_directory(path: str | Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Write a directory under a temporary name; it gets its own name only if everything went well.

    Args:
        path: Where the directory shall be.
        overwrite: Replace what is there. Otherwise anything but an empty directory is an error.

    Yields:
        The directory to write to.
    """
    check_new_directory(path, overwrite=overwrite)
    path = Path(path).resolve()  # a link stays a link
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        yield temporary
        # Temporary directories, and the files that safetensors writes, are private to their owner.
        for item in (temporary, *temporary.rglob("*")):
            item.chmod(0o755 if item.is_dir() else 0o644)
        if path.exists():
            shutil.rmtree(path)
        temporary.rename(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def check_new_directory(path: str | Path, *, overwrite: bool = False) -> None:
    """Raise a UserError unless a directory can be written at a path; creates its parent."""
    path = Path(path)
    if path.exists() and not path.is_dir():
        raise UserError(f"{path} is a file; give a directory")
    if path.is_dir() and any(path.iterdir()) and not overwrite:
        raise UserError(f"{path} exists and is not empty; give another directory or remove it first")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot create {path.parent}: {error.strerror}") from None
    if not os.access(path.parent, os.W_OK):
        raise UserError(f"cannot write to {path.parent}; give another place")


@contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """Write a file under a temporary name beside it; it gets its own name only if everything went well.

    Args:
        path: Where the file shall be; an existing file is replaced.

    Yields:
        The path to write to, with the same ending.
    """
    path = Path(path)
    if path.is_dir():
        raise UserError(f"{path} is a directory; give a file")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.stem}.", suffix=path.suffix, dir=path.parent)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from None
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        os.chmod(temporary, 0o644)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
