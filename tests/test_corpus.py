from __future__ import annotations

import gzip
import io
import json
import logging
import lzma
import os
import random
import subprocess
import sys
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mv_st import corpus_sources
from mv_st.corpus import load_corpus, window_dataset
from mv_st.errors import UserError
from mv_st.sentence_splitting import split_sentences

TEXT = "One.\nTwo.\n\nThree.\n"
DOCUMENTS = ["One. Two.", "Three."]
ROWS = [("One.", 0), ("Two.", 0), ("Three.", 1)]


@pytest.fixture
def read(tmp_path: Path):
    """`load_corpus` with a cache of its own, as a list of (sentence, label)."""

    def read(sources, **options) -> list[tuple[str, int]]:
        corpus = load_corpus(sources, cache_dir=tmp_path / "cache", **options)
        assert corpus.features == datasets.Features(
            {"sentence": datasets.Value("string"), "label": datasets.Value("int64")}
        )
        return list(zip(corpus["sentence"], corpus["label"], strict=True))

    return read


@pytest.fixture
def write(tmp_path: Path):
    def write(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = content.encode("utf-8") if isinstance(content, str) else content
        if name.endswith(".gz"):
            data = gzip.compress(data)
        elif name.endswith(".xz"):
            data = lzma.compress(data)
        path.write_bytes(data)
        return path

    return write


def as_json_lines(documents: list[str], column: str = "text") -> str:
    return "".join(json.dumps({"id": i, column: document}) + "\n" for i, document in enumerate(documents))


def write_parquet(path: Path, **columns: list) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def pipe_in(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))


# --- formats ---


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.txt.xz", "A.TXT"])
def test_text(read, write, name: str) -> None:
    assert read(write(name, TEXT)) == ROWS


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.xz"])
def test_json_lines(read, write, name: str) -> None:
    assert read(write(name, as_json_lines(DOCUMENTS))) == ROWS


