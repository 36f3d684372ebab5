"""Readers of binary word-vector files: word2vec `.bin`, fastText `.bin`, `.npy` with a list of words, our `.npz`."""

from __future__ import annotations

import logging
import mmap
import struct
import zipfile
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from .errors import UserError
from .subwords import END_OF_SENTENCE, SubwordTable, ngram_buckets
from .vectors import WordVectors

logger = logging.getLogger(__name__)

FASTTEXT_MAGIC = 793712314
_FASTTEXT_HEADER = "<2i 12i d 3i 2q"
_LONGEST_WORD = 10_000  # bytes; a longer one means that the file is something else
_WORDS_PER_BLOCK = 20_000
_SUPERVISED = 3  # fastText's number for this kind of model


class Selection:
    """Decides which words of a file are kept: the first of equal ones, wanted ones only, at most so many.

    Example:
        >>> selection = Selection(max_vocab=3)
        >>> selection.take(["a", "b", "a", "c", "d"]).tolist()
        [0, 1, 3]
        >>> selection.full, list(selection.words)
        (True, ['a', 'b', 'c'])
    """

    def __init__(self, max_vocab: int | None = None, wanted: Collection[str] | None = None) -> None:
        self.max_vocab = max_vocab
        self.wanted = None if wanted is None else frozenset(wanted)
        self.words: dict[str, None] = {}  # kept so far, in order
        self._duplicates = 0
        self._first_duplicate = ""
        self._undecodable = 0
        self._first_undecodable = ""

    @property
    def full(self) -> bool:
        """Whether nothing more will be kept."""
        return self.max_vocab is not None and len(self.words) >= self.max_vocab

    def take(self, words: Sequence[str]) -> np.ndarray:
        """Offer the next words of the file; returns the positions of those that are kept."""
        fresh = dict.fromkeys(words)
        room = len(words) if self.max_vocab is None else self.max_vocab - len(self.words)
        if self.wanted is None and len(fresh) == len(words) <= room and self.words.keys().isdisjoint(fresh):
            self.words.update(fresh)
            return np.arange(len(words))
        kept = []
        for position, word in enumerate(words):
            if self.full:
                break
            if word in self.words:
                self._duplicates += 1
                self._first_duplicate = self._first_duplicate or word
            elif self.wanted is None or word in self.wanted:
                self.words[word] = None
                kept.append(position)
        return np.array(kept, dtype=np.int64)

    def undecodable(self, count: int, where: str) -> None:
        """Remember `count` words with invalid UTF-8, the first of them at `where`."""
        self._undecodable += count
        self._first_undecodable = self._first_undecodable or where

    def report(self, path: Path) -> None:
        """Log once what was peculiar about the words of the file."""
        if self._duplicates:
            logger.warning(
                "%s: left out %d repeated words (the first one is %r); the first vector of each counts",
                path,
                self._duplicates,
                self._first_duplicate,
            )
        if self._undecodable:
            logger.warning(
                "%s: %d words are not valid UTF-8 (the first one in %s); their bad bytes were replaced by U+FFFD",
                path,
                self._undecodable,
                self._first_undecodable,
            )


def decode_words(raw: Sequence[bytes]) -> tuple[list[str], list[int]]:
    """Words as text, and the positions of those that were not valid UTF-8."""
    try:
        return [word.decode() for word in raw], []
    except UnicodeDecodeError:
        words = [word.decode(errors="replace") for word in raw]
        return words, [position for position, word in enumerate(words) if word.encode() != raw[position]]


def read_word2vec_binary(path: Path, dtype: DTypeLike, selection: Selection) -> WordVectors:
    """Read the binary format of word2vec: a line "rows dim", then for each word its bytes, a space and its floats."""
    data = _map(path)
    header = data[: data.find(b"\n", 0, 100) + 1].split()
    if len(header) != 2 or not all(field.isdigit() for field in header):
        raise UserError(f"{path}: neither a word2vec nor a fastText file (no line with rows and width at its start)")
    n_rows, dim = int(header[0]), int(header[1])
    if n_rows == 0 or dim == 0:
        raise UserError(f"{path}: its header says {n_rows} vectors of width {dim}, there is nothing to load")

    position, raw, begins = data.find(b"\n") + 1, [], []
    for row in range(n_rows if selection.wanted is not None else min(n_rows, selection.max_vocab or n_rows)):
        if data[position : position + 1] == b"\n":  # written after each vector by the original tool, not by all others
            position += 1
        space = data.find(b" ", position, position + _LONGEST_WORD)
        if space < 0 or space + 1 + 4 * dim > len(data):
            raise UserError(f"{path}: damaged or cut off in vector {row + 1} of {n_rows}; get the file again")
        raw.append(data[position:space])
        begins.append(space + 1)
        position = space + 1 + 4 * dim

    words, undecodable = decode_words(raw)
    if undecodable:
        selection.undecodable(len(undecodable), f"vector {undecodable[0] + 1}")
    kept = np.array(begins, dtype=np.int64)[selection.take(words)]
    # A window of 4 * dim bytes at every byte of the file, of which those that hold the kept vectors are copied.
    windows = np.lib.stride_tricks.sliding_window_view(np.frombuffer(data, dtype=np.uint8), 4 * dim)
    matrix = np.empty((len(kept), dim), dtype=dtype)
    for start in range(0, len(kept), _WORDS_PER_BLOCK):
        block = slice(start, start + _WORDS_PER_BLOCK)
        matrix[block] = windows[kept[block]].view("<f4")
    return WordVectors(list(selection.words), matrix)


