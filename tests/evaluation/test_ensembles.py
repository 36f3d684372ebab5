from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from toy_tasks import WORDS, sentence

from mv_st import build_model, fit_components
from mv_st.errors import UserError
from mv_st.evaluation.ensembles import ensemble_of_views

SENTENCES = [sentence(np.random.default_rng(seed)) for seed in range(30)]


def trained(vectors: np.ndarray, *views: str, seed: int = 0, **fitted: float) -> SentenceTransformer:
    """A model whose components are those of its own vectors, as they are after training."""
    model = build_model((WORDS, vectors), hidden_size=5, views=views, seed=seed)
    return fit_components(model, SENTENCES, **fitted)  # type: ignore[arg-type]


@pytest.mark.parametrize("whitening", [0.0, 0.5])
def test_views_of_two_models_are_added_and_joined(word_vectors: np.ndarray, whitening: float, tmp_path: Path) -> None:
    gru = trained(word_vectors, "gru", "gru", whitening=whitening)
    linear = trained(word_vectors, "linear", whitening=whitening)
    both = ensemble_of_views([(gru, "gru_2"), (linear, "linear")])
    f, g = gru.encode(SENTENCES, view="gru_2"), linear.encode(SENTENCES)
    np.testing.assert_allclose(both.encode(SENTENCES), f + g, atol=1e-6)
    features = [
        gru.encode(SENTENCES, view="gru_2", representation="transfer"),
        linear.encode(SENTENCES, representation="transfer"),
    ]
    np.testing.assert_allclose(
        both.encode(SENTENCES, representation="transfer"), np.concatenate(features, axis=1), atol=1e-6
    )
    both.save_pretrained(str(tmp_path))
    np.testing.assert_allclose(SentenceTransformer(str(tmp_path)).encode(SENTENCES), f + g, atol=1e-6)


def test_views_of_one_name(word_vectors: np.ndarray) -> None:
    models = [trained(word_vectors, "linear", seed=seed) for seed in (0, 1)]
    both = ensemble_of_views([(model, "linear") for model in models])
    for name, model in zip(("linear_1", "linear_2"), models, strict=True):
        np.testing.assert_allclose(both.encode(SENTENCES, view=name), model.encode(SENTENCES), atol=1e-6)


def test_what_does_not_fit_together_is_refused(word_vectors: np.ndarray, static: SentenceTransformer) -> None:
    gru, linear = trained(word_vectors, "gru"), trained(word_vectors, "linear", n_components=2)
    with pytest.raises(UserError, match="number of components"):
        ensemble_of_views([(gru, "gru"), (linear, "linear")])
    with pytest.raises(UserError, match="has no view 'tree'; its views are gru"):
        ensemble_of_views([(gru, "tree")])
    with pytest.raises(UserError, match="different word vectors"):
        ensemble_of_views([(gru, "gru"), (trained(word_vectors + 1, "linear"), "linear")])
    with pytest.raises(UserError, match="only views of mv_st models"):
        ensemble_of_views([(static, "gru")])
