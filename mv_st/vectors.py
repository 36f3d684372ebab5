"""Word vectors: words, their matrix, a table of character n-grams where the source has one; and how to load them."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from .errors import UserError
from .subwords import SubwordTable, check_finite

__all__ = ["SubwordTable", "WordVectors", "load_vectors", "save_vectors"]


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


def load_vectors(
    path: str | os.PathLike[str],
    *,
    max_vocab: int | None = None,
    dtype: Literal["float32", "float16"] = "float32",
    words: Collection[str] | None = None,
    subwords: bool = True,
    progress: bool = True,
) -> WordVectors:
    r"""Load word vectors from a file.

    | file | what it is |
    | --- | --- |
    | `.vec`, `.txt`, also with `.gz` | a word and its numbers a line, with or without a first line "rows dim" |
    | `.bin` | a fastText model (unsupervised or supervised, not quantised) or word2vec's binary format |
    | `.npy` | a matrix, with its words in `x.txt` or `x.words` beside it, one a line |
    | `.npz` | what `save_vectors` wrote |

    Of a word that occurs twice, the first vector counts. Bytes that are not valid UTF-8 are replaced by U+FFFD. Both
    are logged once.

    Args:
        path: The file.
        max_vocab: Keep at most so many words, the first of the file; reading stops there.
        dtype: Type of the numbers in memory.
        words: Keep only these words, in the order of the file.
        subwords: Also load the n-gram table of a fastText model.
        progress: Show progress for text files.

    Raises:
        UserError: The file is missing, damaged, of another kind, or holds none of the words.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "tiny.vec")
        ...     _ = path.write_text("2 3\ncat 0.1 0.2 0.3\ndog 0.4 0.5 0.6\n")
        ...     vectors = load_vectors(path)
        >>> vectors.words, vectors.dim
        (['cat', 'dog'], 3)
    """
    from . import vector_formats

    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path}: {'a folder, not a file of word vectors' if path.is_dir() else 'no such file'}")
    if dtype not in ("float32", "float16"):
        raise UserError(f"dtype must be 'float32' or 'float16', not {dtype!r}")
    if max_vocab is not None and max_vocab < 1:
        raise UserError(f"max_vocab must be at least 1, not {max_vocab}")
    selection = vector_formats.Selection(max_vocab, words)
    kind = path.name.removesuffix(".gz").rpartition(".")[2].lower()
    if kind in ("vec", "txt"):
        from .vector_text import read_text

        vectors = read_text(path, dtype, selection, progress)
    elif path.suffix == ".bin" and vector_formats.is_fasttext_binary(path):
        vectors = vector_formats.read_fasttext_binary(path, dtype, selection, subwords)
    elif path.suffix == ".bin":
        vectors = vector_formats.read_word2vec_binary(path, dtype, selection)
    elif path.suffix == ".npy":
        vectors = vector_formats.read_npy(path, dtype, selection)
    elif path.suffix == ".npz":
        vectors = vector_formats.read_npz(path, dtype, selection, subwords)
    else:
        raise UserError(f"{path}: unknown kind of file; expected .vec, .vec.gz, .txt, .txt.gz, .bin, .npy or .npz")
    if len(vectors) == 0:
        asked = "no vectors" if words is None else f"none of the {len(words)} words that are asked for"
        raise UserError(f"{path}: holds {asked}")
    selection.report(path)
    return vectors


def save_vectors(vectors: WordVectors, path: str | os.PathLike[str]) -> None:
    """Save vectors with everything that belongs to them as `.npz`, for `load_vectors`.

    Args:
        vectors: The vectors.
        path: A file name that ends in `.npz`; the file appears whole or not at all.
    """
    from .files import whole_file

    arrays = {"matrix": vectors.matrix, "words": np.frombuffer("\n".join(vectors.words).encode(), dtype=np.uint8)}
    if vectors.counts is not None:
        arrays["counts"] = vectors.counts
    if (table := vectors.subwords) is not None:
        arrays["subword_matrix"] = table.matrix
        arrays["subword_numbers"] = np.array([table.min_n, table.max_n, table.n_buckets])
        if table.bucket_ids is not None:
            arrays["subword_bucket_ids"] = table.bucket_ids
    with whole_file(Path(path)) as temporary:
        np.savez(temporary, **arrays)  # type: ignore[arg-type]


def _first_duplicate(words: Iterable[str]) -> str:
    seen: set[str] = set()
    for word in words:
        if word in seen:
            return word
        seen.add(word)
    raise AssertionError("no duplicates")
