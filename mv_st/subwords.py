"""fastText's character n-grams: how a word is cut and hashed, and the table of vectors that the hashes point into."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from .errors import UserError

_FNV_OFFSET = 2166136261
_FNV_PRIME = 16777619
_ROWS_PER_CHECK = 65536

END_OF_SENTENCE = "</s>"  # fastText's own token, the only word it gives no n-grams


@dataclass
class SubwordTable:
    """Vectors of fastText's character n-grams, from which unknown words get theirs.

    An n-gram is hashed to one of `n_buckets` buckets. A full table has one row per bucket. A pruned table keeps the
    rows of some buckets only, listed in `bucket_ids`; n-grams of the other buckets have no vector.

    Attributes:
        matrix: One row per kept bucket, float32 or float16, shape (rows, dim).
        min_n: Length of the shortest n-gram, in characters.
        max_n: Length of the longest n-gram, in characters.
        bucket_ids: Sorted numbers of the kept buckets, or None if the table is full.
        n_buckets: The modulus of the hash.
    """

    matrix: np.ndarray
    min_n: int
    max_n: int
    bucket_ids: np.ndarray | None
    n_buckets: int

    def __post_init__(self) -> None:
        if self.matrix.ndim != 2:
            raise UserError(f"the subword matrix must have two dimensions, it has the shape {self.matrix.shape}")
        if not 1 <= self.min_n <= self.max_n:
            raise UserError(f"subword lengths must satisfy 1 <= min_n <= max_n, not {self.min_n} and {self.max_n}")
        expected = self.n_buckets if self.bucket_ids is None else len(self.bucket_ids)
        if len(self.matrix) != expected:
            raise UserError(f"the subword matrix has {len(self.matrix)} rows for {expected} buckets")
        if self.bucket_ids is not None and np.any(np.diff(self.bucket_ids) <= 0):
            raise UserError("the bucket numbers of a pruned subword table must be sorted and unique")
        check_finite(self.matrix, "subword row {}")

    @property
    def dim(self) -> int:
        """Width of the vectors."""
        return int(self.matrix.shape[1])

    def rows(self, word: str) -> list[int]:
        """Rows of `matrix` for the n-grams of "<word>", in fastText's order, repeated where two n-grams collide.

        The vector of an unknown word is the mean of these rows.

        >>> table = SubwordTable(np.zeros((1000, 4), dtype=np.float32), 3, 6, None, 1000)
        >>> table.rows("ab")   # <ab  <ab>  ab>
        [508, 742, 756]
        """
        if word == END_OF_SENTENCE:
            return []
        buckets = [
            fnv1a(ngram) % self.n_buckets for ngram in character_ngrams(bracketed(word), self.min_n, self.max_n)
        ]
        if self.bucket_ids is None or not buckets:
            return buckets
        return self._kept_rows(np.asarray(buckets))[0].tolist()

    def bags(self, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The same as `rows`, for many words at once.

        Returns:
            The rows of all words one after the other, and where each word's rows begin, with one more entry for the
            end: word i has `rows[starts[i]:starts[i + 1]]`.
        """
        encoded = [b"" if word == END_OF_SENTENCE else bracketed(word) for word in words]
        buckets, starts = ngram_buckets(encoded, self.min_n, self.max_n, self.n_buckets)
        if self.bucket_ids is None:
            return buckets, starts
        rows, kept = self._kept_rows(buckets)
        return rows, np.concatenate(([0], np.cumsum(kept)))[starts]

    def _kept_rows(self, buckets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows of those buckets that the pruned table still has, and the mask that says which ones these are."""
        assert self.bucket_ids is not None
        if len(self.bucket_ids) == 0:
            return np.empty(0, dtype=np.int64), np.zeros(len(buckets), dtype=bool)
        rows = np.searchsorted(self.bucket_ids, buckets).clip(max=len(self.bucket_ids) - 1)
        kept = self.bucket_ids[rows] == buckets
        return rows[kept], kept


def bracketed(word: str) -> bytes:
    """The form of a word that fastText cuts into n-grams: "<word>" in UTF-8."""
    return f"<{word}>".encode("utf-8", errors="replace")


def character_ngrams(text: bytes, min_n: int, max_n: int) -> Iterator[bytes]:
    """All n-grams of UTF-8 `text`, lengths counted in characters, without the boundary marks on their own.

    >>> list(character_ngrams(b"<ab>", 1, 2))
    [b'<a', b'a', b'ab', b'b', b'b>']
    """
    # Where characters begin, found as fastText does, which also gives an answer for invalid UTF-8.
    begins = [i for i, byte in enumerate(text) if byte & 0xC0 != 0x80] + [len(text)]
    last = len(begins) - 1
    for first in range(last):
        for end in range(first + min_n, min(first + max_n, last) + 1):
            is_boundary_mark = end == first + 1 and (first == 0 or end == last)
            if not is_boundary_mark:
                yield text[begins[first] : begins[end]]


def fnv1a(data: bytes) -> int:
    """Hash like fastText: 32-bit FNV-1a in which bytes above 127 are sign-extended, a bug that its models rely on."""
    value = _FNV_OFFSET
    for byte in data:
        value = ((value ^ (byte if byte < 128 else byte | 0xFFFFFF00)) * _FNV_PRIME) & 0xFFFFFFFF
    return value


def ngram_buckets(texts: Sequence[bytes], min_n: int, max_n: int, n_buckets: int) -> tuple[np.ndarray, np.ndarray]:
    """Buckets of all n-grams of many bracketed words, hashed side by side.

    Returns:
        Buckets (int64) of all words one after the other in the order of `character_ngrams`, and where each word's
        begin, with one more entry for the end.
    """
    lengths = np.fromiter((len(text) for text in texts), dtype=np.int64, count=len(texts))
    ends = np.cumsum(lengths)
    data = np.frombuffer(b"".join(texts), dtype=np.uint8)
    signed = data.view(np.int8).astype(np.int32).view(np.uint32)
    continues = np.append((data & 0xC0) == 0x80, False)  # one more, so that the end of the data can be looked at

    begin = np.flatnonzero(~continues[:-1])  # one n-gram per character and length grows from here
    word = np.searchsorted(ends, begin, side="right")
    end = ends[word]
    is_first = begin == end - lengths[word]
    characters_before = np.concatenate(([0], np.cumsum(~continues)))
    characters_left = characters_before[end] - characters_before[begin]
    position = begin.copy()
    hashed = np.full(len(begin), _FNV_OFFSET, dtype=np.uint32)

    found_buckets, found_order, found_words = [], [], []
    for n in range(1, max_n + 1):
        growing = np.flatnonzero(position < end)
        while len(growing):  # one byte a round: the first of a character, then its continuation bytes
            at = position[growing]
            hashed[growing] = (hashed[growing] ^ signed[at]) * np.uint32(_FNV_PRIME)
            position[growing] = at + 1
            growing = growing[continues[at + 1] & (at + 1 < end[growing])]
        grown = characters_left >= n
        if n == 1:
            grown &= ~is_first & (position < end)
        if n >= min_n:
            chosen = np.flatnonzero(grown)
            found_buckets.append(hashed[chosen].astype(np.int64) % n_buckets)
            found_order.append(chosen * max_n + n)
            found_words.append(word[chosen])
    order = np.argsort(np.concatenate(found_order), kind="stable")
    counts = np.bincount(np.concatenate(found_words), minlength=len(texts))
    return np.concatenate(found_buckets)[order], np.concatenate(([0], np.cumsum(counts)))


def check_finite(matrix: np.ndarray, row_name: str, names: Sequence[str] | None = None) -> None:
    """Refuse NaN and infinity, naming the first row that has them."""
    # In blocks: the mask of a 2 M x 300 matrix would be 600 MB.
    for start in range(0, len(matrix), _ROWS_PER_CHECK):
        finite = np.isfinite(matrix[start : start + _ROWS_PER_CHECK]).all(axis=1)
        if not finite.all():
            row = start + int(np.argmin(finite))
            name = row_name.format(names[row] if names is not None else row)
            raise UserError(f"{name} (row {row}) holds NaN or infinity; mend or remove it")
