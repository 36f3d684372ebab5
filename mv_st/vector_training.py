"""Word vectors from one's own text: fastText's skip-gram with subwords, so that any language and domain works."""

from __future__ import annotations

import errno
import json
import logging
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sized
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import UserError
from .progress import progress_bar
from .subwords import END_OF_SENTENCE, SubwordTable, bracketed, ngram_buckets
from .vectors import WordVectors, load_vectors, save_vectors

if TYPE_CHECKING:
    from datasets import Dataset

logger = logging.getLogger(__name__)

Tokenize = Callable[[list[str]], list[list[str]]]

# fastText 0.9.3 fills its matrix in tenths, one per thread: fewer than 10 threads leave whole tenths uninitialised
# (facebookresearch/fastText issues 935 and 1061), and 10 leave the remainder of the division by 10.
_FEWEST_THREADS = 11
_ENOUGH_WORDS = 1000
_FEWEST_BUCKETS = 1000
_MOST_BUCKETS = 2_000_000
_ALL_HASHES = 1 << 32
_LARGEST_VALUE = 100.0  # trained vectors have values of about 1
_SENTENCES_PER_BATCH = 4096
_MOST_COUNTED_WORDS = 5_000_000
_MEMO_SIZE = 1_000_000
_LONGEST_REMEMBERED = 100  # characters, so that the memo stays small whatever the text is

# Runs in a process of its own, because fastText cannot be interrupted; ends when the parent is gone.
_CHILD = """
import json, os, threading
threading.Thread(target=lambda: (os.read(0, 1), os._exit(1)), daemon=True).start()
import fasttext
options = json.loads(os.environ["MV_ST_FASTTEXT"])
output = options.pop("output")
fasttext.train_unsupervised(**options).save_model(output)
"""


def train_vectors(
    corpus: Dataset | str | os.PathLike[str] | Iterable[str],
    *,
    dim: int = 300,
    epochs: int = 5,
    min_count: int = 5,
    min_n: int = 3,
    max_n: int = 6,
    buckets: int | None = None,
    threads: int | None = None,
    lr: float = 0.05,
    tokenize: Tokenize | None = None,
    output: str | os.PathLike[str] | None = None,
) -> WordVectors:
    """Train fastText word vectors on a corpus.

    The tokenised text and fastText's model are written to a temporary folder (`TMPDIR` chooses where) that needs about
    the size of the corpus, plus 4 bytes x `dim` for each bucket and twice for each word.

    Only n-grams that occur in the vocabulary are kept in the subword table: fastText never trains the others, they
    still have their random start. So an unknown word all of whose n-grams are new has no subword vector. (With more
    n-grams than buckets, only the buckets without any known n-gram can be left out.)

    fastText's threads write to the same memory without locks, so two runs never give quite the same vectors. To repeat
    what comes after, save them (`output`).

    Args:
        corpus: A dataset with the column "sentence" as from `load_corpus`, a path that `load_corpus` reads, or any
            iterable of sentences.
        dim: Width of the vectors.
        epochs: Passes over the corpus.
        min_count: Rarer words get no vector of their own. Lowered, with a log line, where a small corpus would be left
            with fewer than 1,000 words.
        min_n: Length of the shortest n-gram, in characters.
        max_n: Length of the longest n-gram; 0 trains without subwords.
        buckets: Number of hash buckets for n-grams. By default twice the number of different n-grams in the
            vocabulary, at most 2 million.
        threads: Number of threads, by default that of the cores. Never fewer than 11, which fastText needs to fill its
            matrix.
        lr: Learning rate at the start. Halved once if training diverges.
        tokenize: Turns a list of sentences into a list of word lists. By default words as the models of this package
            read them, in lower case.
        output: A `.npz` file to save the vectors to, for `load_vectors`.

    Raises:
        UserError: The corpus holds too few words, or training diverges.

    Example:
        >>> vectors = train_vectors(["the cat sat", "the dog sat"] * 50, dim=8)
        >>> sorted(vectors.words), vectors.dim
        (['cat', 'dog', 'sat', 'the'], 8)
    """
    if dim < 1 or epochs < 1 or min_count < 1:
        raise UserError(f"dim, epochs and min_count must be at least 1, not {dim}, {epochs} and {min_count}")
    if max_n and not 1 <= min_n <= max_n:
        raise UserError(f"n-gram lengths must satisfy 1 <= min_n <= max_n, not {min_n} and {max_n}")
    if output is not None and Path(output).suffix != ".npz":
        raise UserError(f"{output}: trained vectors are saved as .npz")
    if isinstance(corpus, (str, os.PathLike)):
        from .corpus import load_corpus

        corpus = load_corpus(os.fspath(corpus))
    with tempfile.TemporaryDirectory(prefix="mv-st-vectors-") as folder:
        text = Path(folder, "words.txt")
        counts = _write_words(corpus, text, tokenize or MemoTokenizer())
        min_count = _min_count_for(counts, min_count)
        vocabulary = [word for word, count in counts.items() if count >= min_count]
        if max_n and buckets is None:
            n_ngrams = len(_ngram_hashes(vocabulary, min_n, max_n))
            buckets = min(_MOST_BUCKETS, max(_FEWEST_BUCKETS, 2 * n_ngrams))  # so that few n-grams share one
        options: dict[str, Any] = {
            "input": str(text),
            "output": str(Path(folder, "model.bin")),
            "model": "skipgram",
            "dim": dim,
            "epoch": epochs,
            "minCount": min_count,
            "minn": min_n if max_n else 0,
            "maxn": max_n,
            "bucket": (buckets or 0) if max_n else 0,
            "thread": max(_FEWEST_THREADS, threads or os.cpu_count() or 1),
            "lr": lr,
            "label": " ",  # no word begins with a space, so none is taken for a label
            "verbose": 2,
        }
        _check_space(folder, 4 * dim * (2 * len(vocabulary) + options["bucket"]))
        n_tokens = counts.total()
        logger.info("Training vectors for %d words on %d words of text", len(vocabulary), n_tokens)
        vectors = _train_and_check(options, n_tokens)
    if output is not None:
        save_vectors(vectors, output)
    return vectors


