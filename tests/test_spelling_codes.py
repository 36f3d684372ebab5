"""Codes of the spelling of words beside their vectors."""

from __future__ import annotations

import numpy as np
import pytest

from mv_st import add_spelling, add_spelling_codes, build_model
from mv_st.errors import UserError
from mv_st.vectors import WordVectors

WORDS = ["walk", "walked", "walking", "sing", "ocean", ",", "sang"]
SIZE = 64


@pytest.fixture(scope="module")
def vectors() -> WordVectors:
    matrix = np.random.default_rng(0).normal(size=(len(WORDS), 8)).astype(np.float32)
    return add_spelling(WordVectors(WORDS, matrix))


@pytest.fixture(scope="module")
def coded(vectors: WordVectors) -> WordVectors:
    return add_spelling_codes(vectors, SIZE)


def test_vectors_stay_in_front(vectors: WordVectors, coded: WordVectors) -> None:
    assert coded.words == vectors.words
    assert coded.dim == vectors.dim + SIZE == coded.subwords.dim
    np.testing.assert_array_equal(coded.matrix[:, : vectors.dim], vectors.matrix)
    np.testing.assert_array_equal(coded.subwords.matrix[:, : vectors.dim], vectors.subwords.matrix)


def test_code_is_the_direction_of_the_mean_of_the_ngrams(coded: WordVectors) -> None:
    table = coded.subwords
    for word, row in zip(coded.words, coded.matrix, strict=True):
        expected = np.mean([table.matrix[bucket, 8:] for bucket in table.rows(word)], axis=0)
        if word == ",":
            assert not expected.any()
            assert not row[8:].any()
        else:
            cosine = row[8:] @ expected / np.linalg.norm(row[8:]) / np.linalg.norm(expected)
            assert cosine == pytest.approx(1, abs=1e-5)


def test_codes_are_as_long_as_vectors(vectors: WordVectors, coded: WordVectors) -> None:
    has_code = [word != "," for word in WORDS]
    lengths = np.linalg.norm(coded.matrix[has_code, 8:], axis=1)
    np.testing.assert_allclose(lengths, np.linalg.norm(vectors.matrix[has_code], axis=1).mean(), rtol=1e-5)


def test_words_are_alike_as_far_as_they_are_spelt_alike(coded: WordVectors) -> None:
    codes = dict(zip(coded.words, coded.matrix[:, 8:] / np.linalg.norm(coded.matrix[0, 8:]), strict=True))
    assert codes["walk"] @ codes["walked"] > codes["walk"] @ codes["ocean"] + 0.3
    assert abs(codes["sing"] @ codes["ocean"]) < 0.4


def test_unknown_words_have_codes_too(coded: WordVectors) -> None:
    model = build_model(coded, hidden_size=8, views=("linear",), oov="subword", seed=0)
    first, again, other = model.encode(["walks", "walks", "harbour"])
    np.testing.assert_array_equal(first, again)
    assert first @ model.encode("walk") > first @ other


def test_half_precision_stays(vectors: WordVectors) -> None:
    half = WordVectors(vectors.words, vectors.matrix.astype(np.float16), vectors.subwords)
    assert add_spelling_codes(half, 4).matrix.dtype == np.float16


def test_seed_decides(vectors: WordVectors, coded: WordVectors) -> None:
    np.testing.assert_array_equal(add_spelling_codes(vectors, SIZE).matrix, coded.matrix)
    assert not np.array_equal(add_spelling_codes(vectors, SIZE, seed=1).matrix, coded.matrix)


def test_bad_input() -> None:
    plain = WordVectors(["a"], np.ones((1, 2), np.float32))
    with pytest.raises(UserError, match="add_spelling first"):
        add_spelling_codes(plain, 4)
    with pytest.raises(UserError, match="at least 1"):
        add_spelling_codes(add_spelling(plain), 0)
