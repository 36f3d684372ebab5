"""Untrained baselines against the same computed word by word, with weights by hand and components by a full SVD."""

from __future__ import annotations

import math
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from mv_st import build_model, fit_components
from mv_st.components import encode_transductive, removal_module
from mv_st.errors import UserError
from mv_st.evaluation.baselines import (
    all_but_the_top,
    average,
    count_words,
    random_gru,
    random_projection,
    sif,
    tfidf_average,
    untrained_baselines,
    usif,
    word_embedding,
)
from mv_st.vectors import WordVectors, load_vectors

# No clitics among them, so that a short regular expression splits text as the tokeniser does.
WORDS = [
    *("the", "a", "cat", "dog", "bird", "sat", "ran", "flew", "on", "under", "over", "mat", "tree", "house", "and"),
    *("it", "was", "very", "happy", "sad", "today", "yesterday", "sky", "is", "blue", "red", ".", ",", "!", "?"),
    *("do", "does", "not", "can", "café"),
]

SENTENCES = [
    "The cat sat on the mat.",
    "A dog ran under the tree, and it was very happy!",
    "Yesterday the sky was blue.",
    "The bird flew over the red house.",
    "It does not sit on a tree today.",
    "Was the dog sad?",
    "The happy bird and the sad cat.",
    "Red sky, blue house.",
    "Is it the café of the cat, is it not?",
    "A cat!",
    "They know Paris or the US in May.",
    "The dog can not do it, and the red cat can.",
]


def word_vectors(dim: int = 10) -> WordVectors:
    """Random vectors; the shift gives all sentences a common direction, as real vectors have."""
    return WordVectors(WORDS, (np.random.default_rng(0).normal(size=(len(WORDS), dim)) + 0.5).astype(np.float32))


@pytest.fixture
def vectors() -> WordVectors:
    return word_vectors()


def split(sentence: str) -> list[str]:
    return re.findall(r"\w+|[^\w\s]", sentence.lower())


def literal_average(vectors: WordVectors, sentences: list[str], weight: dict[str, float] | None = None) -> np.ndarray:
    """Weighted mean over all words, unknown ones being zero, by loops."""
    table = dict(zip(vectors.words, vectors.matrix.astype(np.float64), strict=True))
    rows = []
    for sentence in sentences:
        total = np.zeros(vectors.dim)
        for word in split(sentence):
            if word in table:
                total = total + (1.0 if weight is None else weight[word]) * table[word]
        rows.append(total / len(split(sentence)))
    return np.array(rows)


def without_top(rows: np.ndarray, fitted_on: np.ndarray, n_components: int) -> np.ndarray:
    top = np.linalg.svd(fitted_on, full_matrices=False)[2][:n_components]
    for component in top:
        rows = rows - np.outer(rows @ component, component)
    return rows


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


def word_counts() -> Counter[str]:
    return Counter(word for sentence in SENTENCES for word in split(sentence))


def frequencies(vectors: WordVectors) -> dict[str, float]:
    counts = word_counts()
    return {word: counts[word] / sum(counts.values()) for word in vectors.words}


def assert_same(model: SentenceTransformer, expected: np.ndarray, sentences: list[str] | None = None) -> None:
    found = model.encode(sentences or SENTENCES)
    np.testing.assert_allclose(found, unit(expected), atol=1e-4)


def test_words_are_counted(vectors: WordVectors) -> None:
    words = word_embedding(vectors)
    counted = count_words(words, SENTENCES)
    expected = word_counts()
    for row, word in enumerate(vectors.words, start=1):
        assert counted.counts[row] == expected[word]
        assert counted.sentences_with[row] == sum(word in split(sentence) for sentence in SENTENCES)
    assert counted.counts[0] == sum(count for word, count in expected.items() if word not in vectors.words)
    assert counted.n_sentences == len(SENTENCES)
    assert counted.mean_length == sum(expected.values()) / len(SENTENCES)


def test_average(vectors: WordVectors) -> None:
    assert_same(average(vectors), literal_average(vectors, SENTENCES))


