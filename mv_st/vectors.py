"""Word vectors in memory: words, their matrix, and where the source has one, a table of character n-grams."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from .errors import UserError
from .subwords import SubwordTable, check_finite

__all__ = ["SubwordTable", "WordVectors"]


@dataclass
class WordVectors:
    """Words and their vectors.

    Attributes:
        words: Unique, the most frequent first where the source says so.
        matrix: One row per word, float32 or float16, shape (words, dim). For a fastText model each row is the
            finished vector (mean of the word's own row and those of its n-grams), as `get_word_vector` gives it.
        subwords: Vectors for the n-grams of unknown words, if the source has them.
        counts: How often each word occurred in the corpus, if known.

    Example:
        >>> vectors = WordVectors(["cat", "dog"], np.eye(2, dtype=np.float32))
        >>> len(vectors), vectors.dim
        (2, 2)
    """

    words: list[str]
    matrix: np.ndarray
    subwords: SubwordTable | None = None
    counts: np.ndarray | None = None

    def __post_init__(self) -> None:
        if self.matrix.ndim != 2 or len(self.matrix) != len(self.words):
            raise UserError(f"a matrix of the shape {self.matrix.shape} does not fit {len(self.words)} words")
        if self.matrix.dtype not in (np.float32, np.float16):
            raise UserError(f"word vectors must be float32 or float16, not {self.matrix.dtype}")
        if self.dim == 0:
            raise UserError("word vectors must have at least one dimension")
        if len(set(self.words)) != len(self.words):
            raise UserError(f"the word {_first_duplicate(self.words)!r} occurs twice in the word list")
        if self.subwords is not None and self.subwords.dim != self.dim:
            raise UserError(f"subword vectors are {self.subwords.dim} wide, word vectors {self.dim}")
        if self.counts is not None and len(self.counts) != len(self.words):
            raise UserError(f"{len(self.counts)} counts do not fit {len(self.words)} words")
        check_finite(self.matrix, "the vector of {!r}", self.words)

    @property
    def dim(self) -> int:
        """Width of the vectors."""
        return int(self.matrix.shape[1])

    def __len__(self) -> int:
        return len(self.words)


def _first_duplicate(words: Iterable[str]) -> str:
    seen: set[str] = set()
    for word in words:
        if word in seen:
            return word
        seen.add(word)
    raise AssertionError("no duplicates")
