"""The formats a corpus may come in, each read as a stream of sentences in which the document beginnings are marked."""

from __future__ import annotations

import contextlib
import gzip
import json
import logging
import lzma
import os
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from mv_st.errors import UserError
from mv_st.sentence_splitting import split_sentences

logger = logging.getLogger(__name__)

TEXT_ENDINGS = (".txt", ".txt.gz", ".txt.xz")
JSON_ENDINGS = (".jsonl", ".jsonl.gz", ".jsonl.xz")
PARQUET_ENDINGS = (".parquet",)
KNOWN_ENDINGS = TEXT_ENDINGS + JSON_ENDINGS + PARQUET_ENDINGS

_BYTES_PER_BLOCK = 4 << 20
_SENTENCES_PER_BATCH = 1 << 15
_NAMED_AT_MOST = 5

# Sentences in order, and for each of them whether a document begins with it.
SentenceBatch = tuple[list[str], np.ndarray]


@dataclass(frozen=True)
class Source:
    """One file, one dataset of the Hub (`hf:id`, `hf:id:split` or `hf:id:config:split`), or standard input (`-`)."""

    name: str

    @property
    def is_stdin(self) -> bool:
        """Whether this is standard input."""
        return self.name == "-"

    @property
    def is_hub(self) -> bool:
        """Whether this is a dataset for `datasets.load_dataset`."""
        return self.name.startswith("hf:")

    def __str__(self) -> str:
        return "standard input" if self.is_stdin else self.name

    def has_ending(self, endings: tuple[str, ...]) -> bool:
        """Whether the name ends in one of these, in upper or lower case."""
        return self.name.lower().endswith(endings)


def find_sources(sources: str | Path | Iterable[str | Path]) -> list[Source]:
    """Resolve what the user named to single sources: folders become their files, in sorted order.

    Raises:
        UserError: If a file is missing or has an unknown ending, or a folder holds nothing that can be read.
    """
    names = [sources] if isinstance(sources, (str, Path)) else list(sources)
    if not names:
        raise UserError("no corpus was named: give a text file, a folder, hf:dataset-id, or - for standard input")
    found: list[Source] = []
    for name in map(str, names):
        path = Path(name).expanduser()
        if name == "-" or name.startswith("hf:"):
            found.append(Source(name))
        elif path.is_dir():
            found.extend(_files_of_folder(path))
        elif not path.exists():
            raise UserError(f"{name}: no such file or folder")
        elif Source(name).has_ending(KNOWN_ENDINGS):
            found.append(Source(str(path)))
        else:
            raise UserError(
                f"{name}: unknown file ending, expected one of {', '.join(KNOWN_ENDINGS)}; "
                "plain text under another name can be piped in, with - as the corpus"
            )
    if sum(source.is_stdin for source in found) > 1:
        raise UserError("standard input (-) was named twice, but can be read only once")
    return found


def _files_of_folder(folder: Path) -> list[Source]:
    known: list[Source] = []
    unknown: list[str] = []
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if not path.is_file() or any(part.startswith(".") for part in inside.parts):
            continue
        source = Source(str(path))
        if source.has_ending(KNOWN_ENDINGS):
            known.append(source)
        else:
            unknown.append(str(inside))
    if not known:
        raise UserError(f"{folder}: no file in this folder ends in one of {', '.join(KNOWN_ENDINGS)}")
    if unknown:
        named = _first_few(unknown, len(unknown))
        logger.warning("%s: files left out because of their unknown ending: %d (%s)", folder, len(unknown), named)
    return known


