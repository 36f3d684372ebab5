"""Every reader against a slow literal one, and what each says about damaged files."""

from __future__ import annotations

import gzip
import logging
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_vectors import KNOWN, UNKNOWN, train_fasttext

import mv_st.vector_text
from mv_st.errors import UserError
from mv_st.vectors import WordVectors, load_vectors

ODD_WORDS = [
    "plain", '"', "'quoted",
    'in"side', "\u00a0", "non\u00a0breaking", "\u2028", "\x85", "über", "привет", "你好", "🙂", ",",
    "12", "0.5", "#", "\\", "\x01", "null", "NaN", "N/A", "\ufeffbom", "\u3000",
]  # fmt: skip


def literal_reader(text: bytes, dim: int) -> dict[str, list[float]]:
    """The format as one would explain it: the last `dim` fields of a line are numbers, the rest is the word."""
    vectors: dict[str, list[float]] = {}
    for line in text.split(b"\n"):
        fields = line.rstrip(b" \r").split(b" ")
        if len(fields) > dim:
            vectors.setdefault(b" ".join(fields[:-dim]).decode(), [float(x) for x in fields[-dim:]])
    return vectors


def assert_same(vectors: WordVectors, expected: dict[str, list[float]], dtype: Any = np.float32) -> None:
    assert vectors.words == list(expected)
    assert vectors.matrix.dtype == dtype
    np.testing.assert_array_equal(vectors.matrix, np.array(list(expected.values()), np.float32).astype(dtype))