def is_fasttext_binary(path: Path) -> bool:
    """Whether a `.bin` file begins with fastText's magic number."""
    with path.open("rb") as stream:
        return stream.read(4) == struct.pack("<i", FASTTEXT_MAGIC)


def read_fasttext_binary(path: Path, dtype: DTypeLike, selection: Selection, subwords: bool) -> WordVectors:
    """Read a fastText model, unsupervised or supervised (labels are left out), but not a quantised one.

    The file is mapped, not read: only the rows that are needed come into memory.
    """
    try:
        return _read_fasttext(path, _map(path), dtype, selection, subwords)
    except (struct.error, IndexError) as error:
        raise UserError(f"{path}: the fastText model is damaged or cut off; get the file again") from error


def _read_fasttext(
    path: Path, data: mmap.mmap, dtype: DTypeLike, selection: Selection, with_subwords: bool
) -> WordVectors:
    # Magic, version; dim, window, epochs, min_count, negatives, word_ngrams, loss, model, buckets, min_n, max_n,
    # update rate, sampling; number of entries, words, labels, tokens, pruned buckets.
    fields = struct.unpack_from(_FASTTEXT_HEADER, data)
    version, dim, model, n_buckets, min_n, max_n = (fields[i] for i in (1, 2, 9, 10, 11, 12))
    n_entries, n_words = fields[15], fields[16]
    pruned = max(fields[19], 0)
    if version not in (11, 12):
        raise UserError(f"{path}: fastText file version {version} is unknown, 11 and 12 can be read")
    if version == 11 and model == _SUPERVISED:
        max_n = 0  # these models have the numbers, but were trained without n-grams
    position = struct.calcsize(_FASTTEXT_HEADER)

    raw, count_positions = [], []
    for _ in range(n_entries):  # words first, then labels, each a zero-ended string, a count and a type
        end = data.find(b"\0", position, position + _LONGEST_WORD)
        if end < 0:
            raise IndexError
        raw.append(data[position:end])
        count_positions.append(end + 1)
        position = end + 1 + 8 + 1
    position += 8 * pruned
    if data[position]:
        raise UserError(f"{path}: quantised fastText models cannot be read; use the .bin model it was made from")
    n_rows, width = struct.unpack_from("<2q", data, position + 1)
    position += 1 + 16
    if width != dim or n_rows < n_words or position + 4 * n_rows * dim > len(data):
        raise IndexError
    rows = np.ndarray((n_rows, dim), dtype="<f4", buffer=data, offset=position)

    raw = raw[:n_words]
    words, undecodable = decode_words(raw)
    if undecodable:
        selection.undecodable(len(undecodable), f"entry {undecodable[0] + 1}")
    kept = selection.take(words)
    counts = np.array([struct.unpack_from("<q", data, count_positions[i])[0] for i in kept], dtype=np.int64)
    if max_n < 1:
        return WordVectors(list(selection.words), _copy(rows, dtype, kept), counts=counts)
    if n_rows != n_words + n_buckets:
        raise IndexError
    min_n = max(min_n, 1)
    matrix = _compose(rows, [raw[i] for i in kept], kept, n_words, (min_n, max_n, n_buckets), dtype)
    table = None
    if with_subwords:
        table = SubwordTable(_copy(rows[n_words:], dtype), min_n, max_n, None, n_buckets)
    return WordVectors(list(selection.words), matrix, table, counts)