class MemoTokenizer:
    """Splits sentences into lower-case words, remembering how each chunk between spaces is split.

    Example:
        >>> MemoTokenizer()(["The cat's hat, 3 €", "猫です"])
        [['the', 'cat', "'", 's', 'hat', ',', '3', '€'], ['猫', 'で', 'す']]
    """

    def __init__(self) -> None:
        from .modules.word_tokenizer import WordSplitter, build_tokenizer

        self._split = WordSplitter(build_tokenizer([]))
        self._memo: dict[str, list[str]] = {}

    def __call__(self, sentences: list[str]) -> list[list[str]]:
        """Return the words of each sentence."""
        memo = self._memo
        if len(memo) > _MEMO_SIZE:
            memo.clear()
        result = []
        for sentence in sentences:
            words: list[str] = []
            for chunk in sentence.split():
                pieces = memo.get(chunk)
                if pieces is None:
                    pieces = self._split(chunk)
                    if len(chunk) <= _LONGEST_REMEMBERED:
                        memo[chunk] = pieces
                words += pieces
            result.append(words)
        return result


def _write_words(corpus: Dataset | Iterable[str], path: Path, tokenize: Tokenize) -> Counter[str]:
    """Write the corpus as fastText reads it: words between spaces, one sentence a line. Returns the words' counts."""
    counts: Counter[str] = Counter()
    total = len(corpus) if isinstance(corpus, Sized) else None
    try:
        with (
            path.open("w", encoding="utf-8", errors="replace", newline="\n") as stream,
            progress_bar(total=total, desc="Reading words", unit="sentences") as bar,
        ):
            for sentences in _batches(corpus):
                lines = tokenize(sentences)
                for words in lines:
                    counts.update(words)
                stream.writelines(" ".join(words) + "\n" for words in lines if words)
                if len(counts) > _MOST_COUNTED_WORDS:  # a corpus this large does not miss its rarest words
                    counts = Counter({word: count for word, count in counts.items() if count > 1})
                bar.update(len(sentences))
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise UserError(
            f"{path.parent}: no space left for the words of the corpus; set TMPDIR to a larger disk"
        ) from error
    return counts


def _batches(corpus: Dataset | Iterable[str]) -> Iterator[list[str]]:
    if hasattr(corpus, "column_names"):
        if "sentence" not in corpus.column_names:
            raise UserError(f"the corpus has no column 'sentence', only {', '.join(corpus.column_names)}")
        for batch in corpus.iter(batch_size=_SENTENCES_PER_BATCH):  # type: ignore[union-attr]
            yield batch["sentence"]
        return
    sentences = iter(corpus)
    while batch := list(islice(sentences, _SENTENCES_PER_BATCH)):
        for sentence in batch:
            if not isinstance(sentence, str):
                raise UserError(f"a corpus must consist of sentences (str), found a {type(sentence).__name__}")
        yield batch


