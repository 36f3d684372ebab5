"""Reader of text word-vector files (`.vec`, GloVe `.txt`), in blocks, several of them side by side.

A block of bytes is cut at its white space with numpy, and Arrow turns all its numbers into floats in one call. The
result goes into the final matrix at once, so that the whole file is never in memory as text.
"""

from __future__ import annotations

import gzip
import logging
import os
import re
import zlib
from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NoReturn, cast

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike

from .errors import UserError
from .progress import progress_bar
from .vector_formats import Selection, decode_words
from .vectors import WordVectors

logger = logging.getLogger(__name__)

_BLOCK_BYTES = 2 << 20
_LONGEST_LINE = 64 << 20
_MOST_THREADS = 8
_BEST_GZIP_RATIO = 1032

_SPACES = b" \t\r"  # any other white space, such as U+00A0, belongs to the word
_LARGEST = float(np.finfo(np.float32).max)
_NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_DECIMAL = re.compile(rb"[+-]?\d*\.\d+([eE][+-]?\d+)?")


@dataclass
class _Block:
    """Some whole lines of the file, each ended by a line feed."""

    data: bytes
    first_line: int


@dataclass
class _Parsed:
    """What a block holds: words with one row of float32 for each."""

    words: list[str]
    matrix: np.ndarray
    n_lines: int
    n_nameless: int  # lines whose word is nothing but white space
    undecodable_lines: list[int]


def read_text(path: Path, dtype: DTypeLike, selection: Selection, show_progress: bool) -> WordVectors:
    """Read a text file of vectors, with or without a first line "rows dim"; a file named `*.gz` is unpacked."""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
            return _read_stream(path, cast(IO[bytes], stream), dtype, selection, show_progress)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{path}: the gzip file is damaged or cut off ({error}); get it again") from error


def _read_stream(
    path: Path, stream: IO[bytes], dtype: DTypeLike, selection: Selection, show_progress: bool
) -> WordVectors:
    blocks = _blocks(path, stream)
    promised, dim, first = _layout(path, blocks)
    expected = _expected_rows(path, first, promised, dim)
    rows = _GrowingMatrix(min(expected, selection.max_vocab or expected), dim, dtype)

    n_lines = n_nameless = 0
    threads = min(_MOST_THREADS, _available_cores())
    pending: deque[Future[_Parsed]] = deque()
    upcoming: _Block | None = first
    with (
        ThreadPoolExecutor(threads) as pool,
        progress_bar(total=expected, desc=f"Loading {path.name}", unit="words")
        if show_progress
        else nullcontext() as bar,
    ):
        while (upcoming is not None or pending) and not selection.full:
            while upcoming is not None and len(pending) < 2 * threads:
                pending.append(pool.submit(_parse, path, upcoming, dim, selection.wanted))
                upcoming = next(blocks, None)
            parsed = pending.popleft().result()
            kept = selection.take(parsed.words)
            rows.append(parsed.matrix if len(kept) == len(parsed.words) else parsed.matrix[kept])
            if parsed.undecodable_lines:
                selection.undecodable(len(parsed.undecodable_lines), f"line {parsed.undecodable_lines[0]}")
            n_lines += parsed.n_lines
            n_nameless += parsed.n_nameless
            if bar is not None:
                bar.update(parsed.n_lines)
        pool.shutdown(cancel_futures=True)

    if n_nameless:
        logger.warning("%s: left out %d vectors whose word is only white space", path, n_nameless)
    if promised is not None and n_lines != promised and not selection.full:
        logger.warning("%s: its first line promises %d vectors, the file holds %d", path, promised, n_lines)
    return WordVectors(list(selection.words), rows.finished())


def _blocks(path: Path, stream: IO[bytes]) -> Iterator[_Block]:
    line, rest = 1, b""
    while chunk := stream.read(_BLOCK_BYTES):
        if line == 1 and not rest:
            chunk = chunk.removeprefix(b"\xef\xbb\xbf")
        cut = chunk.rfind(b"\n") + 1
        if cut:
            block = _Block(rest + chunk[:cut], line)
            yield block
            line += _count_lines(block.data)
            rest = b""
        rest += chunk[cut:]
        if len(rest) > _LONGEST_LINE:
            raise UserError(
                f"{path}, line {line}: longer than {_LONGEST_LINE >> 20} MB; is it a text file of vectors?"
            )
    if rest:
        yield _Block(rest + b"\n", line)


