"""Vectors of whole files, and the sentences nearest to a text."""

from __future__ import annotations

import gzip
import lzma
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import torch

from .errors import UserError
from .files import whole_file
from .progress import progress_bar

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

SENTENCES_PER_CHUNK = 20_000


def encode_file(
    model: SentenceTransformer,
    source: str | Path,
    output: str | Path,
    *,
    view: str | None = None,
    representation: str = "similarity",
    workers: int = 1,
) -> int:
    """Encode a file of sentences, one per line, in chunks: memory does not grow with the file.

    Every line gives one vector, an empty line too, so that rows and lines correspond.

    Args:
        model: The model.
        source: Text, also `.gz` and `.xz`; `-` is standard input.
        output: `.npy` with the vectors, or `.parquet` with the columns `sentence` and `embedding`. It appears whole or
            not at all.
        view: One view alone.
        representation: `"similarity"` or `"transfer"`.
        workers: Number of processes.

    Returns:
        Number of vectors.
    """
    kind = Path(output).suffix
    if kind not in (".npy", ".parquet"):
        raise UserError(f"{output}: vectors are written as .npy or .parquet")
    options = _vector_options(model, view, representation)
    lines = read_lines(source)
    first = list(islice(lines, SENTENCES_PER_CHUNK))
    if not first:
        raise UserError(f"{source}: no sentences to encode")
    write = _write_npy if kind == ".npy" else _write_parquet
    with (
        encoding_workers(model, workers) as encode,
        progress_bar(desc="encoding", unit="sentences") as bar,
        whole_file(output) as path,
        ThreadPoolExecutor(1) as ahead,
    ):

        def chunks() -> Iterator[tuple[list[str], np.ndarray]]:
            chunk, vectors = first, ahead.submit(encode, first, **options)
            while chunk:
                # The next chunk is encoded while this one is written.
                next_chunk = list(islice(lines, SENTENCES_PER_CHUNK))
                done = vectors.result()
                if next_chunk:
                    vectors = ahead.submit(encode, next_chunk, **options)
                yield chunk, done
                bar.update(len(chunk))
                chunk = next_chunk

        return write(path, chunks())


def nearest(
    model: SentenceTransformer,
    sentences: Sequence[str],
    queries: Sequence[str],
    *,
    top: int = 5,
    view: str | None = None,
    representation: str = "similarity",
) -> list[list[tuple[float, str]]]:
    """Find the sentences that are nearest to each query by cosine.

    Args:
        model: The model.
        sentences: Where to look; a sentence that occurs twice counts once.
        queries: What to look for.
        top: How many to return for each query.
        view: One view alone.
        representation: `"similarity"` or `"transfer"`.

    Returns:
        For each query pairs of cosine and sentence, the nearest first.
    """
    sentences = list(dict.fromkeys(sentences))
    if not sentences:
        raise UserError("no sentences to search in")
    options = _vector_options(model, view, representation) | {"normalize_embeddings": True}
    wanted = model.encode(list(queries), **options, show_progress_bar=False)
    best: list[list[tuple[float, str]]] = [[] for _ in queries]
    with progress_bar(total=len(sentences), desc="encoding", unit="sentences") as bar:
        for start in range(0, len(sentences), SENTENCES_PER_CHUNK):
            chunk = sentences[start : start + SENTENCES_PER_CHUNK]
            vectors = model.encode(chunk, **options, show_progress_bar=False)
            for kept, scores in zip(best, wanted @ vectors.T, strict=True):
                found = np.argsort(-scores)[:top]
                kept[:] = sorted(kept + [(float(scores[i]), chunk[i]) for i in found], reverse=True)[:top]
            bar.update(len(chunk))
    return best


def _vector_options(model: SentenceTransformer, view: str | None, representation: str) -> dict[str, Any]:
    """What to pass to `encode`, which other models than ours refuse, checked before any work is done."""
    from .modules import ViewEnsemble

    if view is None and representation == "similarity":
        return {}
    ensemble = model[-1]
    if not isinstance(ensemble, ViewEnsemble):
        raise UserError("this model has no views or representations to choose from; leave the choice out")
    if view is not None and view not in ensemble.views:
        raise UserError(f"this model has no view {view!r}; its views are {', '.join(ensemble.views)}")
    return {"view": view, "representation": representation}


@contextmanager
def encoding_workers(model: SentenceTransformer, workers: int) -> Iterator[Any]:
    """A function that encodes a list of sentences, in this process or in several.

    Args:
        model: The model.
        workers: Number of processes; each gets its share of the cores.

    Yields:
        `encode(sentences, **options)`, with options of `model.encode`.
    """
    if workers == 1:
        yield lambda sentences, **options: model.encode(sentences, show_progress_bar=False, **options)
        return
    # Workers that all use all cores get in each other's way. They read this when they start.
    threads = str(max(1, torch.get_num_threads() // workers))
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = threads
    pool = model.start_multi_process_pool(["cpu"] * workers)
    try:
        yield lambda sentences, **options: model.encode(
            sentences,
            pool=pool,
            chunk_size=max(1, len(sentences) // (4 * workers)),
            show_progress_bar=False,
            **options,
        )
    finally:
        model.stop_multi_process_pool(pool)
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before


def read_lines(source: str | Path) -> Iterator[str]:
    """Read the lines of a text file (also `.gz`, `.xz`, `-` for standard input), without white space at their ends."""
    try:
        with _open(source) as stream:
            for number, raw in enumerate(stream, start=1):
                try:
                    yield raw.decode("utf-8-sig" if number == 1 else "utf-8").strip()
                except UnicodeDecodeError:
                    raise UserError(f"{source}, line {number}: not UTF-8") from None
    except (EOFError, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise UserError(f"{source}: damaged archive ({error})") from None
    except OSError as error:
        raise UserError(f"{source}: {error.strerror or error}") from None


@contextmanager
def _open(source: str | Path) -> Iterator[IO[bytes]]:
    if str(source) == "-":
        yield sys.stdin.buffer
        return
    openers: dict[str, Any] = {".gz": gzip.open, ".xz": lzma.open}
    with openers.get(Path(source).suffix, open)(source, "rb") as stream:
        yield stream


def _write_npy(path: Path, chunks: Iterator[tuple[list[str], np.ndarray]]) -> int:
    """Write vectors as they come; the header, which tells their number, is written again at the end."""
    count = 0
    with open(path, "wb") as file:
        for _, vectors in chunks:
            if count == 0:
                _write_header(file, vectors, 0)
            count += len(vectors)
            file.write(np.ascontiguousarray(vectors).tobytes())
            shape = vectors
        file.seek(0)
        _write_header(file, shape, count)
    return count


def _write_header(file: IO[bytes], vectors: np.ndarray, count: int) -> None:
    description = {"descr": vectors.dtype.str, "fortran_order": False, "shape": (count, vectors.shape[1])}
    # NumPy pads the header so that it has the same length for any number of rows.
    np.lib.format.write_array_header_1_0(file, description)


def _write_parquet(path: Path, chunks: Iterator[tuple[list[str], np.ndarray]]) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    count = 0
    writer = None
    for sentences, vectors in chunks:
        column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
        table = pa.table({"sentence": sentences, "embedding": column})
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
        count += len(sentences)
    if writer is not None:
        writer.close()
    return count