def _min_count_for(counts: Counter[str], wanted: int) -> int:
    """The wanted minimum, or the highest one below it that leaves enough words."""
    # fastText draws negative words until one differs from the target, which takes for ever with a single word.
    if len(counts) < 2:
        raise UserError(f"the corpus holds {len(counts)} different words; vectors need at least 2, better thousands")
    enough = min(_ENOUGH_WORDS, len(counts))
    frequencies = np.sort(np.fromiter(counts.values(), dtype=np.int64, count=len(counts)))[::-1]
    min_count = int(min(wanted, frequencies[enough - 1]))
    if min_count < wanted:
        logger.info("Lowered min_count from %d to %d: the corpus is small", wanted, min_count)
    return min_count


def _ngram_hashes(words: list[str], min_n: int, max_n: int) -> np.ndarray:
    """Sorted 32-bit hashes of the different n-grams of all words."""
    hashes = np.empty(0, dtype=np.int64)
    for start in range(0, len(words), 50_000):
        texts = [bracketed(word) for word in words[start : start + 50_000]]
        hashes = np.union1d(hashes, ngram_buckets(texts, min_n, max_n, _ALL_HASHES)[0])
    return hashes


def _check_space(folder: str, needed: int) -> None:
    if shutil.disk_usage(folder).free < needed:
        raise UserError(f"{folder}: the model needs {needed / 1e9:.1f} GB of disk space; set TMPDIR to a larger disk")


def _train_and_check(options: dict[str, Any], n_tokens: int) -> WordVectors:
    """Train; if that diverges, train again with half the learning rate."""
    for lr in (options["lr"], options["lr"] / 2):
        started = time.monotonic()
        problem = _run_fasttext(options | {"lr": lr}, n_tokens)
        if problem is None:
            try:
                vectors = _pruned(load_vectors(options["output"], progress=False))
                problem = _bad_row(vectors)
            except UserError as error:  # NaN in the model
                problem = str(error)
        if problem is None:
            seconds = time.monotonic() - started
            speed = n_tokens * options["epoch"] / seconds
            logger.info("Trained %d vectors in %.0f s, %.0f words/s", len(vectors), seconds, speed)
            return vectors
        logger.warning("Training vectors with lr %g failed: %s", lr, problem)
    raise UserError(
        f"training word vectors failed with lr {options['lr']:g} and with half of it ({problem}); lower lr"
    )


def _run_fasttext(options: dict[str, Any], n_tokens: int) -> str | None:
    """Train and save a model in another process; returns what went wrong."""
    process = subprocess.Popen(
        [sys.executable, "-c", _CHILD],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "MV_ST_FASTTEXT": json.dumps(options)},
    )
    assert process.stderr is not None
    total, done, tail = n_tokens * options["epoch"], 0, b""
    try:
        with progress_bar(total=total, desc="Training word vectors", unit="words") as bar:
            while chunk := os.read(process.stderr.fileno(), 65536):
                tail = (tail + chunk)[-10_000:]
                if shares := re.findall(rb"Progress:\s*([\d.]+)%", tail):
                    now = min(total, math.floor(float(shares[-1]) / 100 * total))
                    bar.update(max(0, now - done))
                    done = max(done, now)
        process.wait()
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
    if process.returncode == 0:
        return None
    return re.split(rb"[\r\n]+", tail.strip())[-1].decode(errors="replace") or f"exit code {process.returncode}"


def _pruned(vectors: WordVectors) -> WordVectors:
    """Without the end-of-sentence token, and without the n-grams that no word of the vocabulary has."""
    keep = np.array([word != END_OF_SENTENCE for word in vectors.words])
    words = [word for word in vectors.words if word != END_OF_SENTENCE]
    assert vectors.counts is not None
    table = None
    if (full := vectors.subwords) is not None:
        hashes = _ngram_hashes(words, full.min_n, full.max_n)
        if len(hashes) <= full.n_buckets:
            # Found by its whole hash, a new n-gram is told from the known ones, whose buckets it may share.
            rows, n_buckets = hashes % full.n_buckets, _ALL_HASHES
        else:
            hashes = rows = np.unique(hashes % full.n_buckets)
            n_buckets = full.n_buckets
        table = SubwordTable(full.matrix[rows], full.min_n, full.max_n, hashes, n_buckets)
    return WordVectors(words, vectors.matrix[keep], table, vectors.counts[keep])


def _bad_row(vectors: WordVectors) -> str | None:
    """What is wrong with the first row that training cannot have left behind; NaN was refused before."""
    tables = [("word", vectors.matrix)]
    if vectors.subwords is not None:
        tables.append(("n-gram", vectors.subwords.matrix))
    for name, matrix in tables:
        largest = np.maximum(matrix.max(axis=1), -matrix.min(axis=1))
        if bad := np.flatnonzero((largest == 0) | (largest > _LARGEST_VALUE)).tolist():
            return f"{len(bad)} {name} vectors are zero or very large, up to {largest.max():.3g}"
    return None