def text_of(words: list[str], dim: int, line_end: str = "\n", number: str = "%.4f", seed: int = 0) -> bytes:
    rows = np.random.default_rng(seed).normal(size=(len(words), dim))
    lines = (word + " " + " ".join(number % x for x in row) for word, row in zip(words, rows, strict=True))
    return "".join(line + line_end for line in lines).encode()


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few lines, so that borders of blocks are crossed."""
    monkeypatch.setattr(mv_st.vector_text, "_BLOCK_BYTES", 500)


def write(folder: Path, content: bytes, name: str = "x.vec") -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return path


@pytest.mark.usefixtures("small_blocks")
class TestText:
    @pytest.mark.parametrize("name", ["x.vec", "x.txt", "x.vec.gz", "x.txt.gz"])
    @pytest.mark.parametrize("line_end", ["\n", " \n", "\r\n", " \r\n"])
    @pytest.mark.parametrize("header", [True, False])
    def test_equals_the_literal_reader(self, tmp_path: Path, name: str, line_end: str, header: bool) -> None:
        words = ODD_WORDS + [f"word{i}" for i in range(300)]
        text = text_of(words, 7, line_end)
        path = write(tmp_path, f"{len(words)} 7{line_end}".encode() * header + text, name)
        assert_same(load_vectors(path), literal_reader(text, 7))

    @pytest.mark.parametrize("number", ["%.6g", "%.3e", "%+.5f", "%.17g", "%d", "%.0f."])
    def test_forms_of_numbers(self, tmp_path: Path, number: str) -> None:
        text = text_of([f"w{i}" for i in range(200)], 5, number=number)
        assert_same(load_vectors(write(tmp_path, text)), literal_reader(text, 5))

    def test_words_with_spaces(self, tmp_path: Path) -> None:
        words = ["a", ". . .", "b", "at name@domain.com", "1 2", "c", "New York 5", "d"]
        text = text_of(words, 50)
        vectors = load_vectors(write(tmp_path, text, "glove.txt"))
        assert vectors.words == words
        assert_same(vectors, literal_reader(text, 50))

    def test_first_word_with_spaces_does_not_change_the_width(self, tmp_path: Path) -> None:
        text = text_of([". . .", "a", "b"], 4)
        assert load_vectors(write(tmp_path, text, "glove.txt")).words == [". . .", "a", "b"]

    def test_tabs_blank_lines_and_no_line_end_at_the_end(self, tmp_path: Path) -> None:
        vectors = load_vectors(write(tmp_path, b"\n a\t1\t2\n\n\nb  3   4\n \nc 5 6"))
        assert vectors.words == ["a", "b", "c"]
        assert vectors.matrix.tolist() == [[1, 2], [3, 4], [5, 6]]

    def test_one_dimension_and_one_line(self, tmp_path: Path) -> None:
        vectors = load_vectors(write(tmp_path, b"1 1\na 0.5"))
        assert vectors.words == ["a"]
        assert vectors.matrix.tolist() == [[0.5]]

    def test_byte_order_mark(self, tmp_path: Path) -> None:
        assert load_vectors(write(tmp_path, b"\xef\xbb\xbf2 2\na 1 2\nb 3 4\n")).words == ["a", "b"]

    def test_float16(self, tmp_path: Path) -> None:
        text = text_of([f"w{i}" for i in range(100)], 6)
        assert_same(load_vectors(write(tmp_path, text), dtype="float16"), literal_reader(text, 6), np.float16)

    def test_number_too_large_for_float16_names_the_word(self, tmp_path: Path) -> None:
        path = write(tmp_path, b"a 1 2\nb 1e6 2\n")
        assert load_vectors(path).matrix[1, 0] == 1e6
        with pytest.raises(UserError, match="the vector of 'b'"):
            load_vectors(path, dtype="float16")

    def test_duplicates_keep_the_first(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        words = [f"w{i % 70}" for i in range(200)]
        text = text_of(words, 9)
        assert_same(load_vectors(write(tmp_path, text)), literal_reader(text, 9))
        assert [record.getMessage().partition(": ")[2] for record in caplog.records] == [
            "left out 130 repeated words (the first one is 'w0'); the first vector of each counts"
        ]

    def test_max_vocab_stops_before_what_is_damaged(self, tmp_path: Path) -> None:
        text = text_of([f"w{i}" for i in range(2000)], 5)
        path = write(tmp_path, b"2000 5\n" + text + b"damaged\n")
        assert_same(load_vectors(path, max_vocab=30), dict(list(literal_reader(text, 5).items())[:30]))

    def test_only_wanted_words(self, tmp_path: Path) -> None:
        text = text_of([f"w{i}" for i in range(500)] + ["a b"], 5)
        path = write(tmp_path, text)
        wanted = {"w499", "w3", "w4", "w200", "a b", "unknown"}
        expected = {word: row for word, row in literal_reader(text, 5).items() if word in wanted}
        assert_same(load_vectors(path, words=wanted), expected)
        assert load_vectors(path, words=wanted, max_vocab=2).words == ["w3", "w4"]

    def test_header_with_another_number_of_rows(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        text = text_of(["a", "b", "c"], 3)
        assert len(load_vectors(write(tmp_path, b"5 3\n" + text))) == 3
        assert "promises 5 vectors, the file holds 3" in caplog.text
        assert len(load_vectors(write(tmp_path, b"2 3\n" + text))) == 3
        assert "promises 2 vectors, the file holds 3" in caplog.text

    def test_header_that_lies_enormously_needs_no_memory(self, tmp_path: Path) -> None:
        for name in ("x.vec", "x.vec.gz"):
            path = write(tmp_path, b"99999999999999 3\n" + text_of(["a", "b"], 3), name)
            assert len(load_vectors(path)) == 2

    def test_invalid_utf8_is_replaced_and_reported(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        text = text_of([f"w{i}" for i in range(100)], 5) + b"b\xff 1 2 3 4 5\n\xfe 1 2 3 4 5\n"
        vectors = load_vectors(write(tmp_path, b"102 5\n" + text))
        assert vectors.words[-2:] == ["b\ufffd", "\ufffd"]
        assert "2 words are not valid UTF-8 (the first one in line 102)" in caplog.text

    def test_word_that_is_white_space_is_left_out(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        assert load_vectors(write(tmp_path, b"3 2\na 1 2\n  3 4\nb 5 6\n")).words == ["a", "b"]
        assert "left out 1 vectors whose word is only white space" in caplog.text
        assert "promises" not in caplog.text

    @pytest.mark.parametrize(
        ("bad_line", "message"),
        [
            (b"bad 0.1 0.2 0.3 0.4", "4 numbers after the word, expected 5"),
            (b"bad 0.1 0.2 0.3 0.4 0.5 0.6", "6 numbers after the word, expected 5"),
            (b"bad", "0 numbers after the word, expected 5"),
            (b"bad 0.1 0.2 x 0.4 0.5", "'x' is not a finite number"),
            (b"bad 0.1 0.2 1,5 0.4 0.5", "'1,5' is not a finite number"),
            (b"bad 0.1 0.2 nan 0.4 0.5", "'nan' is not a finite number"),
            (b"bad 0.1 0.2 -inf 0.4 0.5", "'-inf' is not a finite number"),
            (b"bad 0.1 0.2 1e99 0.4 0.5", "'1e99' is not a finite number"),
            (b"bad 0.1 0.2\x000.3 0.4 0.5 0.6", "is not a finite number"),
        ],
    )
    @pytest.mark.parametrize("before", [0, 1, 150])
    def test_bad_line_is_named(self, tmp_path: Path, bad_line: bytes, message: str, before: int) -> None:
        good = [f"w{i}" for i in range(before)]
        text = f"{before + 51} 5\n".encode() + text_of(good, 5) + bad_line + b"\n" + text_of(["z"] * 50, 5)
        path = write(tmp_path, text)
        with pytest.raises(UserError) as error:
            load_vectors(path)
        assert str(error.value).startswith(f"{path}, line {before + 2}: ")
        assert message in str(error.value)

    @pytest.mark.parametrize("content", [b"", b"\n \n", b"\xef\xbb\xbf"])
    def test_empty_file(self, tmp_path: Path, content: bytes) -> None:
        with pytest.raises(UserError, match="empty"):
            load_vectors(write(tmp_path, content))

    @pytest.mark.parametrize("content", [b"5 3\n", b"0 3\na 1\n", b"5 0\na\n"])
    def test_header_without_vectors(self, tmp_path: Path, content: bytes) -> None:
        with pytest.raises(UserError, match="line 1: the header says"):
            load_vectors(write(tmp_path, content))

    def test_text_that_is_no_vectors(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="line 1: expected a word and its numbers"):
            load_vectors(write(tmp_path, b"just\nsome\nwords\n"))

    def test_damaged_gzip(self, tmp_path: Path) -> None:
        path = write(tmp_path, text_of([f"w{i}" for i in range(500)], 5), "x.vec.gz")
        whole = path.read_bytes()
        for damaged in (whole[:-500], b"not gzip at all", whole[:200] + b"\0\0\0\0" + whole[204:]):
            path.write_bytes(damaged)
            with pytest.raises(UserError, match="gzip file is damaged"):
                load_vectors(path)

    def test_binary_data_without_lines(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(mv_st.vector_text, "_LONGEST_LINE", 1 << 20)
        with pytest.raises(UserError, match="line 1: longer than 1 MB"):
            load_vectors(write(tmp_path, b"x" * (2 << 20)))

    def test_no_header_and_lines_that_get_shorter(self, tmp_path: Path) -> None:
        """The guess of the number of rows is far too low, so the matrix has to grow."""
        long = text_of([f"{i}" + "long" * 50 for i in range(10)], 3)
        short = text_of([f"w{i}" for i in range(3000)], 3, number="%d")
        assert_same(load_vectors(write(tmp_path, long + short)), literal_reader(long + short, 3))


def word2vec_bytes(words: list[bytes], rows: np.ndarray, newline: bytes) -> bytes:
    vectors = (word + b" " + row.tobytes() + newline for word, row in zip(words, rows, strict=True))
    return f"{len(words)} {rows.shape[1]}\n".encode() + b"".join(vectors)


class TestWord2vecBinary:
    words = ["the", "über", "привет", "你好", "New_York", "🙂"]

    @pytest.fixture
    def rows(self) -> np.ndarray:
        rows = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)
        rows[2, 0] = np.frombuffer(b"\n \n ", dtype="<f4")[0]  # bytes that look like separators
        return rows

    @pytest.mark.parametrize("newline", [b"", b"\n"])
    def test_round_trip(self, tmp_path: Path, rows: np.ndarray, newline: bytes) -> None:
        path = write(tmp_path, word2vec_bytes([word.encode() for word in self.words], rows, newline), "x.bin")
        vectors = load_vectors(path)
        assert vectors.words == self.words
        np.testing.assert_array_equal(vectors.matrix, rows)
        np.testing.assert_array_equal(load_vectors(path, max_vocab=2).matrix, rows[:2])
        np.testing.assert_array_equal(
            load_vectors(path, words={"🙂", "über"}, dtype="float16").matrix, rows[[1, 5]].astype("f2")
        )

    def test_duplicates_and_bad_utf8(self, tmp_path: Path, rows: np.ndarray, caplog: pytest.LogCaptureFixture) -> None:
        path = write(tmp_path, word2vec_bytes([b"a", b"b", b"a", b"\xff", b"c", b"b"], rows, b"\n"), "x.bin")
        vectors = load_vectors(path)
        assert vectors.words == ["a", "b", "\ufffd", "c"]
        np.testing.assert_array_equal(vectors.matrix, rows[[0, 1, 3, 4]])
        assert "left out 2 repeated words" in caplog.text
        assert "first one in vector 4" in caplog.text

    def test_agrees_with_gensim(self, tmp_path: Path, rows: np.ndarray) -> None:
        keyed_vectors = pytest.importorskip("gensim.models").KeyedVectors(5)
        keyed_vectors.add_vectors(self.words, rows)
        for name, binary in (("x.bin", True), ("x.vec", False)):
            keyed_vectors.save_word2vec_format(str(tmp_path / name), binary=binary)
            vectors = load_vectors(tmp_path / name)
            assert vectors.words == self.words
            np.testing.assert_array_equal(vectors.matrix, rows)

    def test_damaged(self, tmp_path: Path, rows: np.ndarray) -> None:
        whole = word2vec_bytes([word.encode() for word in self.words], rows, b"\n")
        for content, message in (
            (whole[:-10], "cut off in vector 6 of 6"),
            (whole.replace(b"6 5", b"7 5", 1), "cut off in vector 7 of 7"),
            (b"", "empty"),
            (b"hello world\n" + whole, "neither a word2vec nor a fastText file"),
            (b"\x80\x04" * 100, "neither a word2vec nor a fastText file"),
            (b"0 5\n", "nothing to load"),
        ):
            with pytest.raises(UserError, match=message):
                load_vectors(write(tmp_path, content, "x.bin"))

    def test_nan_names_the_word(self, tmp_path: Path, rows: np.ndarray) -> None:
        rows[3, 1] = np.nan
        path = write(tmp_path, word2vec_bytes([word.encode() for word in self.words], rows, b"\n"), "x.bin")
        with pytest.raises(UserError, match="'你好'"):
            load_vectors(path)


class TestFastTextBinary:
    @pytest.fixture(scope="class", params=["skipgram", "cbow"])
    def model(self, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
        folder = tmp_path_factory.mktemp("fasttext")
        model = train_fasttext(folder, model=request.param)
        model.save_model(str(folder / "model.bin"))
        return model, folder / "model.bin"

    def test_words_vectors_and_counts(self, model: tuple[Any, Path]) -> None:
        original, path = model
        vectors = load_vectors(path)
        assert vectors.words == original.get_words()
        assert vectors.counts is not None
        assert vectors.counts.tolist() == original.get_words(include_freq=True)[1].tolist()
        expected = np.stack([original.get_word_vector(word) for word in vectors.words])
        np.testing.assert_allclose(vectors.matrix, expected, atol=1e-6)

    def test_unknown_words_from_subwords(self, model: tuple[Any, Path]) -> None:
        original, path = model
        table = load_vectors(path).subwords
        assert table is not None
        for word in UNKNOWN:
            if rows := table.rows(word):
                np.testing.assert_allclose(table.matrix[rows].mean(axis=0), original.get_word_vector(word), atol=1e-6)

    def test_options(self, model: tuple[Any, Path]) -> None:
        original, path = model
        everything = load_vectors(path)
        half = load_vectors(path, dtype="float16", max_vocab=5)
        assert half.words == original.get_words()[:5]
        assert half.subwords is not None
        assert half.subwords.matrix.dtype == np.float16
        np.testing.assert_array_equal(half.matrix, everything.matrix[:5].astype(np.float16))
        some = load_vectors(path, words={"cat", "мир"}, subwords=False)
        assert some.subwords is None
        assert set(some.words) == {"cat", "мир"}
        for word, row, count in zip(some.words, some.matrix, some.counts, strict=True):
            position = everything.words.index(word)
            np.testing.assert_allclose(row, everything.matrix[position], atol=1e-6)
            assert count == everything.counts[position]

    def test_without_subwords(self, tmp_path: Path) -> None:
        original = train_fasttext(tmp_path, maxn=0)
        original.save_model(str(tmp_path / "model.bin"))
        vectors = load_vectors(tmp_path / "model.bin")
        assert vectors.subwords is None
        np.testing.assert_array_equal(vectors.matrix[3], original.get_word_vector(vectors.words[3]))

    def test_supervised_leaves_labels_out_and_quantised_is_refused(self, tmp_path: Path) -> None:
        import fasttext

        lines = "\n".join(f"__label__{'ab'[i % 2]} " + " ".join(KNOWN[i % 7 :]) for i in range(200))
        (tmp_path / "labelled.txt").write_text(lines, encoding="utf-8")
        original = fasttext.train_supervised(
            str(tmp_path / "labelled.txt"), dim=4, minn=2, maxn=4, bucket=300, thread=11, epoch=1, verbose=0
        )
        path = tmp_path / "model.bin"
        original.save_model(str(path))
        vectors = load_vectors(path)
        assert sorted(vectors.words) == sorted([*KNOWN, "</s>"])
        np.testing.assert_allclose(vectors.matrix[2], original.get_word_vector(vectors.words[2]), atol=1e-6)
        original.quantize()
        original.save_model(str(path))
        with pytest.raises(UserError, match="quantised"):
            load_vectors(path)

    def test_damaged(self, model: tuple[Any, Path], tmp_path: Path) -> None:
        whole = model[1].read_bytes()
        for length in (4, 40, 100, 300, 2000):
            with pytest.raises(UserError, match="damaged or cut off"):
                load_vectors(write(tmp_path, whole[:length], "x.bin"))
        with pytest.raises(UserError, match="version 99 is unknown"):
            load_vectors(write(tmp_path, whole[:4] + struct.pack("<i", 99) + whole[8:], "x.bin"))


class TestNpy:
    rows = np.arange(12, dtype=np.float64).reshape(4, 3)

    @pytest.mark.parametrize("suffix", [".txt", ".words"])
    def test_round_trip(self, tmp_path: Path, suffix: str) -> None:
        np.save(tmp_path / "x.npy", self.rows)
        (tmp_path / f"x{suffix}").write_bytes("a\r\nnew york\nб\n\u2028\n".encode())
        vectors = load_vectors(tmp_path / "x.npy")
        assert vectors.words == ["a", "new york", "б", "\u2028"]
        np.testing.assert_array_equal(vectors.matrix, self.rows)
        assert vectors.matrix.dtype == np.float32
        assert load_vectors(tmp_path / "x.npy", words=["б"], dtype="float16").matrix.tolist() == [[6, 7, 8]]

    def test_wrong_files(self, tmp_path: Path) -> None:
        path = tmp_path / "x.npy"
        np.save(path, self.rows)
        with pytest.raises(UserError, match="no word list beside it"):
            load_vectors(path)
        (tmp_path / "x.txt").write_text("a\nb\n")
        with pytest.raises(UserError, match="2 words for the 4 vectors"):
            load_vectors(path)
        for content in (np.arange(3.0), np.ones((2, 2), int), np.array(["a", {}], dtype=object)):
            np.save(path, content, allow_pickle=True)
            with pytest.raises(UserError, match=r"x\.npy: "):
                load_vectors(path)
        path.write_bytes(b"nonsense")
        with pytest.raises(UserError, match="not an array"):
            load_vectors(path)


def test_nothing_peculiar_is_not_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    load_vectors(write(tmp_path, b"2 2\na 1 2\nb 3 4\n"))
    assert caplog.records == []