@pytest.mark.parametrize("n_components", [1, 3])
def test_components_are_stored_or_transductive(vectors: WordVectors, n_components: int) -> None:
    fitted_on, new = SENTENCES[:8], SENTENCES[8:]
    model = average(vectors, n_components, fit_sentences=fitted_on)
    on_corpus = literal_average(vectors, fitted_on)
    rows = literal_average(vectors, new)
    assert_same(model, without_top(rows, on_corpus, n_components), new)
    found = encode_transductive(model, new, n_components)
    np.testing.assert_allclose(found, unit(without_top(rows, rows, n_components)), atol=1e-4)


def test_tfidf(vectors: WordVectors) -> None:
    weight = {
        word: math.log((1 + len(SENTENCES)) / (1 + sum(word in split(sentence) for sentence in SENTENCES)))
        for word in vectors.words
    }
    assert_same(tfidf_average(vectors, SENTENCES), literal_average(vectors, SENTENCES, weight))


@pytest.mark.parametrize("n_components", [0, 1, 5])
def test_sif(vectors: WordVectors, n_components: int) -> None:
    weight = {word: 0.02 / (0.02 + p) for word, p in frequencies(vectors).items()}
    rows = literal_average(vectors, SENTENCES, weight)
    counts = count_words(word_embedding(vectors), SENTENCES).counts
    model = sif(vectors, counts, n_components, a=0.02, fit_sentences=SENTENCES)
    assert_same(model, without_top(rows, rows, n_components))


def test_sif_takes_counts_by_word(vectors: WordVectors) -> None:
    counts = {word: count for word, count in word_counts().items() if word in vectors.words}
    total = sum(counts.values())
    weight = {word: 1e-3 / (1e-3 + counts.get(word, 0) / total) for word in vectors.words}
    assert_same(sif(vectors, counts), literal_average(vectors, SENTENCES, weight))


def test_without_sentences_nothing_is_removed_until_components_are_fitted(vectors: WordVectors) -> None:
    counts = count_words(word_embedding(vectors), SENTENCES).counts
    later = fit_components(sif(vectors, counts, 2), SENTENCES, 2)
    at_once = sif(vectors, counts, 2, fit_sentences=SENTENCES)
    np.testing.assert_allclose(later.encode(SENTENCES), at_once.encode(SENTENCES), atol=1e-6)
    assert not np.allclose(sif(vectors, counts, 2).encode(SENTENCES), at_once.encode(SENTENCES), atol=0.01)


def literal_usif_weights(vectors: WordVectors, sentence_length: float) -> dict[str, float]:
    p = frequencies(vectors)
    seen = [value for value in p.values() if value > 0]
    threshold = 1 - (1 - 1 / len(seen)) ** sentence_length
    alpha = sum(value > threshold for value in seen) / len(seen)
    a = (1 - alpha) / (alpha * 0.5 * len(seen))
    return {word: a / (0.5 * a + (value or min(seen))) for word, value in p.items()}


def test_usif_removes_a_share_of_each_component(vectors: WordVectors) -> None:
    rows = literal_average(vectors, SENTENCES, literal_usif_weights(vectors, 3.0))
    _, sizes, components = np.linalg.svd(rows, full_matrices=False)
    expected = rows
    for i in range(4):
        share = sizes[i] ** 2 / (sizes[:4] ** 2).sum()
        expected = expected - share * np.outer(expected @ components[i], components[i])
    counts = count_words(word_embedding(vectors), SENTENCES).counts
    model = usif(vectors, counts, sentence_length=3.0, n_components=4, fit_sentences=SENTENCES)
    assert_same(model, expected)
    # Transductive: whole components, as for any other model.
    found = encode_transductive(model, SENTENCES, 4)
    np.testing.assert_allclose(found, unit(without_top(rows, rows, 4)), atol=1e-4)


def test_usif_without_frequent_words_is_the_average(vectors: WordVectors) -> None:
    assert_same(usif(vectors, dict.fromkeys(vectors.words, 1)), literal_average(vectors, SENTENCES))