@dataclass
class SourceReader:
    """Reads sources, and keeps account of the damaged lines in them.

    Args:
        text_column: Column of `.jsonl`, `.parquet` and `hf:` sources that holds the documents; found if left out.
        refuse_bad_lines: Whether a line that is not valid UTF-8 is an error, instead of being left out.
        language: Language of the documents, for the sentence splitter.
        advance: Called with the number of bytes read since the last call.
    """

    text_column: str | None
    refuse_bad_lines: bool
    language: str | None
    advance: Callable[[int], object]
    bad_line_count: int = field(default=0, init=False)
    first_bad_lines: list[str] = field(default_factory=list, init=False)

    def read(self, source: Source) -> Iterator[SentenceBatch]:
        """Yield the sentences of one source in batches of some ten thousand, so that memory stays flat."""
        if source.is_hub:
            return self._split(self._hub_documents(source))
        if source.has_ending(PARQUET_ENDINGS):
            return self._split(self._parquet_documents(source))
        if source.has_ending(JSON_ENDINGS):
            return self._split(self._json_documents(source))
        return self._text_sentences(source)

    def log_bad_lines(self) -> None:
        """Say how many lines were left out, and where the first of them are."""
        if self.bad_line_count:
            named = _first_few(self.first_bad_lines, self.bad_line_count)
            logger.warning("Lines left out because they are not valid UTF-8: %d (%s)", self.bad_line_count, named)

    def _text_sentences(self, source: Source) -> Iterator[SentenceBatch]:
        after_border = True
        for first_line, block in self._line_blocks(source):
            lines = [" ".join(line.split()) for line in self._decode(source, first_line, block) if line is not None]
            if not lines:
                continue
            is_sentence = np.fromiter(map(bool, lines), bool, len(lines))
            begins = is_sentence.copy()
            begins[1:] &= ~is_sentence[:-1]
            begins[0] &= after_border
            after_border = not is_sentence[-1]
            yield list(filter(None, lines)), begins[is_sentence]

    def _split(self, documents: Iterable[str]) -> Iterator[SentenceBatch]:
        sentences: list[str] = []
        begins: list[int] = []
        characters = 0
        for document in documents:
            found = split_sentences(document, self.language)
            if found:
                begins.append(len(sentences))
                sentences.extend(found)
                characters += len(document)
            if len(sentences) >= _SENTENCES_PER_BATCH or characters >= _BYTES_PER_BLOCK:
                yield sentences, _marks(begins, len(sentences))
                sentences, begins, characters = [], [], 0
        yield sentences, _marks(begins, len(sentences))

    def _json_documents(self, source: Source) -> Iterator[str]:
        column = self.text_column
        for first_line, block in self._line_blocks(source):
            for number, line in enumerate(self._decode(source, first_line, block), start=first_line):
                if line is None or not line.strip():
                    continue
                place = f"{source}:{number}"
                record = _parse_json_object(place, line)
                if column not in record:
                    strings = [name for name, value in record.items() if isinstance(value, str)]
                    column = _choose_text_column(place, list(record), strings, column)
                text = record[column]
                if isinstance(text, str):
                    yield text
                elif text is not None:
                    raise UserError(f"{place}: column {column!r} holds {type(text).__name__}, not text")

    def _parquet_documents(self, source: Source) -> Iterator[str]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            with pq.ParquetFile(source.name) as file:
                types = {column.name: str(column.type) for column in file.schema_arrow}
                column = _choose_table_column(source, types, self.text_column)
                bytes_per_row = os.path.getsize(source.name) / max(file.metadata.num_rows, 1)
                for batch in file.iter_batches(batch_size=1000, columns=[column]):
                    yield from filter(None, batch.column(0).to_pylist())
                    self.advance(round(bytes_per_row * len(batch)))
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise UserError(f"{source}: cannot be read as Parquet: {_one_line(error)}") from error

    def _hub_documents(self, source: Source) -> Iterator[str]:
        dataset = load_hub_dataset(source)
        types = {name: str(getattr(feature, "dtype", feature)) for name, feature in dataset.features.items()}
        column = _choose_table_column(source, types, self.text_column)
        for table in dataset.select_columns([column]).with_format("arrow").iter(batch_size=1000):
            yield from filter(None, table[column].to_pylist())

    def _line_blocks(self, source: Source) -> Iterator[tuple[int, bytes]]:
        """Yield blocks of whole lines, each with the number of its first line and without its last line end."""
        first_line = 1
        pieces: list[bytes] = []  # of a line that is longer than a block
        for data in self._bytes(source):
            end = data.rfind(b"\n")
            if end < 0:
                pieces.append(data)
                continue
            block = b"".join([*pieces, data[:end]])
            yield first_line, block
            first_line += block.count(b"\n") + 1
            pieces = [data[end + 1 :]]
        if last := b"".join(pieces):
            yield first_line, last

    def _bytes(self, source: Source) -> Iterator[bytes]:
        try:
            with contextlib.nullcontext(sys.stdin.buffer) if source.is_stdin else open(source.name, "rb") as raw:
                stream = _decompressed(source, raw)
                position = 0
                while data := stream.read(_BYTES_PER_BLOCK):
                    if position == 0 and data[:2] in (b"\xff\xfe", b"\xfe\xff"):
                        raise UserError(f"{source}: UTF-16 text; save it as UTF-8 first")
                    yield data
                    new_position = position + len(data) if source.is_stdin else raw.tell()
                    self.advance(new_position - position)
                    position = new_position
        except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
            raise UserError(f"{source}: damaged or cut-off compressed file: {_one_line(error)}") from error
        except OSError as error:
            raise UserError(f"{source}: cannot be read: {error.strerror or error}") from error

    def _decode(self, source: Source, first_line: int, block: bytes) -> list[str | None]:
        """The lines of a block, with None in the place of one that is not valid UTF-8."""
        try:
            # The byte order mark is also found further inside, where files have been joined.
            return [*block.decode("utf-8").replace("\ufeff", "").split("\n")]
        except UnicodeDecodeError:
            pass
        lines: list[str | None] = []
        for number, line in enumerate(block.split(b"\n"), start=first_line):
            try:
                lines.append(line.decode("utf-8").replace("\ufeff", ""))
            except UnicodeDecodeError as error:
                place = f"{source}:{number}"
                if self.refuse_bad_lines:
                    raise UserError(f"{place}: not valid UTF-8 at byte {error.start + 1} of the line") from None
                self.bad_line_count += 1
                if self.bad_line_count <= _NAMED_AT_MOST:
                    self.first_bad_lines.append(place)
                lines.append(None)
        return lines


