"""The head start: a map of words that a linear view learns by itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from toy_corpus import toy_corpus, toy_vectors

from mv_st import add_spelling, build_model, word_map
from mv_st.errors import UserError
from mv_st.loss import MultiViewLoss
from mv_st.presets import settings_for
from mv_st.word_map import MOST_EPOCHS, learn_word_map

SETTINGS = settings_for("small", hidden_size=4, batch_size=16, linear_first=40, max_train_length=10)


def make_model(views: tuple[str, ...] = ("linear",), words=None):
    vectors = add_spelling(toy_vectors()) if words is None else words
    return build_model(vectors, hidden_size=3, views=views, oov="subword", gentle_start=True, seed=0)


def loss_of(model) -> float:
    corpus = toy_corpus()[:64]
    loss = MultiViewLoss(model, agreement="within")
    model.train()
    with torch.no_grad():
        return float(loss([model.preprocess(corpus["sentence"])], torch.tensor(corpus["label"])))


def test_words_become_what_the_view_makes_of_them() -> None:
    model = make_model()
    before = {name: tensor.clone() for name, tensor in model[0].state_dict().items()}
    assert learn_word_map(model, toy_corpus(), SETTINGS) == 40
    learnt = model[1].linear.weight.detach()
    for name in ("vectors", "subword_vectors"):
        table, mapped = getattr(model[0], name), before[name] @ learnt.T
        assert table.shape == (len(before[name]), 6)
        torch.testing.assert_close(table / table.norm(), mapped / mapped.norm())
    length = before["vectors"][1:].norm(dim=1).mean()
    torch.testing.assert_close(model[0].vectors[1:].norm(dim=1).mean(), length)
    assert model[0].embedding_dimension == 6


def test_views_that_start_with_these_words_know_what_was_learnt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_map, "LEARNING_RATE", 0.05)
    losses = []
    for steps in (0, 40):
        head_start = make_model()
        settings = settings_for("small", hidden_size=4, batch_size=16, linear_first=steps)
        assert learn_word_map(head_start, toy_corpus(), settings) == steps
        model = make_model(("gru", "linear"), words=head_start[0])
        losses.append(loss_of(model))
    assert losses[1] < losses[0] - 0.05
    sentence = [toy_corpus()[0]["sentence"]]
    similar = model.eval().encode(sentence, view="gru") @ model.encode(sentence, view="linear").T
    assert similar > 0.8  # both start with the same rotation


def test_the_seed_decides() -> None:
    tables = []
    for seed in (0, 0, 1):
        model = make_model()
        learn_word_map(model, toy_corpus(), SETTINGS, seed=seed)
        tables.append(model[0].vectors.numpy())
    np.testing.assert_array_equal(tables[0], tables[1])
    assert not np.array_equal(tables[0], tables[2])


def test_small_corpora_are_not_read_without_end() -> None:
    corpus = toy_corpus().select(range(35))
    assert learn_word_map(make_model(), corpus, SETTINGS) == MOST_EPOCHS * 2


def test_stops_in_time() -> None:
    assert learn_word_map(make_model(), toy_corpus(), SETTINGS, seconds=0.0) == 1


def test_a_corpus_without_documents() -> None:
    assert learn_word_map(make_model(), toy_corpus().remove_columns("label"), SETTINGS) == 40


def test_other_models_are_refused() -> None:
    with pytest.raises(UserError, match="one linear view"):
        learn_word_map(make_model(("gru", "linear")), toy_corpus(), SETTINGS)
