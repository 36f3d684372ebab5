from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from datasets import Dataset
from toy_corpus import toy_corpus, toy_vectors

from mv_st.errors import UserError
from mv_st.modules import BiGRUView, FastTextEmbedding, LinearMeanView
from mv_st.preparation import prepare_model, sample_sentences, sample_stretches
from mv_st.presets import PRESETS, Settings
from mv_st.vectors import WordVectors

SMALL = replace(PRESETS["small"], hidden_size=4, batch_size=16, blocks=4, spelling_codes=6, linear_first=3)


def prepare(settings: Settings, **options: object) -> tuple[list[object], int]:
    arguments = {"vectors": toy_vectors(), "seed": 0, "max_vocab": None, "minutes": None} | options
    model, steps = prepare_model(toy_corpus(), settings=settings, **arguments)  # type: ignore[arg-type]
    return list(model), steps


def test_the_settings_decide_how_words_are_read() -> None:
    width = toy_vectors().dim
    words, gru, linear, removal, _ = prepare(SMALL)[0]
    assert isinstance(words, FastTextEmbedding)
    assert isinstance(gru, BiGRUView)
    assert isinstance(linear, LinearMeanView)
    assert (words.embedding_dimension, words.oov) == (width + 6, "subword")
    assert words.unknown_length is not None
    assert (gru.fade_out, gru.train_on, gru.weighting, linear.weighting) == (True, "mean", "fixed", "fixed")
    assert removal.whitening == 0.25  # type: ignore[attr-defined]
    paper = prepare(replace(PRESETS["paper"], hidden_size=4, batch_size=16))[0]
    assert (paper[0].embedding_dimension, paper[0].oov) == (width, "zero")  # type: ignore[attr-defined]
    np.testing.assert_allclose(paper[0].vectors[1:].numpy(), toy_vectors().matrix, rtol=1e-6)  # type: ignore[attr-defined]


def test_the_gru_starts_like_the_linear_view_after_its_head_start() -> None:
    (_, gru, linear, *_), steps = prepare(SMALL)
    assert steps == 3
    new_states = np.vstack([gru.gru.weight_ih_l0[8:].detach(), gru.gru.weight_ih_l0_reverse[8:].detach()])  # type: ignore
    learnt = linear.linear.weight.detach().numpy()  # type: ignore[attr-defined]
    np.testing.assert_allclose(new_states / new_states.std(), learnt / learnt.std(), rtol=1e-3, atol=1e-4)


def test_one_view_alone_has_no_head_start() -> None:
    assert prepare(replace(SMALL, views=("linear",)))[1] == 0
    assert prepare(replace(SMALL, linear_first=0))[1] == 0


def test_the_head_start_ends_with_its_time() -> None:
    assert prepare(replace(SMALL, linear_first=1_000_000), minutes=1e-9)[1] == 1


def test_vectors_of_another_language_are_refused() -> None:
    foreign = WordVectors(["kaksi", "kolme"], np.eye(2, dtype=np.float32))
    with pytest.raises(UserError, match="none of the words of the corpus"):
        prepare(replace(SMALL, spelling=False, spelling_codes=0), vectors=foreign)


def test_words_are_counted_all_over_the_corpus() -> None:
    # A folder of several genres: the first file alone would not tell how frequent the words of the last are.
    sentences = Dataset.from_dict({"sentence": [str(number) for number in range(10_000)]})
    found = [int(sentence) for sentence in sample_stretches(sentences, 1_000, stretches=10)]
    assert len(found) == len(set(found)) == 1_000
    assert found[:100] == list(range(100))
    assert found[-1] == 9_999
    assert max(np.diff(found)) < 1_100
    assert sample_stretches(sentences, 10_000) == list(sentences["sentence"])


def test_a_sample_is_in_order_and_the_same_for_a_seed() -> None:
    sentences = Dataset.from_dict({"sentence": [f"{number:04}" for number in range(1_000)]})
    sample = sample_sentences(sentences, 50, seed=1)
    assert sample == sorted(set(sample))
    assert len(sample) == 50
    assert sample == sample_sentences(sentences, 50, seed=1) != sample_sentences(sentences, 50, seed=2)
    assert sample_sentences(sentences, 1_000, seed=1) == list(sentences["sentence"])