def load_hub_dataset(source: Source) -> Any:
    """Fetch `hf:id`, `hf:id:split` or `hf:id:config:split`; the split is "train" if none is named.

    Raises:
        UserError: If it cannot be had, for whatever reason.
    """
    import datasets

    identifier, *rest = source.name.removeprefix("hf:").split(":")
    if not identifier or len(rest) > 2:
        raise UserError(f"{source}: expected hf:dataset-id, hf:dataset-id:split or hf:dataset-id:config:split")
    split = rest[-1] if rest else "train"
    config = rest[0] if len(rest) == 2 else None
    try:
        return datasets.load_dataset(identifier, config, split=split)
    except Exception as error:  # its errors have no common class, and all mean the same to the user
        raise UserError(f"{source}: cannot be loaded (is there a network?): {_one_line(error)}") from error


def _choose_text_column(place: str, columns: list[str], text_columns: list[str], wanted: str | None) -> str:
    names = ", ".join(columns) or "none"
    if wanted is not None:
        if wanted not in columns:
            raise UserError(f"{place}: no column {wanted!r}; the columns are: {names}")
        return wanted
    if "text" in columns:
        return "text"
    if len(text_columns) == 1:
        return text_columns[0]
    raise UserError(f"{place}: which column holds the text? Name one as text_column; the columns are: {names}")


def _choose_table_column(source: Source, types: Mapping[str, str], wanted: str | None) -> str:
    def is_text(name: str) -> bool:
        return types[name].startswith(("string", "large_string", "dictionary<values=string"))

    column = _choose_text_column(source.name, list(types), list(filter(is_text, types)), wanted)
    if not is_text(column):
        raise UserError(f"{source}: column {column!r} holds {types[column]}, not text")
    return column


def _parse_json_object(place: str, line: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{place}: not valid JSON: {_one_line(error)}") from None
    if not isinstance(record, dict):
        raise UserError(f"{place}: expected a JSON object with a text column, found {type(record).__name__}")
    return record


def _decompressed(source: Source, raw: IO[bytes]) -> IO[bytes]:
    if source.has_ending((".gz",)):
        return gzip.GzipFile(fileobj=raw)  # type: ignore[return-value]
    if source.has_ending((".xz",)):
        return lzma.LZMAFile(raw)
    return raw


def _marks(positions: list[int], length: int) -> np.ndarray:
    marks = np.zeros(length, dtype=bool)
    marks[positions] = True
    return marks


def _first_few(names: list[str], count: int) -> str:
    return ", ".join(names[:_NAMED_AT_MOST]) + (", ..." if count > _NAMED_AT_MOST else "")


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
