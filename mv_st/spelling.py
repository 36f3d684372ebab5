"""Vectors for unknown words from their spelling, for word vectors that come without subwords."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy import sparse

from .errors import UserError
from .subwords import SubwordTable
from .vectors import WordVectors

MOST_WORDS = 100_000
"""Words to learn from, the most frequent ones: rare words of a large vocabulary are names and misprints."""
PUNCTUATION = string.punctuation + "‘’“”–—…«»¿¡€£"


def add_spelling(
    vectors: WordVectors,
    *,
    n_buckets: int = 32_768,
    min_n: int = 2,
    max_n: int = 4,
    ridge: float = 0.01,
    iterations: int = 20,
    seed: int = 0,
) -> WordVectors:
    """Give word vectors a table of character n-grams, as fastText models have it.

    Without one, every word outside the vocabulary is the same zero vector, be it a name, a compound or a misprint. The
    table is fitted so that the mean over the n-grams of a known word comes close to its vector (ridge regression). An
    unknown word then resembles known words that are spelt like it. N-grams start out random, so that also those that
    occur in no known word make two mentions of one unknown word alike. Punctuation stays a zero vector.

    Args:
        vectors: Word vectors. A table that they already have is kept, and nothing else happens.
        n_buckets: Number of rows of the table.
        min_n: Length of the shortest n-gram.
        max_n: Length of the longest n-gram.
        ridge: Weight of the penalty on departures from the random start.
        iterations: Steps of the solver (conjugate gradients).
        seed: Seed of the random start.

    Returns:
        The same words and vectors, with a table in `subwords`.

    Example:
        >>> vectors = WordVectors(["walking", "walked", "talking"], np.float32([[1, 1, 0], [1, 0, 0], [0, 1, 1]]))
        >>> table = add_spelling(vectors, ridge=1e-3).subwords
        >>> int(table.matrix[table.rows("talked")].mean(axis=0).argmax())  # like "talking", without the -ing
        2
    """
    if vectors.subwords is not None:
        return vectors
    if n_buckets < 1 or not ridge > 0:
        raise UserError(f"n_buckets must be at least 1 and ridge above 0, not {n_buckets} and {ridge}")
    words = vectors.words[:MOST_WORDS]
    targets = vectors.matrix[: len(words)].astype(np.float32)
    start = np.random.default_rng(seed).standard_normal((n_buckets, vectors.dim), dtype=np.float32)
    # A word has a dozen n-grams; with this size the mean of their random parts is about half as long as a word vector.
    start *= 1.7 * np.linalg.norm(targets, axis=1).mean() / np.sqrt(10 * vectors.dim)
    table = SubwordTable(start, min_n, max_n, None, n_buckets)
    averaging = averaging_matrix(table, words)

    def fit(rows: slice | np.ndarray) -> np.ndarray:
        return start + _ridge_regression(averaging[rows], targets[rows] - averaging[rows] @ start, ridge, iterations)

    # Words that the fit has not seen come out shorter than those that it has: leave some out to see by how much.
    left_out = np.arange(len(words)) % 10 == 9
    length = 1.0
    if left_out.any():
        guesses = averaging[left_out] @ fit(~left_out)
        length = np.linalg.norm(targets[left_out], axis=1).mean() / np.linalg.norm(guesses, axis=1).mean()
    table.matrix = (length * fit(slice(None))).astype(np.float32)
    # Each mark has a bucket or two, among thousands: what else falls into them hardly suffers.
    table.matrix[table.bags(list(PUNCTUATION))[0]] = 0.0
    return replace(vectors, subwords=table)


def averaging_matrix(table: SubwordTable, words: Sequence[str]) -> sparse.csr_matrix:
    """The matrix that takes the rows of a table to the means over the n-grams of each word."""
    rows, starts = table.bags(words)
    counts = np.diff(starts)
    shares = np.repeat(1 / counts.clip(min=1), counts).astype(np.float32)
    return sparse.csr_matrix((shares, rows, starts), shape=(len(words), len(table.matrix)))


def _ridge_regression(inputs: sparse.csr_matrix, targets: np.ndarray, ridge: float, iterations: int) -> np.ndarray:
    """The solution X of (A' A + ridge) X = A' Y by conjugate gradients, all columns of Y side by side."""
    transposed = inputs.T.tocsr()
    residual = transposed @ targets
    direction = residual.copy()
    solution = np.zeros_like(residual)
    size = (residual**2).sum(axis=0)
    for _ in range(iterations):
        image = transposed @ (inputs @ direction) + ridge * direction
        step = size / np.maximum((direction * image).sum(axis=0), 1e-30)
        solution += step * direction
        residual -= step * image
        previous, size = size, (residual**2).sum(axis=0)
        direction = residual + size / np.maximum(previous, 1e-30) * direction
    return solution
