"""Ordered text as a memory-mapped dataset: sentence by sentence, or in windows of consecutive sentences."""

from __future__ import annotations

import atexit
import hashlib
import json
import logging
import os
import uuid
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import datasets
import numpy as np
import pyarrow as pa
from filelock import FileLock

from mv_st.corpus_sources import TEXT_ENDINGS, Source, SourceReader, find_sources, load_hub_dataset
from mv_st.errors import UserError
from mv_st.progress import progress_bar

logger = logging.getLogger(__name__)

_FORMAT = 1  # part of every cache key, so that a later change of what is written here does not meet old files
_CORPUS_SCHEMA = pa.schema([("sentence", pa.string()), ("label", pa.int64())])
_ROWS_PER_BATCH = 1 << 16


def load_corpus(
    sources: str | Path | Iterable[str | Path],
    *,
    text_column: str | None = None,
    on_bad_line: Literal["skip", "refuse"] = "skip",
    language: str | None = None,
    cache_dir: str | Path | None = None,
) -> datasets.Dataset:
    r"""Read ordered text of any size into a memory-mapped dataset.

    The text is written once to an Arrow file in a cache folder and mapped from there, so memory does not grow with the
    corpus. A later call with the same unchanged files and the same options finds that file again; what came through
    standard input is deleted when the program ends.

    Args:
        sources: One or several of the following. Several are one corpus, in which each begins a new document.

            - `.txt`, `.txt.gz`, `.txt.xz`: one sentence per line, an empty line between documents
            - `.jsonl` (also `.gz`, `.xz`), `.parquet`: one document per row, which is split into sentences
            - `hf:dataset-id`, `hf:dataset-id:split`, `hf:dataset-id:config:split`: the same from the Hugging Face Hub
            - a folder: all such files in it and below, in sorted order
            - `-`: standard input, read as `.txt`
        text_column: Column that holds the documents. By default `text`, or else the only column with text.
        on_bad_line: "skip" leaves out lines that are not valid UTF-8 and reports them, "refuse" makes them an error.
        language: ISO 639 code for the sentence splitter, such as "de"; only used where documents are split.
        cache_dir: Where to write. By default a folder in the cache of `datasets`.

    Returns:
        A dataset with the columns `sentence` and `label`, the number of the document, counted from 0.

    Raises:
        UserError: If a source is missing, damaged or not understood, or if there is no sentence at all.

    Examples:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "news.txt").write_text("Cats purr.\nDogs bark.\n\nStocks fell.\n")
        >>> load_corpus(folder / "news.txt", cache_dir=folder)[:]
        {'sentence': ['Cats purr.', 'Dogs bark.', 'Stocks fell.'], 'label': [0, 0, 1]}
    """
    if on_bad_line not in ("skip", "refuse"):
        raise UserError(f"on_bad_line must be 'skip' or 'refuse', not {on_bad_line!r}")
    found = find_sources(sources)

    def record_batches() -> Iterator[pa.RecordBatch]:
        with progress_bar(total=_total_bytes(found), desc="Reading corpus", unit="B") as bar:
            reader = SourceReader(text_column, on_bad_line == "refuse", language, bar.update)
            yield from _labelled_batches(found, reader)
            reader.log_bad_lines()

    identity = [*map(_identity, found), text_column, on_bad_line, language, version("sentencex")]
    path = _write_once(_cache_folder(cache_dir), "corpus", identity, _CORPUS_SCHEMA, record_batches())
    if any(source.is_stdin for source in found):
        atexit.register(path.unlink, missing_ok=True)
    return datasets.Dataset.from_file(str(path))


class WindowRow(dict[str, str]):
    """A row of `window_dataset`, which `model.fit` can also read as it reads an `InputExample`."""

    label = 0

    @property
    def texts(self) -> list[str]:
        """The sentences of the window, in order."""
        return list(self.values())