def test_parquet(read, tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", text=[DOCUMENTS[0], None, "", DOCUMENTS[1]], n=[1, 2, 3, 4])
    assert read(path) == ROWS


def test_parquet_with_dictionary_column(read, tmp_path: Path) -> None:
    column = pa.array(DOCUMENTS).dictionary_encode()
    pq.write_table(pa.table({"body": column}), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet") == ROWS


def test_standard_input(read, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pipe_in(monkeypatch, TEXT.encode())
    assert read("-") == ROWS
    pipe_in(monkeypatch, b"Other.\n")
    assert read("-") == [("Other.", 0)]


def test_what_was_piped_in_is_gone_after_the_program(tmp_path: Path) -> None:
    program = "import sys; from mv_st.corpus import load_corpus; print(load_corpus('-', cache_dir=sys.argv[1])[:])"
    command = [sys.executable, "-c", program, str(tmp_path / "cache")]
    result = subprocess.run(command, input=TEXT.encode(), capture_output=True, check=True)
    assert b"['One.', 'Two.', 'Three.']" in result.stdout
    assert left_in_cache(tmp_path) == []


def test_dataset_through_load_dataset(read, tmp_path: Path) -> None:
    # A folder takes the same way through `datasets.load_dataset` as a dataset of the Hub.
    (tmp_path / "data").mkdir()
    write_parquet(tmp_path / "data" / "train-0.parquet", text=DOCUMENTS)
    write_parquet(tmp_path / "data" / "test-0.parquet", text=["Four."])
    assert read(f"hf:{tmp_path}") == ROWS
    assert read(f"hf:{tmp_path}:test") == [("Four.", 0)]
    assert read(f"hf:{tmp_path}:default:test") == [("Four.", 0)]
    with pytest.raises(UserError, match="validation"):
        read(f"hf:{tmp_path}:validation")


def test_dataset_that_cannot_be_reached(read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match="hf:nobody/no-such-dataset: cannot be loaded") as error:
        read("hf:nobody/no-such-dataset")
    assert "\n" not in str(error.value)


def test_folder(read, write, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write("folder/b/2.jsonl", as_json_lines(["Four. Five."]))
    write("folder/a.txt", TEXT)
    write("folder/b/1.txt.gz", "In between.\n")
    write("folder/notes.md", "# No corpus\n")
    write("folder/.hidden.txt", "Hidden.\n")
    write("folder/.git/c.txt", "Hidden.\n")
    (tmp_path / "folder" / "broken-link.txt").symlink_to("nowhere.txt")
    assert read(tmp_path / "folder") == [*ROWS, ("In between.", 2), ("Four.", 3), ("Five.", 3)]
    assert "notes.md" in caplog.text
    assert "hidden" not in caplog.text


def test_several_sources_are_one_corpus(read, write) -> None:
    # The first file does not end with an empty line or line end: its border still is one.
    first, second = write("1.txt", "One.\n\nTwo."), write("2.txt", "Three.\nFour.\n")
    assert read([first, str(second)]) == [("One.", 0), ("Two.", 1), ("Three.", 2), ("Four.", 2)]
    assert read([second, first]) == [("Three.", 0), ("Four.", 0), ("One.", 1), ("Two.", 2)]


# --- what text files are like ---


@pytest.mark.parametrize(
    "content",
    [
        "One.\r\nTwo.\r\n\r\nThree.\r\n",
        "\ufeffOne.\nTwo.\n\nThree.\n",
        "One.\nTwo.\n \t \n\n\nThree.",
        "\n\n\nOne.\nTwo.\n\nThree.\n\n\n",
        "  One. \t\nTwo.\u00a0\n\u3000\nThree.\n",
        "One.\nTwo.\n\ufeff\nThree.\n",
    ],
    ids=["windows", "byte order mark", "blank lines", "outer blank lines", "white space", "joined files"],
)
def test_same_rows_whatever_the_white_space(read, write, content: str) -> None:
    assert read(write("a.txt", content)) == ROWS


def test_unicode_and_inner_white_space(read, write) -> None:
    lines = ["Grüße,   Jürgen\t!", "日本語の文。", "Смех 👩‍👩‍👧", "line\u2028separator\x0cand\x85others"]
    assert [sentence for sentence, _ in read(write("a.txt", "\n".join(lines)))] == [
        "Grüße, Jürgen !",
        "日本語の文。",
        "Смех 👩‍👩‍👧",
        "line separator and others",
    ]


def test_text_without_blank_line_is_one_document(read, write, caplog: pytest.LogCaptureFixture) -> None:
    assert read(write("a.txt", "One.\nTwo.\n")) == [("One.", 0), ("Two.", 0)]
    assert "borders are unknown" in caplog.text.replace("\n", " ")


def test_no_hint_where_borders_are_known(read, write, caplog: pytest.LogCaptureFixture) -> None:
    read(write("a.txt", TEXT))
    read([write("1.txt", "One.\n"), write("2.txt", "Two.\n")])
    assert "borders" not in caplog.text


def test_empty_file_among_others(read, write, caplog: pytest.LogCaptureFixture) -> None:
    assert read([write("1.txt", ""), write("2.txt.gz", ""), write("3.txt", TEXT), write("4.jsonl", "")]) == ROWS
    assert caplog.text.count("no sentence") == 3


def test_blocks_of_any_size_give_the_same_rows(write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    generator = random.Random(0)
    lines = [generator.choice(["", "", "é", "two words", "x" * 40, " \r"]) for _ in range(500)]
    expected, document, after_border = [], -1, True
    for line in (line.strip() for line in lines):
        if line:
            document += after_border
            expected.append((line, document))
        after_border = not line
    for number, size in enumerate([1, 2, 3, 7, 64, 1 << 20]):
        monkeypatch.setattr(corpus_sources, "_BYTES_PER_BLOCK", size)
        corpus = load_corpus(write(f"{number}.txt", "\n".join(lines)), cache_dir=tmp_path / "cache")
        assert list(zip(corpus["sentence"], corpus["label"], strict=True)) == expected


def test_documents_are_split_as_by_hand(read, write, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = random.Random(0)
    documents = [" ".join(f"Sentence {i} here." for i in range(generator.randint(0, 9))) for _ in range(200)]
    expected = [s for s in map(split_sentences, documents) if s]
    monkeypatch.setattr(corpus_sources, "_SENTENCES_PER_BATCH", 10)
    rows = read(write("a.jsonl", as_json_lines(documents)))
    assert rows == [(sentence, label) for label, document in enumerate(expected) for sentence in document]


def test_language_reaches_the_splitter(read, write) -> None:
    path = write("a.jsonl", as_json_lines(["Am 3. Mai kam er."]))
    assert len(read(path)) == 2
    assert len(read(path, language="de")) == 1


# --- columns ---


def test_text_column_is_found_or_named(read, write, tmp_path: Path) -> None:
    assert read(write("only.jsonl", as_json_lines(DOCUMENTS, "body"))) == ROWS
    two = {"title": ["A", "B"], "body": DOCUMENTS}
    assert read(write_parquet(tmp_path / "two.parquet", **two), text_column="body") == ROWS
    assert read(write_parquet(tmp_path / "text.parquet", title=["A", "B"], text=DOCUMENTS)) == ROWS
    with pytest.raises(UserError, match="title, body"):
        read(tmp_path / "two.parquet")
    with pytest.raises(UserError, match="no column 'content'; the columns are: title, body"):
        read(tmp_path / "two.parquet", text_column="content")
    with pytest.raises(UserError, match="int64, not text"):
        read(write_parquet(tmp_path / "number.parquet", text=[1, 2]))


# --- damage ---


def test_damaged_lines_are_skipped_and_reported(read, write, caplog: pytest.LogCaptureFixture) -> None:
    path = write("a.txt", b"One.\nbad \xff\nTwo.\n\nbad \xe9t\xe9\nThree.\n")
    assert read(path) == ROWS
    assert f"{path}:2" in caplog.text
    assert f"{path}:5" in caplog.text


def test_damaged_lines_are_refused_if_wanted(read, write) -> None:
    path = write("a.txt.gz", b"One.\n" * 10 + b"ab\xffc\n")
    with pytest.raises(UserError, match=r"a\.txt\.gz:11: not valid UTF-8 at byte 3"):
        read(path, on_bad_line="refuse")
    assert len(read(path)) == 10


def test_damaged_line_numbers_in_later_blocks(
    read, write, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(corpus_sources, "_BYTES_PER_BLOCK", 16)
    path = write("a.txt", b"Line.\n\n" * 50 + b"\xff\n" + b"Line.\n" * 50)
    assert len(read(path)) == 100
    assert f"({path}:101)" in caplog.text


def test_many_damaged_lines_are_counted(read, write, caplog: pytest.LogCaptureFixture) -> None:
    assert read(write("a.txt", "Grüße\n".encode("latin-1") * 1000 + TEXT.encode())) == ROWS
    assert "1000" in caplog.text
    assert ":5, ..." in caplog.text
    assert ":6" not in caplog.text


def test_damaged_line_in_json(read, write, caplog: pytest.LogCaptureFixture) -> None:
    good = as_json_lines(DOCUMENTS).encode().splitlines(keepends=True)
    path = write("a.jsonl", good[0] + b'{"text": "\xff"}\n' + good[1])
    assert read(path) == ROWS
    assert f"{path}:2" in caplog.text


def cut_off(path: Path) -> Path:
    path.write_bytes(path.read_bytes()[:-20])
    return path


def random_text(lines: int) -> str:
    generator = random.Random(0)
    return "".join(f"{generator.random()}\n" for _ in range(lines))


def bad_strings() -> pa.Array:
    return pa.array([b"ok", b"bad \xff"]).view(pa.string())


BAD_INPUT = {
    "missing file": (lambda write, tmp: tmp / "none.txt", "no such file"),
    "no source": (lambda write, tmp: [], "no corpus was named"),
    "unknown ending": (lambda write, tmp: write("a.pdf", "x"), "unknown file ending"),
    "empty folder": (lambda write, tmp: write("folder/readme.md", "x").parent, "no file in this folder"),
    "empty file": (lambda write, tmp: write("a.txt", ""), "corpus is empty"),
    "blank lines only": (lambda write, tmp: write("a.txt", "\n \n\r\n"), "corpus is empty"),
    "nothing but damage": (lambda write, tmp: write("a.txt", b"\xff\n\xfe\n"), "corpus is empty"),
    "UTF-16": (lambda write, tmp: write("a.txt", TEXT.encode("utf-16")), "UTF-16"),
    "cut-off gzip": (lambda write, tmp: cut_off(write("a.txt.gz", random_text(999))), "cut-off"),
    "cut-off xz": (lambda write, tmp: cut_off(write("a.txt.xz", random_text(999))), "cut-off"),
    "not gzip": (lambda write, tmp: write("a.txt", TEXT).rename(tmp / "b.txt.gz"), "damaged"),
    "not xz": (lambda write, tmp: write("a.txt", TEXT).rename(tmp / "b.txt.xz"), "damaged"),
    "not Parquet": (lambda write, tmp: write("a.parquet", TEXT), "cannot be read as Parquet"),
    "not JSON": (lambda write, tmp: write("a.jsonl", as_json_lines(DOCUMENTS) + "{oops}\n"), "a.jsonl:3: not valid"),
    "huge number": (lambda write, tmp: write("a.jsonl", f'{{"text": {"1" * 9999}}}\n'), "a.jsonl:1: not valid JSON"),
    "deep nesting": (lambda write, tmp: write("a.jsonl", "[" * 99999 + "\n"), "a.jsonl:1: not valid JSON"),
    "bad Parquet text": (lambda write, tmp: write_parquet(tmp / "a.parquet", text=bad_strings()), "as Parquet"),
    "not an object": (lambda write, tmp: write("a.jsonl", '{"text": "A."}\n["A."]\n'), "a.jsonl:2: expected a JSON"),
    "not text": (lambda write, tmp: write("a.jsonl", '{"text": "A."}\n{"text": 5}\n'), "a.jsonl:2: column 'text'"),
    "column gone": (
        lambda write, tmp: write("a.jsonl", '{"text": "A."}\n{"b": "c"}\n'),
        "a.jsonl:2: no column 'text'",
    ),
    "no text column": (lambda write, tmp: write("a.jsonl", '{"a": 1}\n'), "which column"),
    "bad hf name": (lambda write, tmp: "hf:a:b:c:d", "expected hf:"),
    "two pipes": (lambda write, tmp: ["-", "-"], "twice"),
}


@pytest.mark.parametrize("name", BAD_INPUT)
def test_bad_input_is_one_clear_line(read, write, tmp_path: Path, name: str) -> None:
    make, message = BAD_INPUT[name]
    with pytest.raises(UserError, match=message) as error:
        read(make(write, tmp_path))
    assert "\n" not in str(error.value)
    assert left_in_cache(tmp_path) == []


def test_bad_option(read, write) -> None:
    with pytest.raises(UserError, match="on_bad_line"):
        read(write("a.txt", TEXT), on_bad_line="ignore")


def test_unwritable_cache(write, tmp_path: Path) -> None:
    blocked = write("a-file", "")
    with pytest.raises(UserError, match="cannot write the corpus"):
        load_corpus(write("a.txt", TEXT), cache_dir=blocked / "cache")


# --- cache ---


def left_in_cache(tmp_path: Path) -> list[str]:
    folder = tmp_path / "cache"
    return sorted(p.name for p in folder.iterdir() if p.suffix != ".lock") if folder.exists() else []


def test_second_call_reads_nothing(read, write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write("a.txt", TEXT)
    read(path)
    (name,) = left_in_cache(tmp_path)
    before = os.stat(tmp_path / "cache" / name).st_mtime_ns
    monkeypatch.setattr(corpus_sources.SourceReader, "read", lambda *_: pytest.fail("was read again"))
    assert read(path) == ROWS
    assert os.stat(tmp_path / "cache" / name).st_mtime_ns == before


def test_changed_content_or_options_are_read_again(read, write, tmp_path: Path) -> None:
    path = write("a.txt", TEXT)
    read(path)
    read(path, on_bad_line="refuse")
    assert len(left_in_cache(tmp_path)) == 2
    path.write_text("Changed.\n")
    assert read(path) == [("Changed.", 0)]


def test_dataset_is_memory_mapped(write, tmp_path: Path) -> None:
    corpus = load_corpus(write("a.txt", TEXT), cache_dir=tmp_path / "cache")
    assert [file["filename"] for file in corpus.cache_files] == [
        str(tmp_path / "cache" / name) for name in left_in_cache(tmp_path)
    ]


def test_interrupt_leaves_nothing_behind(read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = iter([b"One.\n" * 1000, b"Two.\n" * 1000])

    def read_block(size: int) -> bytes:
        for block in blocks:
            return block
        raise KeyboardInterrupt

    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=SimpleNamespace(read=read_block)))
    with pytest.raises(KeyboardInterrupt):
        read("-")
    assert left_in_cache(tmp_path) == []


def test_memory_is_flat(write, tmp_path: Path) -> None:
    path = write("a.txt", ("x" * 400 + "\n") * 150_000)  # 60 MB
    tracemalloc.start()
    corpus = load_corpus(path, cache_dir=tmp_path / "cache")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(corpus) == 150_000
    assert peak < 30e6


# --- windows ---


def corpus_of(lengths: list[int]) -> datasets.Dataset:
    labels = np.repeat(np.arange(len(lengths)), lengths)
    return datasets.Dataset.from_dict({"sentence": [f"s{i}" for i in range(len(labels))], "label": labels})


@pytest.mark.parametrize("window", [2, 3, 7])
@pytest.mark.parametrize("stride", [None, 1, 2, 5, 9])
@pytest.mark.parametrize("rows_per_batch", [3, 16, 1 << 16])
def test_windows_equal_a_plain_loop(
    window: int,
    stride: int | None,
    rows_per_batch: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("mv_st.corpus._ROWS_PER_BATCH", rows_per_batch)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path)
    lengths = np.random.default_rng(window).integers(1, 25, 20).tolist()
    corpus = corpus_of(lengths)
    expected, used, first = [], set(), 0
    for length in lengths:
        for start in range(first, first + length - window + 1, stride or window):
            expected.append([f"s{i}" for i in range(start, start + window)])
            used.update(expected[-1])
        first += length
    with caplog.at_level(logging.INFO):
        windows = window_dataset(corpus, window, stride)
    assert windows.column_names == [f"sentence_{i:02d}" for i in range(window)]
    assert [list(row.values()) for row in windows] == expected
    assert f"{len(expected)} windows" in caplog.text
    assert f"{len(corpus) - len(used)} of {len(corpus)} sentences" in caplog.text


def test_windows_of_a_selection_follow_its_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path)
    selection = corpus_of([4, 4]).select([7, 6, 5, 4, 0, 1])
    assert window_dataset(selection, window=3)[:] == {
        "sentence_00": ["s7"],
        "sentence_01": ["s6"],
        "sentence_02": ["s5"],
    }


def test_windows_are_written_once_beside_the_corpus(write, tmp_path: Path) -> None:
    path = write("a.txt", "\n".join("abcdefgh"))
    first = window_dataset(load_corpus(path, cache_dir=tmp_path / "cache"), window=3)
    second = window_dataset(load_corpus(path, cache_dir=tmp_path / "cache"), window=3)
    assert first.cache_files == second.cache_files
    assert len(left_in_cache(tmp_path)) == 2


def test_window_mistakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path)
    with pytest.raises(UserError, match="no document has 5 sentences in a row \\(the longest has 4\\)"):
        window_dataset(corpus_of([4, 3, 4]), window=5)
    with pytest.raises(UserError, match="at least 2"):
        window_dataset(corpus_of([4]), window=1)
    with pytest.raises(UserError, match="columns sentence and label"):
        window_dataset(datasets.Dataset.from_dict({"text": ["a"]}))