def test_usif_needs_counts(vectors: WordVectors) -> None:
    with pytest.raises(UserError, match="none of the words"):
        usif(vectors, {})


def test_all_but_the_top(vectors: WordVectors) -> None:
    matrix = vectors.matrix.astype(np.float64)
    centred = matrix - matrix.mean(axis=0)
    processed = WordVectors(vectors.words, without_top(centred, centred, 2).astype(np.float32))
    assert_same(all_but_the_top(vectors, n_word_components=2), literal_average(processed, SENTENCES))


def test_all_but_the_top_removes_a_hundredth_and_leaves_the_given_vectors_alone() -> None:
    vectors = word_vectors(dim=200)
    words = word_embedding(vectors)
    before = words.vectors.clone()
    removed = all_but_the_top(words)[0].vectors[1:]
    assert torch.equal(words.vectors, before)
    assert torch.linalg.matrix_rank(before[1:] - before[1:].mean(dim=0)) - torch.linalg.matrix_rank(removed) == 2


def test_all_but_the_top_treats_unknown_words_alike(fasttext_file: tuple[Path, object]) -> None:
    vectors = load_vectors(fasttext_file[0])
    plain, processed = average(vectors), all_but_the_top(vectors, n_word_components=2)
    assert plain[0].oov == "subword"
    matrix = vectors.matrix.astype(np.float64)
    mean = matrix.mean(axis=0)
    # The vector of an unknown word, before it is normalised.
    assert vectors.subwords is not None
    unknown = vectors.subwords.matrix[vectors.subwords.rows("catdog")].mean(axis=0)
    assert_same(plain, unknown[None], ["catdog"])
    assert_same(processed, without_top((unknown - mean)[None], matrix - mean, 2), ["catdog"])


def test_unknown_words_with_subwords_weigh_as_much_as_the_rarest(fasttext_file: tuple[Path, object]) -> None:
    vectors = load_vectors(fasttext_file[0])
    counts = count_words(word_embedding(vectors), ["catdog " * 50, "the cat"]).counts
    assert counts[0] == 50
    weights = sif(vectors, counts)[1].word_weights
    assert weights[0] == weights[1:].max()


@pytest.mark.parametrize(("make", "view"), [(random_gru, "gru"), (random_projection, "linear")])
def test_random_views_are_those_of_an_untrained_model(vectors: WordVectors, make: object, view: str) -> None:
    model = make(vectors, hidden_size=5, seed=3)  # type: ignore[operator]
    expected = build_model(vectors, hidden_size=5, views=(view,), seed=3)
    np.testing.assert_array_equal(model.encode(SENTENCES), expected.encode(SENTENCES))
    state = torch.get_rng_state()
    other = make(vectors, hidden_size=5, seed=4)  # type: ignore[operator]
    assert torch.equal(torch.get_rng_state(), state)
    assert not np.allclose(model.encode(SENTENCES), other.encode(SENTENCES), atol=0.01)


def test_all_of_them(vectors: WordVectors, tmp_path: Path) -> None:
    corpus = SENTENCES * 3
    models = untrained_baselines(vectors, corpus, hidden_size=4)
    assert len(models) == 17
    for name, model in models.items():
        n_components = int(name.rpartition("-")[2]) if name[-1].isdigit() else 0
        removal = removal_module(model)
        assert removal.n_components == n_components, name
        assert removal.whitening == (0.5 if "whitened" in name else 0.0), name
        for view in removal.widths:
            assert removal.components(view).norm() > 0.9 if n_components else True, name
        assert model.encode(SENTENCES, representation="transfer").shape[1] == removal.widths[view]["transfer"]
    assert models["sif-1"][0] is models["average"][0], "the table is held once"

    models["usif-5"].save_pretrained(str(tmp_path))
    again = SentenceTransformer(str(tmp_path))
    np.testing.assert_array_equal(again.encode(SENTENCES), models["usif-5"].encode(SENTENCES))
