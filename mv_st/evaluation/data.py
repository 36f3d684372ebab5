"""Find and read evaluation data: JSON Lines files in a folder per task, or public datasets on the hub.

A task is a folder, a split or a dataset of it is a file, a row is one JSON object per line:

```
DATA_DIR/sts12/MSRpar.jsonl          {"sentence1": "...", "sentence2": "...", "score": 3.8}
DATA_DIR/mr/all.jsonl.gz             {"text": "...", "label": 1}
```

Every error is a `UserError` of one line that names the file and the line.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mv_st.errors import UserError

SUFFIXES = (".jsonl", ".jsonl.gz")

Columns = dict[str, list[Any]]
"""A table as a list of values per column."""


@dataclass(frozen=True)
class HubSplit:
    """One split of a public dataset, and how its columns are called there.

    Args:
        path: Dataset id on the hub.
        split: Name of the split there.
        name: Configuration of the dataset, if it has several.
        revision: Branch or commit; `refs/convert/parquet` for datasets that are published as a script.
        rename: Our column name -> their column name, where they differ.
        values: Our column name -> (their value -> our value), for labels that are coded differently.
    """

    path: str
    split: str
    name: str | None = None
    revision: str | None = None
    rename: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Mapping[Any, Any]] = field(default_factory=dict)


def check_data_dir(data_dir: str | Path) -> Path:
    """Return the folder as a path, or say in one line that it is not one."""
    folder = Path(data_dir).expanduser()
    if not folder.is_dir():
        raise UserError(f"evaluation data folder {folder} does not exist; give the folder that holds sts12/, mr/, ...")
    return folder


def find_file(folder: Path, stem: str) -> Path | None:
    """The file `stem.jsonl` or `stem.jsonl.gz` in `folder`, if there is one."""
    candidates = (folder / f"{stem}{suffix}" for suffix in SUFFIXES)
    return next((path for path in candidates if path.is_file()), None)


def list_stems(folder: Path) -> list[str]:
    """Names, without suffix, of the JSON Lines files in `folder`, sorted."""
    files = folder.iterdir() if folder.is_dir() else []
    return sorted({path.name.removesuffix(".gz").removesuffix(".jsonl") for path in files if _is_rows_file(path)})


def read_rows(path: Path, columns: Mapping[str, str]) -> Columns:
    """Read the wanted columns of one JSON Lines file.

    Args:
        path: A `.jsonl` or `.jsonl.gz` file.
        columns: Column name -> kind of its values: `text`, `number` or `label` (a whole number or a string).

    Returns:
        One list per column, in file order. Blank lines are skipped.

    Raises:
        UserError: Unreadable file, malformed line, absent or wrongly typed column, no rows at all.
    """
    opener: Callable[..., Any] = gzip.open if path.name.endswith(".gz") else open
    table: Columns = {name: [] for name in columns}
    number = 0
    try:
        with opener(path, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    row = _parse(line, path, number)
                    for name, kind in columns.items():
                        table[name].append(_value(row, name, kind, path, number))
    except (OSError, EOFError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}, after line {number}: not UTF-8 text ({error.reason})") from error
    if not next(iter(table.values())):
        raise UserError(f"{path}: the file has no rows")
    return table


def load_hub_rows(parts: Sequence[HubSplit], columns: Mapping[str, str]) -> Columns:
    """Download the wanted columns of one or more public splits, joined in the order given."""
    from datasets import load_dataset

    table: Columns = {name: [] for name in columns}
    for part in parts:
        try:
            dataset = load_dataset(part.path, part.name, split=part.split, revision=part.revision)
        except Exception as error:  # the hub client raises many kinds: not found, gated, offline, time-out
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise UserError(f"hub dataset {part.path} ({part.split}) cannot be loaded: {reason}") from error
        for number, row in enumerate(dataset, start=1):
            for name, kind in columns.items():
                value = _value({name: row.get(part.rename.get(name, name))}, name, kind, Path(part.path), number)
                table[name].append(part.values.get(name, {}).get(value, value))
    return table


def _is_rows_file(path: Path) -> bool:
    return path.is_file() and path.name.endswith(SUFFIXES)


def _parse(line: str, path: Path, number: int) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise UserError(f"{path}, line {number}: not valid JSON: {error.msg} at column {error.colno}") from error
    if not isinstance(row, dict):
        raise UserError(f"{path}, line {number}: expected a JSON object, found {type(row).__name__}")
    return row


def _value(row: Mapping[str, Any], name: str, kind: str, path: Path, number: int) -> Any:
    value = row.get(name)
    if value is None:
        raise UserError(f"{path}, line {number}: column {name!r} is missing")
    if kind == "text" and isinstance(value, str):
        return value
    if kind == "number" and isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    if kind == "label" and isinstance(value, int | str) and not isinstance(value, bool):
        return value
    wanted = {"text": "a string", "number": "a finite number", "label": "a whole number or a string"}[kind]
    raise UserError(f"{path}, line {number}: {name!r} must be {wanted}, found {value!r:.60}")