def _count_lines(data: bytes) -> int:
    return int(np.count_nonzero(np.frombuffer(data, dtype=np.uint8) == ord("\n")))  # faster than bytes.count


def _layout(path: Path, blocks: Iterator[_Block]) -> tuple[int | None, int, _Block]:
    """Number of rows the header promises (None without a header), width, and the first block without the header."""
    first = next(blocks, None)
    if first is None or not first.data.strip():
        raise UserError(f"{path}: the file is empty")
    head = first.data.split(b"\n", 11)[:-1]
    fields = head[0].split()
    if len(fields) == 2 and all(field.isdigit() for field in fields):
        promised, dim = int(fields[0]), int(fields[1])
        data = first.data[len(head[0]) + 1 :]
        body = _Block(data, first.first_line + 1) if data.strip() else next(blocks, None)
        if promised == 0 or dim == 0 or body is None:
            raise UserError(f"{path}, line 1: the header says {promised} x {dim}, but no vectors follow")
        return promised, dim, body
    # Words may hold spaces, so the first line alone may mislead.
    widths = Counter(len(_pieces(line)) - 1 for line in head if line.strip(_SPACES))
    dim = widths.most_common(1)[0][0]
    if dim < 1:
        raise UserError(f"{path}, line 1: expected a word and its numbers, separated by spaces")
    return None, dim, first


