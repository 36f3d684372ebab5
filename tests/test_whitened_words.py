"""Whitening of the word vectors of a model before it is trained."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from mv_st import add_spelling, build_model, whiten_words
from mv_st.errors import UserError
from mv_st.vectors import WordVectors

WORDS = [f"{start}{end}" for start in ("red", "blue", "dark", "pale") for end in ("ness", "ish", "er", "est", "ly")]
COUNTS = {word: 2 ** (i % 7) for i, word in enumerate(WORDS)}


def make_sentences(count: int = 600) -> list[str]:
    rng = np.random.default_rng(1)
    return [" ".join(rng.choice([*WORDS, "reddest"], size=rng.integers(2, 9))) for _ in range(count)]


def make_model(weighting: str, oov: str) -> SentenceTransformer:
    # Far from white: a common part, and directions of very different size.
    matrix = np.random.default_rng(0).normal(size=(len(WORDS), 6)) * [4, 3, 2, 1.5, 1, 0.7] + [0, 3, 0, 1, 0, 0]
    vectors = add_spelling(WordVectors(WORDS, matrix.astype(np.float32)))
    return build_model(
        vectors, hidden_size=4, oov=oov, weighting=weighting, word_counts=COUNTS, gentle_start=True, seed=0
    )


def literal_means(model: SentenceTransformer, sentences: list[str], weighting: str) -> np.ndarray:
    """Word by word, from the tables."""
    table, vocabulary = model[0].vectors.numpy(), model[0].tokenizer.get_vocab()
    total = sum(COUNTS[word] for word in WORDS)
    means = []
    for sentence in sentences:
        rows = []
        for word in sentence.split():
            weight = 1.0
            if word not in vocabulary:
                buckets = model[0]._subwords.rows(word) if model[0].oov == "subword" else []
                vector = model[0].subword_vectors.numpy()[buckets].mean(axis=0) if buckets else np.zeros(6)
            else:
                vector = table[vocabulary[word]]
                weight = 3e-3 / (3e-3 + COUNTS[word] / total) if weighting == "fixed" else 1.0
            rows.append(weight * vector)
        means.append(np.mean(rows, axis=0))
    return np.array(means)


@pytest.mark.parametrize("oov", ["zero", "subword"])
@pytest.mark.parametrize("weighting", ["none", "fixed"])
def test_means_of_sentences_vary_alike(weighting: str, oov: str) -> None:
    model, sentences = make_model(weighting, oov), make_sentences()
    length = model[0].vectors[1:].norm(dim=1).mean()
    assert whiten_words(model, sentences) is model
    means = literal_means(model, sentences, weighting)
    variances = np.linalg.eigvalsh(means.T @ means / len(means))
    # One component is gone, and the others are equal.
    assert variances[0] < 1e-6 * variances[-1]
    np.testing.assert_allclose(variances[1:], variances[-1], rtol=1e-3)
    assert model[0].vectors[1:].norm(dim=1).mean() == pytest.approx(float(length), rel=1e-4)
    assert not model[0].vectors[0].any()


def test_model_is_usable_and_saved(tmp_path) -> None:
    model = whiten_words(make_model("fixed", "subword"), make_sentences())
    vectors = model.encode(["redness bluish", "paler"])
    model.save_pretrained(str(tmp_path / "model"))
    np.testing.assert_allclose(
        SentenceTransformer(str(tmp_path / "model")).encode(["redness bluish", "paler"]), vectors
    )


def test_half_precision() -> None:
    matrix = np.random.default_rng(0).normal(size=(len(WORDS), 6)).astype(np.float16)
    model = whiten_words(build_model((WORDS, matrix), hidden_size=4, dtype="float16", seed=0), make_sentences())
    assert model[0].vectors.dtype == torch.float16
    assert torch.isfinite(model[0].vectors).all()


def test_bad_input() -> None:
    with pytest.raises(UserError, match="no sentences"):
        whiten_words(make_model("none", "zero"), [])
    with pytest.raises(UserError, match="mv_st model"):
        whiten_words(SentenceTransformer(modules=[torch.nn.Identity()]), ["a"])
