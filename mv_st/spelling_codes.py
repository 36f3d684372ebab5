"""Word vectors that also tell how a word is written: a random code of its character n-grams beside its meaning."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .errors import UserError
from .spelling import PUNCTUATION, averaging_matrix
from .vectors import WordVectors

_WORDS_AT_ONCE = 50_000


def add_spelling_codes(vectors: WordVectors, size: int, *, seed: int = 0) -> WordVectors:
    """Widen word vectors by codes in which words are alike as far as they are spelt alike.

    Word vectors tell what a word means, and hardly whether two sentences use the same word or two of a kind: `Paris`
    and `London`, `twelve` and `thirteen` are nearly one vector. For how alike sentences are, that matters. Each
    character n-gram gets a random vector, and the code of a word is the direction of their mean: the same word has the
    same code, `walk` and `walked` similar ones, other words nearly orthogonal ones. Nothing has to be known about the
    word or the language. Punctuation has no code.

    Args:
        vectors: Word vectors with a table of n-grams, see `add_spelling`.
        size: Width of the codes.
        seed: Seed of the random vectors.

    Returns:
        The same words, with vectors that are wider by `size`, the code last, and of the length of a typical vector.

    Example:
        >>> from mv_st import add_spelling
        >>> vectors = WordVectors(["walk", "walked", "sing"], np.eye(3, dtype=np.float32))
        >>> codes = add_spelling_codes(add_spelling(vectors), size=100).matrix[:, 3:]
        >>> walk, walked, sing = codes / np.linalg.norm(codes, axis=1, keepdims=True)
        >>> bool(walk @ walked > 0.4 > 0.2 > abs(walk @ sing))
        True
    """
    table = vectors.subwords
    if table is None:
        raise UserError("spelling codes need vectors with a table of n-grams; call add_spelling first")
    if size < 1:
        raise UserError(f"the size of spelling codes must be at least 1, not {size}")
    ngrams = np.random.default_rng(seed).standard_normal((len(table.matrix), size), dtype=np.float32)
    ngrams[table.bags(list(PUNCTUATION))[0]] = 0.0
    codes = np.zeros((len(vectors), size), np.float32)
    lengths = np.zeros(len(vectors), np.float32)
    for start in range(0, len(vectors), _WORDS_AT_ONCE):
        words = slice(start, start + _WORDS_AT_ONCE)
        codes[words] = averaging_matrix(table, vectors.words[words]) @ ngrams
        lengths[words] = np.linalg.norm(codes[words], axis=1)
    has_code = lengths > 0
    typical = np.linalg.norm(vectors.matrix[has_code].astype(np.float32), axis=1).mean() if has_code.any() else 1.0
    codes[has_code] *= (typical / lengths[has_code])[:, None]
    # Unknown words get the mean over their n-grams as it is, which has this length for a word with as many n-grams as
    # those of the vocabulary have.
    ngrams *= typical / lengths[has_code].mean() if has_code.any() else 1.0
    kind = vectors.matrix.dtype
    return replace(
        vectors,
        matrix=np.hstack([vectors.matrix, codes.astype(kind)]),
        subwords=replace(table, matrix=np.hstack([table.matrix, ngrams.astype(table.matrix.dtype)])),
    )
