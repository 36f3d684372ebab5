"""Small copies of models."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from small_vectors import WORDS, word_vectors

from mv_st import build_model, compact_model, fit_components
from mv_st.errors import UserError
from mv_st.modules.byte_rows import from_bytes, to_bytes

SENTENCES = ["The cat sat on the mat.", "A dog ran under the tree.", "It was very happy today!", "Sky is blue."]


@pytest.fixture(scope="module")
def model() -> SentenceTransformer:
    counts = np.arange(len(WORDS) + 1)[::-1].astype(float)
    options = {"weighting": "fixed", "word_counts": counts, "whitening": 0.5}
    return fit_components(build_model(word_vectors(WORDS), hidden_size=4, seed=0, **options), SENTENCES)


def test_bytes_are_half_a_step_away_at_most() -> None:
    table = torch.randn(50, 7, generator=torch.Generator().manual_seed(0))
    table[3] = 0
    steps, sizes = to_bytes(table)
    assert steps.dtype == torch.int8
    assert ((from_bytes(steps, sizes) - table).abs() <= sizes.unsqueeze(1) / 2 * 1.0001).all()
    again, _ = to_bytes(from_bytes(steps, sizes))
    assert torch.equal(again, steps)


def test_with_all_words_only_rounding_changes(model: SentenceTransformer) -> None:
    small = compact_model(model, max_vocab=1000, n_buckets=64)
    assert small[0].vocab_size == model[0].vocab_size
    cosines = (small.encode(SENTENCES) * model.encode(SENTENCES)).sum(axis=1)
    assert (cosines > 0.99 * np.linalg.norm(model.encode(SENTENCES), axis=1) ** 2).all()


def test_words_that_are_dropped_are_spelt(model: SentenceTransformer) -> None:
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    small = compact_model(model, max_vocab=10, n_buckets=64)
    assert small[0].vocab_size == 11
    ids = small[0].preprocess(["the cat yesterday"])["input_ids"].tolist()
    assert ids[:2] == model[0].preprocess(["the cat"])["input_ids"].tolist()
    assert ids[2] < 0
    # The weights of words are cut as their vectors are.
    assert torch.equal(small[2].word_weights, model[2].word_weights[:11].half().float())
    assert (small[2].vocab_size, model[2].vocab_size) == (11, len(WORDS) + 1)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]), name


@pytest.mark.parametrize("are_scaled", [False, True])
def test_spelt_words_are_as_long_as_known_ones_where_they_were(model: SentenceTransformer, are_scaled: bool) -> None:
    model = copy.deepcopy(model)
    if are_scaled:
        model[0].scale_unknown_words()
    small = compact_model(model, max_vocab=10, n_buckets=64)
    length = small[0](small[0].preprocess(["yesterday"]))["words"].vectors.norm()
    typical = small[0].vectors[1:].norm(dim=1).mean()
    assert bool((length - typical).abs() < 1e-3 * typical) == are_scaled


def test_saved_in_bytes_and_loaded_as_it_was(model: SentenceTransformer, tmp_path: Path) -> None:
    small = compact_model(model, max_vocab=20, n_buckets=64)
    small.save_pretrained(str(tmp_path / "one"))
    loaded = SentenceTransformer(str(tmp_path / "one"))
    np.testing.assert_allclose(loaded.encode(SENTENCES), small.encode(SENTENCES), atol=1e-6)
    assert loaded[0].vectors.dtype == torch.float32
    loaded.save_pretrained(str(tmp_path / "two"))
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("one", "two")]
    assert sizes[0] == sizes[1]
    # 21 + 64 rows of 6 bytes and a step size each, and 64 numbers of buckets
    assert sizes[0] < 85 * 10 + 64 * 8 + 1000
    np.testing.assert_allclose(
        SentenceTransformer(str(tmp_path / "two")).encode(SENTENCES), small.encode(SENTENCES), atol=1e-6
    )


def test_bad_arguments(model: SentenceTransformer) -> None:
    with pytest.raises(UserError, match="max_vocab must be at least 1, not 0"):
        compact_model(model, max_vocab=0)
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    other = SentenceTransformer(modules=[StaticEmbedding(model[0].tokenizer, embedding_dim=4)], device="cpu")
    with pytest.raises(UserError, match="only an mv_st model"):
        compact_model(other)
