"""The data types, and the n-gram table against the real fastText."""

from __future__ import annotations

import copy
import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mv_st.errors import UserError
from mv_st.subwords import character_ngrams, fnv1a, ngram_buckets
from mv_st.vectors import SubwordTable, WordVectors, load_vectors

fasttext = pytest.importorskip("fasttext")

KNOWN = [
    "schön",
    "straße",
    "größe",
    "Über",
    "привет",
    "мир",
    "книга",
    "你好",
    "世界",
    "🙂",
    "👩‍👩‍👧",
    "cat",
    "dog",
    "house",
    "tree",
    "a",
    "bb",
    "naïve",
]
UNKNOWN = ["hund", "Schlösser", "неизвестный", "未知的词", "🙃🙂", "x", "é", "", "<", "a>b", "</s>", "ａ\u00a0b"]


def train_fasttext(folder: Path, **options: Any) -> Any:
    """A tiny real model; eleven threads, because fewer leave part of it uninitialised."""
    chance = random.Random(0)
    corpus = folder / "corpus.txt"
    corpus.write_text("\n".join(" ".join(chance.choices(KNOWN, k=12)) for _ in range(300)), encoding="utf-8")
    options = {"dim": 8, "minCount": 1, "bucket": 3000, "thread": 11, "epoch": 1, "verbose": 0} | options
    return fasttext.train_unsupervised(str(corpus), **options)


@pytest.fixture(scope="module", params=[(3, 6), (1, 4), (2, 2)], ids=str)
def model_and_table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    min_n, max_n = request.param
    model = train_fasttext(tmp_path_factory.mktemp("fasttext"), minn=min_n, maxn=max_n)
    buckets = model.get_input_matrix()[len(model.words) :]
    return model, SubwordTable(buckets, min_n, max_n, None, len(buckets))


class TestSubwordTable:
    @pytest.mark.parametrize("word", [*KNOWN, *UNKNOWN])
    def test_rows_are_those_of_fasttext(self, model_and_table: tuple[Any, SubwordTable], word: str) -> None:
        model, table = model_and_table
        n_words = len(model.words)
        expected = [i - n_words for i in model.get_subwords(word)[1] if i >= n_words]
        assert table.rows(word) == expected

    @pytest.mark.parametrize("word", [word for word in UNKNOWN if word != "</s>"])
    def test_mean_of_rows_is_the_vector_of_an_unknown_word(
        self, model_and_table: tuple[Any, SubwordTable], word: str
    ) -> None:
        model, table = model_and_table
        rows = table.rows(word)
        mean = table.matrix[rows].mean(axis=0) if rows else np.zeros(8)
        np.testing.assert_allclose(mean, model.get_word_vector(word), atol=1e-7)

    def test_many_words_at_once_equal_one_by_one(self, model_and_table: tuple[Any, SubwordTable]) -> None:
        _, table = model_and_table
        words = [*UNKNOWN, *KNOWN]
        rows, starts = table.bags(words)
        assert len(starts) == len(words) + 1
        for i, word in enumerate(words):
            assert rows[starts[i] : starts[i + 1]].tolist() == table.rows(word), word

    def test_pruned_table_keeps_the_vectors_of_its_buckets_and_no_others(
        self, model_and_table: tuple[Any, SubwordTable]
    ) -> None:
        _, full = model_and_table
        kept = np.unique(full.bags(KNOWN)[0])[::2]
        pruned = SubwordTable(full.matrix[kept], full.min_n, full.max_n, kept, full.n_buckets)
        rows, starts = pruned.bags([*KNOWN, *UNKNOWN])
        for i, word in enumerate([*KNOWN, *UNKNOWN]):
            expected = full.matrix[[row for row in full.rows(word) if row in kept]]
            np.testing.assert_array_equal(pruned.matrix[pruned.rows(word)], expected)
            assert rows[starts[i] : starts[i + 1]].tolist() == pruned.rows(word)

    def test_empty_pruned_table_has_no_rows(self) -> None:
        table = SubwordTable(np.empty((0, 4), np.float32), 3, 6, np.empty(0, np.int64), 100)
        assert table.rows("word") == []
        assert table.bags(["word", ""])[1].tolist() == [0, 0, 0]

    def test_no_words(self) -> None:
        rows, starts = ngram_buckets([], 3, 6, 100)
        assert rows.tolist() == []
        assert starts.tolist() == [0]

    def test_hash_of_bytes_above_127_is_sign_extended(self) -> None:
        # Plain FNV-1a would give another value; ASCII values are those of the published algorithm.
        assert fnv1a(b"a") == 0xE40C292C
        assert (
            fnv1a("é".encode())
            == ((((2166136261 ^ 0xFFFFFFC3) * 16777619 & 0xFFFFFFFF) ^ 0xFFFFFFA9) * 16777619) & 0xFFFFFFFF
        )

    def test_ngrams_are_counted_in_characters(self) -> None:
        assert [ngram.decode() for ngram in character_ngrams("<äß>".encode(), 3, 3)] == ["<äß", "äß>"]

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"matrix": np.zeros(4, np.float32)}, "two dimensions"),
            ({"matrix": np.zeros((3, 2), np.float32)}, "3 rows for 4 buckets"),
            ({"min_n": 0}, "min_n <= max_n"),
            ({"bucket_ids": np.array([1, 1, 2, 3])}, "sorted and unique"),
            ({"matrix": np.full((4, 2), np.nan, np.float32)}, "subword row 0"),
        ],
    )
    def test_wrong_input_is_refused(self, change: dict[str, Any], message: str) -> None:
        good = {"matrix": np.zeros((4, 2), np.float32), "min_n": 3, "max_n": 6, "bucket_ids": None, "n_buckets": 4}
        SubwordTable(**good)
        with pytest.raises(UserError, match=message):
            SubwordTable(**(good | change))