def _compose(
    rows: np.ndarray,
    raw: list[bytes],
    ids: np.ndarray,
    n_words: int,
    ngrams: tuple[int, int, int],
    dtype: DTypeLike,
) -> np.ndarray:
    """Finished vectors: the mean of a word's own row and the rows of its n-grams."""
    import torch

    weight = torch.from_numpy(rows)
    end_of_sentence = END_OF_SENTENCE.encode()
    matrix = np.empty((len(raw), rows.shape[1]), dtype=dtype)
    for start in range(0, len(raw), _WORDS_PER_BLOCK):
        block = slice(start, start + _WORDS_PER_BLOCK)
        texts = [b"" if word == end_of_sentence else b"<" + word + b">" for word in raw[block]]
        buckets, starts = ngram_buckets(texts, *ngrams)
        own = starts[:-1] + np.arange(len(texts))  # the word's own row comes before its n-grams
        indices = np.empty(len(buckets) + len(texts), dtype=np.int64)
        is_own = np.zeros(len(indices), dtype=bool)
        is_own[own] = True
        indices[is_own] = ids[block]
        indices[~is_own] = buckets + n_words
        means = torch.nn.functional.embedding_bag(
            torch.from_numpy(indices), weight, torch.from_numpy(own), mode="mean"
        )
        matrix[block] = means.numpy()
    return matrix


def read_npy(path: Path, dtype: DTypeLike, selection: Selection) -> WordVectors:
    """Read `x.npy` with its words in `x.txt` or `x.words`, one a line."""
    candidates = [path.with_suffix(suffix) for suffix in (".txt", ".words")]
    word_file = next((candidate for candidate in candidates if candidate.is_file()), None)
    if word_file is None:
        raise UserError(f"{path}: no word list beside it; write one word a line into {candidates[0].name}")
    try:
        rows = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise UserError(f"{path}: not an array that numpy can load: {_one_line(error)}") from error
    if rows.ndim != 2 or rows.dtype.kind != "f":
        raise UserError(f"{path}: expected a matrix of floats, found shape {rows.shape} of {rows.dtype}")
    lines = word_file.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if not lines[-1]:
        lines.pop()
    words, undecodable = decode_words([line.removesuffix(b"\r") for line in lines])
    if len(words) != len(rows):
        raise UserError(f"{word_file}: {len(words)} words for the {len(rows)} vectors of {path.name}")
    if undecodable:
        selection.undecodable(len(undecodable), f"line {undecodable[0] + 1} of {word_file.name}")
    kept = selection.take(words)
    return WordVectors(list(selection.words), _copy(rows, dtype, kept))


def read_npz(path: Path, dtype: DTypeLike, selection: Selection, subwords: bool) -> WordVectors:
    """Read what `save_vectors` wrote."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            words = arrays["words"].tobytes().decode().split("\n")
            rows = arrays["matrix"]
            if len(words) != len(rows):
                raise ValueError(f"{len(words)} words for {len(rows)} vectors")
            kept = selection.take(words)
            counts = arrays.get("counts")
            table = None
            if subwords and "subword_matrix" in arrays:
                min_n, max_n, n_buckets = arrays["subword_numbers"].tolist()
                ids = arrays.get("subword_bucket_ids")
                table = SubwordTable(arrays["subword_matrix"].astype(dtype, copy=False), min_n, max_n, ids, n_buckets)
    except (ValueError, KeyError, EOFError, OSError, zipfile.BadZipFile) as error:
        raise UserError(f"{path}: damaged, or not written by save_vectors: {_one_line(error)}") from error
    if len(kept) < len(rows) or rows.dtype != dtype:
        rows = _copy(rows, dtype, kept)
    return WordVectors(list(selection.words), rows, table, None if counts is None else counts[kept])


def _map(path: Path) -> mmap.mmap:
    if path.stat().st_size == 0:
        raise UserError(f"{path}: the file is empty")
    with path.open("rb") as stream:
        # Copy on write is never used, but torch takes arrays that look writable without a warning.
        return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY)


def _copy(rows: np.ndarray, dtype: DTypeLike, kept: np.ndarray | None = None) -> np.ndarray:
    """Rows in memory and in `dtype`, block by block, so that no second whole matrix exists in between."""
    matrix = np.empty((len(rows) if kept is None else len(kept), rows.shape[1]), dtype=dtype)
    for start in range(0, len(matrix), _WORDS_PER_BLOCK):
        block = slice(start, start + _WORDS_PER_BLOCK)
        with np.errstate(over="ignore"):  # too large for float16: refused with its name later
            matrix[block] = rows[block] if kept is None else rows[kept[block]]
    return matrix


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
