"""Vectors of unknown words from their spelling."""

from __future__ import annotations

import numpy as np
import pytest

from mv_st import add_spelling, build_model
from mv_st.errors import UserError
from mv_st.spelling import _ridge_regression, averaging_matrix
from mv_st.subwords import SubwordTable
from mv_st.vectors import WordVectors

STEMS = ["walk", "talk", "jump", "climb", "paint", "plant", "melt", "rent"]
ENDINGS = ["", "s", "ed", "ing", "er", "ers"]
UNSEEN = ["walkers", "paints", "renting"]


@pytest.fixture(scope="module")
def regular() -> tuple[WordVectors, dict[str, np.ndarray]]:
    """Words whose vectors are the sum of a stem's and an ending's, and the vectors of some that are left out."""
    rng = np.random.default_rng(0)
    stems, endings = rng.normal(size=(len(STEMS), 20)), 0.5 * rng.normal(size=(len(ENDINGS), 20))
    all_words = {
        stem + ending: (stems[i] + endings[j]).astype(np.float32)
        for i, stem in enumerate(STEMS)
        for j, ending in enumerate(ENDINGS)
    }
    known = {word: vector for word, vector in all_words.items() if word not in UNSEEN}
    unseen = {word: all_words[word] for word in UNSEEN}
    return WordVectors(list(known), np.stack(list(known.values()))), unseen


def spelt(table: SubwordTable, word: str) -> np.ndarray:
    return table.matrix[table.rows(word)].mean(axis=0)


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def test_unknown_words_resemble_words_that_are_spelt_like_them(regular: tuple) -> None:
    vectors, unseen = regular
    table = add_spelling(vectors).subwords
    for word, expected in unseen.items():
        assert cosine(spelt(table, word), expected) > 0.7
    # Nothing in common with any known word: still a vector of its own, the same every time.
    assert np.linalg.norm(spelt(table, "Qvxzqh")) > 0
    assert abs(cosine(spelt(table, "qvxzqh"), spelt(table, "wjjfkw"))) < 0.7


def test_the_fit_is_a_ridge_regression(regular: tuple) -> None:
    vectors, _ = regular
    table = SubwordTable(np.zeros((300, 20), np.float32), 3, 5, None, 300)
    averaging = np.zeros((len(vectors), 300))
    for i, word in enumerate(vectors.words):
        rows = table.rows(word)
        for row in rows:
            averaging[i, row] += 1 / len(rows)
    sparse = averaging_matrix(table, vectors.words)
    assert np.allclose(sparse.toarray(), averaging)
    expected = np.linalg.solve(averaging.T @ averaging + 0.05 * np.eye(300), averaging.T @ vectors.matrix)
    assert np.allclose(_ridge_regression(sparse, vectors.matrix, 0.05, 100), expected, atol=1e-4)


def test_punctuation_stays_zero_and_known_words_are_untouched(regular: tuple) -> None:
    vectors, _ = regular
    completed = add_spelling(vectors)
    assert all(not spelt(completed.subwords, mark).any() for mark in ",.!?;:()")
    assert completed.words == vectors.words
    assert completed.matrix is vectors.matrix


def test_the_same_seed_gives_the_same_table(regular: tuple) -> None:
    vectors, _ = regular
    first, again, other = (add_spelling(vectors, seed=seed).subwords.matrix for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_a_table_of_the_vectors_own_is_kept(regular: tuple) -> None:
    vectors, _ = regular
    own = SubwordTable(np.ones((10, 20), np.float32), 3, 6, None, 10)
    with_own = WordVectors(vectors.words, vectors.matrix, subwords=own)
    assert add_spelling(with_own).subwords is own


def test_half_precision_vectors(regular: tuple) -> None:
    vectors, unseen = regular
    half = WordVectors(vectors.words, vectors.matrix.astype(np.float16))
    table = add_spelling(half).subwords
    assert cosine(spelt(table, "paints"), unseen["paints"]) > 0.7


def test_a_model_tells_unknown_words_apart(regular: tuple) -> None:
    vectors, _ = regular
    model = build_model(add_spelling(vectors), hidden_size=8, oov="subword", views=("linear",), seed=0)
    paints, renting, comma = model.encode(["paints", "renting", ","])
    assert cosine(paints, renting) < 0.9
    assert not comma.any()


@pytest.mark.parametrize("wrong", [{"n_buckets": 0}, {"ridge": 0.0}, {"min_n": 5, "max_n": 3}])
def test_bad_arguments(regular: tuple, wrong: dict) -> None:
    with pytest.raises(UserError):
        add_spelling(regular[0], **wrong)