class TestWordVectors:
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"words": ["a"]}, "does not fit 1 words"),
            ({"words": ["a", "a"]}, "'a' occurs twice"),
            ({"matrix": np.zeros((2, 3))}, "float32 or float16, not float64"),
            ({"matrix": np.zeros((2, 0), np.float32)}, "at least one dimension"),
            ({"matrix": np.array([[0, 1, 2], [0, np.inf, 1]], np.float32)}, r"'b' \(row 1\)"),
            ({"matrix": np.array([[0, 1, np.nan], [0, np.inf, 1]], np.float16)}, r"'a' \(row 0\)"),
            ({"counts": np.array([1])}, "1 counts do not fit 2 words"),
            ({"subwords": SubwordTable(np.zeros((4, 2), np.float32), 3, 6, None, 4)}, "2 wide, word vectors 3"),
        ],
    )
    def test_wrong_input_is_refused(self, change: dict[str, Any], message: str) -> None:
        good = {"words": ["a", "b"], "matrix": np.ones((2, 3), np.float32)}
        WordVectors(**good)
        with pytest.raises(UserError, match=message):
            WordVectors(**(good | change))

    def test_names_the_bad_row_behind_the_first_block_of_the_check(self) -> None:
        matrix = np.zeros((70_000, 1), np.float16)
        matrix[69_999] = np.nan
        with pytest.raises(UserError, match=r"'w69999' \(row 69999\)"):
            WordVectors([f"w{i}" for i in range(70_000)], matrix)

    def test_survives_pickle_and_copy(self) -> None:
        table = SubwordTable(np.ones((4, 3), np.float32), 3, 6, None, 4)
        vectors = WordVectors(["a", "b"], np.ones((2, 3), np.float32), table, np.array([2, 1]))
        for twin in (pickle.loads(pickle.dumps(vectors)), copy.deepcopy(vectors)):
            assert twin.words == vectors.words
            assert twin.subwords.rows("ab") == table.rows("ab")


class TestLoadVectors:
    def test_missing_file(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match=r"nothing\.vec: no such file"):
            load_vectors(tmp_path / "nothing.vec")

    def test_folder(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="a folder"):
            load_vectors(tmp_path)

    @pytest.mark.parametrize("name", ["model.ftz", "GoogleNews.bin.gz", "vectors"])
    def test_unknown_kind(self, tmp_path: Path, name: str) -> None:
        (tmp_path / name).write_bytes(b"1 1\na 1\n")
        with pytest.raises(UserError, match="unknown kind of file"):
            load_vectors(tmp_path / name)

    def test_wrong_options(self, tmp_path: Path) -> None:
        path = tmp_path / "x.vec"
        path.write_text("a 1 2\n")
        with pytest.raises(UserError, match="dtype"):
            load_vectors(path, dtype="float64")  # type: ignore[arg-type]
        with pytest.raises(UserError, match="max_vocab"):
            load_vectors(path, max_vocab=0)

    def test_none_of_the_wanted_words(self, tmp_path: Path) -> None:
        path = tmp_path / "x.vec"
        path.write_text("a 1 2\n")
        with pytest.raises(UserError, match="holds none of the 2 words"):
            load_vectors(path, words=["b", "c"])