def _expected_rows(path: Path, first: _Block, promised: int | None, dim: int) -> int:
    """Rows to make room for; a guess where there is no header, and no more than the file can hold where it lies."""
    size = path.stat().st_size
    if promised is not None:
        most_bytes = size * (_BEST_GZIP_RATIO if path.suffix == ".gz" else 1)
        return min(promised, most_bytes // (2 * dim + 1) + 1)
    bytes_per_line = len(first.data) / _count_lines(first.data)
    return int(size / bytes_per_line * 1.02) + 1


def _available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _GrowingMatrix:
    """Rows appended to one array, which grows in place where the guess of its length was too low."""

    def __init__(self, capacity: int, dim: int, dtype: DTypeLike) -> None:
        self._array = np.empty((capacity, dim), dtype=dtype)
        self._length = 0

    def append(self, rows: np.ndarray) -> None:
        end = self._length + len(rows)
        if end > len(self._array):
            self._resize(max(end, len(self._array) * 5 // 4))
        with np.errstate(over="ignore"):  # too large for float16: refused with the name of the word later
            self._array[self._length : end] = rows
        self._length = end

    def finished(self) -> np.ndarray:
        self._resize(self._length)
        return self._array

    def _resize(self, length: int) -> None:
        # Nobody else holds the array yet, so that the memory itself can be resized without a second copy.
        self._array.resize((length, self._array.shape[1]), refcheck=False)


def _parse(path: Path, block: _Block, dim: int, wanted: frozenset[str] | None) -> _Parsed:
    """Words and numbers of a block.

    Gaps are runs of separators. Piece k of the text lies between gap k and gap k + 1; the last `dim` pieces of a line
    are its numbers, whatever is before them is the word.
    """
    data = block.data
    gaps, last_gap = _gaps(data)  # last_gap: the one that ends each line
    first_gap = np.concatenate(([0], last_gap))[:-1]
    n_pieces = last_gap - first_gap
    line_begin = gaps[first_gap, 1]

    # The word " " of some files leaves a line that starts with white space and has one piece too few.
    nameless = (n_pieces == dim) & np.array([data[begin - 1] in _SPACES for begin in line_begin.tolist()], dtype=bool)
    if nameless.any():
        last_gap, line_begin, n_pieces = last_gap[~nameless], line_begin[~nameless], n_pieces[~nameless]
    if not (n_pieces > dim).all():
        _refuse(path, block, dim)
    word_end = gaps[last_gap - dim, 0]
    for line in np.flatnonzero(n_pieces > dim + 1):
        if _DECIMAL.fullmatch(data[line_begin[line] : word_end[line]].split()[-1]):
            _refuse(path, block, dim)  # too many numbers, not a word with a space

    raw_words = [data[begin:end] for begin, end in zip(line_begin.tolist(), word_end.tolist(), strict=True)]
    words, undecodable = decode_words(raw_words)
    undecodable_lines = [block.first_line + data.count(b"\n", 0, int(line_begin[i])) for i in undecodable]
    if wanted is not None:
        chosen = [i for i, word in enumerate(words) if word in wanted]
        words, last_gap = [words[i] for i in chosen], last_gap[chosen]

    matrix = _numbers(data, gaps, last_gap, dim)
    if matrix is None or not np.isfinite(matrix).all():
        _refuse(path, block, dim)
    return _Parsed(words, matrix, len(line_begin) + int(nameless.sum()), int(nameless.sum()), undecodable_lines)


def _gaps(data: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Where the runs of separators begin and end, shape (gaps, 2), and which of them end a line.

    The first gap lies at the very start and may be empty.
    """
    characters = np.frombuffer(data, dtype=np.uint8)
    newlines = np.flatnonzero(characters == ord("\n"))
    is_gap = characters <= 32
    if np.count_nonzero(characters < 32) != len(newlines):  # rare: tabs, carriage returns, control characters
        is_gap = np.isin(characters, list(_SPACES + b"\n"))
    changes = np.flatnonzero(is_gap[1:] != is_gap[:-1])
    n_leading = 1 if is_gap[0] else 2
    borders = np.zeros(n_leading + len(changes) + 1, dtype=np.int32)
    np.add(changes, 1, out=borders[n_leading:-1], casting="same_kind")
    borders[-1] = len(data)
    gaps = borders.reshape(-1, 2)
    ends_line = np.unique(np.searchsorted(gaps[:, 0], newlines, side="right") - 1)
    return gaps, ends_line[ends_line > 0]


def _numbers(data: bytes, gaps: np.ndarray, last_gap: np.ndarray, dim: int) -> np.ndarray | None:
    """The numbers of the lines that end with the gaps `last_gap`, or None if one of them is no number.

    Arrow sees the block as a column of strings: gap, number, gap, number, ..., gap, then the next word; gaps and words
    are null, so that only the numbers are read.
    """
    if len(last_gap) == 0:
        return np.empty((0, dim), dtype=np.float32)
    if len(last_gap) * (dim + 1) == last_gap[-1] - last_gap[0] + dim + 1:  # no word with a space, no line left out
        offsets = gaps[last_gap[0] - dim : last_gap[-1] + 1].reshape(-1, dim + 1, 2)
    else:
        offsets = gaps[last_gap[:, None] + np.arange(-dim, 1)]  # (lines, dim + 1, 2)
    is_number = np.zeros(offsets.shape, dtype=bool)
    is_number[:, :dim, 1] = True
    n_strings = offsets.size - 1
    strings = pa.StringArray.from_buffers(
        n_strings,
        pa.py_buffer(offsets),
        pa.py_buffer(data),
        pa.py_buffer(np.packbits(is_number, bitorder="little")),
    )
    try:
        floats = strings.cast(pa.float32())
    except pa.ArrowInvalid:
        return None
    flat = np.frombuffer(floats.buffers()[1], dtype=np.float32, count=n_strings)
    # One entry short of (lines, dim + 1, 2), hence not a plain reshape.
    return np.lib.stride_tricks.as_strided(flat[1:], (len(last_gap), dim), (8 * (dim + 1), 8), writeable=False)


def _refuse(path: Path, block: _Block, dim: int) -> NoReturn:
    """Go through the lines of a block one by one and name the first bad one."""
    for number, line in enumerate(block.data.split(b"\n")[:-1], start=block.first_line):
        pieces = _pieces(line)
        if pieces == [b""] or (len(pieces) == dim and line[0] in _SPACES):
            continue
        if len(pieces) < dim + 1 or (len(pieces) > dim + 1 and _DECIMAL.fullmatch(pieces[-dim - 1])):
            raise UserError(f"{path}, line {number}: {len(pieces) - 1} numbers after the word, expected {dim}")
        for text in pieces[-dim:]:
            if not _NUMBER.fullmatch(text) or abs(float(text)) > _LARGEST:
                raise UserError(
                    f"{path}, line {number}: {text[:40].decode(errors='replace')!r} is not a finite number"
                )
    raise AssertionError(f"no bad line found in the block of {path} that starts at line {block.first_line}")


def _pieces(line: bytes) -> list[bytes]:
    return re.split(rb"[ \t\r]+", line.strip(_SPACES))