class WindowDataset(datasets.Dataset):
    """A dataset that hands `WindowRow`s to a `DataLoader`."""

    def __getitems__(self, keys: list[int]) -> list[WindowRow]:
        """Rows for one batch of a `DataLoader`."""
        return [WindowRow(row) for row in super().__getitems__(keys)]


def window_dataset(corpus: datasets.Dataset, window: int = 7, stride: int | None = None) -> WindowDataset:
    """Rows of consecutive sentences of one document, for training loops that shuffle rows, such as `model.fit`.

    Everything a row needs is inside it, so its neighbours in the batch do not matter:

        loader = DataLoader(window_dataset(corpus), batch_size=64, shuffle=True)
        model.fit(train_objectives=[(loader, MultiViewLoss(model))], optimizer_params={"lr": 5e-4}, warmup_steps=0)

    `fit` reads `.texts` and `.label`, which these rows have when a `DataLoader` asks for them. Rows of a `select` or
    `filter` have not; turn those into `InputExample(texts=list(row.values()))`.

    Args:
        corpus: What `load_corpus` returned, or any dataset with the columns `sentence` and `label`.
        window: Number of sentences in a row.
        stride: Distance between the beginnings of two windows of a document. By default `window`: every sentence is
            used once, except the last few of each document that fill no window. How many these are is logged.

    Returns:
        A dataset with the columns `sentence_00`, `sentence_01`, ..., memory-mapped from the cache folder of `corpus`.

    Raises:
        UserError: If no document is as long as the window.

    Examples:
        >>> corpus = datasets.Dataset.from_dict({"sentence": list("abcdefg"), "label": [0, 0, 0, 0, 0, 1, 1]})
        >>> window_dataset(corpus, window=2)[:]
        {'sentence_00': ['a', 'c', 'f'], 'sentence_01': ['b', 'd', 'g']}
    """
    stride = window if stride is None else stride
    if window < 2 or stride < 1:
        raise UserError(f"a window needs at least 2 sentences and a stride of 1, not {window} and {stride}")
    if not {"sentence", "label"} <= set(corpus.column_names):
        raise UserError(f"a corpus has the columns sentence and label, this one has: {', '.join(corpus.column_names)}")
    bounds = _document_bounds(corpus)
    lengths = np.diff(bounds)
    windows = np.maximum((lengths - window) // stride + 1, 0)
    if not windows.any():
        raise UserError(
            f"no document has {window} sentences in a row (the longest has {lengths.max(initial=0)}): "
            "choose a smaller window, or check that empty lines stand only between documents"
        )
    covered = windows.sum() * window - np.maximum(windows - 1, 0).sum() * max(window - stride, 0)
    logger.info(
        "%d windows of %d sentences; %d of %d sentences are in none, at the ends of documents",
        *(windows.sum(), window, len(corpus) - covered, len(corpus)),
    )
    digits = max(2, len(str(window - 1)))
    schema = pa.schema([(f"sentence_{i:0{digits}}", pa.string()) for i in range(window)])
    home = Path(corpus.cache_files[0]["filename"]).parent if corpus.cache_files else None
    identity = [corpus._fingerprint, window, stride]
    batches = _window_batches(corpus, bounds, schema, stride)
    path = _write_once(_cache_folder(home), "windows", identity, schema, batches)
    return WindowDataset.from_file(str(path))


def _labelled_batches(sources: list[Source], reader: SourceReader) -> Iterator[pa.RecordBatch]:
    sentences = documents = 0
    without_border: list[str] = []
    for source in sources:
        sentences_before, documents_before = sentences, documents
        for texts, begins in reader.read(source):
            if texts:
                labels = documents - 1 + np.cumsum(begins, dtype=np.int64)
                yield pa.record_batch([pa.array(texts, pa.string()), pa.array(labels)], schema=_CORPUS_SCHEMA)
                sentences += len(texts)
                documents = int(labels[-1]) + 1
        if sentences == sentences_before:
            logger.warning("%s: no sentence in it", source)
        elif documents == documents_before + 1 and (source.is_stdin or source.has_ending(TEXT_ENDINGS)):
            without_border.append(str(source))
    if not sentences:
        raise UserError(f"the corpus is empty, no sentence in: {', '.join(map(str, sources[:5]))}")
    logger.info("Read %d sentences in %d documents", sentences, documents)
    if without_border:
        logger.log(
            logging.WARNING if documents == 1 < sentences else logging.INFO,
            "No empty line in %s (%d files): each was read as one document. If it holds several, their borders are "
            "unknown and sentences on both sides of one count as neighbours; put an empty line between documents.",
            without_border[0],
            len(without_border),
        )


def _window_batches(
    corpus: datasets.Dataset, bounds: np.ndarray, schema: pa.Schema, stride: int
) -> Iterator[pa.RecordBatch]:
    """Cut windows of as many sentences as the schema has columns, one stretch of the corpus after the other."""
    table = corpus.with_format("arrow")
    window = len(schema)
    with progress_bar(total=len(corpus), desc="Cutting windows", unit="sentences") as bar:
        for low in range(0, len(corpus), _ROWS_PER_BATCH):
            rows = np.arange(low, min(low + _ROWS_PER_BATCH, len(corpus)))
            document = np.searchsorted(bounds, rows, side="right") - 1
            fits = rows + window <= bounds[document + 1]
            starts = np.flatnonzero(fits & ((rows - bounds[document]) % stride == 0))
            if len(starts):
                sentences = table[low : rows[-1] + window]["sentence"].combine_chunks()
                columns = [sentences.take(pa.array(starts + i)) for i in range(window)]
                yield pa.record_batch(columns, schema=schema)
            bar.update(len(rows))


def _document_bounds(corpus: datasets.Dataset) -> np.ndarray:
    """Row at which each document begins, and at the end the number of rows."""
    changes = [np.zeros(1, dtype=np.int64)]
    last_label = None
    row = 0
    for table in corpus.select_columns(["label"]).with_format("arrow").iter(batch_size=_ROWS_PER_BATCH):
        labels = table["label"].to_numpy()
        if last_label is not None and labels[0] != last_label:
            changes.append(np.array([row]))
        changes.append(row + 1 + np.flatnonzero(labels[1:] != labels[:-1]))
        last_label = labels[-1]
        row += len(labels)
    return np.concatenate([*changes, [len(corpus)]])


def _identity(source: Source) -> Any:
    """What changes when the content of a source changes."""
    if source.is_stdin:
        return uuid.uuid4().hex
    if source.is_hub:
        return [source.name, load_hub_dataset(source)._fingerprint]
    status = os.stat(source.name)
    return [os.path.abspath(source.name), status.st_size, status.st_mtime_ns]


def _total_bytes(sources: list[Source]) -> int | None:
    if any(source.is_stdin or source.is_hub for source in sources):
        return None
    return sum(os.path.getsize(source.name) for source in sources)


def _cache_folder(folder: str | Path | None) -> Path:
    return Path(datasets.config.HF_DATASETS_CACHE) / "mv_st" if folder is None else Path(folder)


def _write_once(
    folder: Path, name: str, identity: list[Any], schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> Path:
    """Write record batches to an Arrow file, unless it is there; it appears whole or not at all.

    The lock lets one of several processes that start together do the work while the others wait for it.
    """
    key = hashlib.sha256(json.dumps([_FORMAT, *identity]).encode()).hexdigest()[:32]
    path = folder / f"{name}-{key}.arrow"
    unfinished = path.with_suffix(".tmp")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_suffix(".lock")):
            if path.exists():
                return path
            try:
                with pa.ipc.new_stream(str(unfinished), schema) as writer:
                    for batch in batches:
                        writer.write_batch(batch)
                os.replace(unfinished, path)
            finally:
                unfinished.unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"{folder}: cannot write the corpus here ({reason}); choose another cache_dir") from error
    return path
