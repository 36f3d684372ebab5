"""The head start of the linear view."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from toy_corpus import toy_corpus, toy_vectors

from mv_st import build_model
from mv_st.linear_first import MOST_EPOCHS, train_linear_first
from mv_st.loss import MultiViewLoss
from mv_st.presets import settings_for

SETTINGS = settings_for("small", hidden_size=4, batch_size=16, linear_first=40, max_train_length=10)


def make_model(views: tuple[str, ...] = ("gru", "linear")):
    return build_model(toy_vectors(), hidden_size=4, views=views, gentle_start=True, seed=0).eval()


def loss_of(model) -> float:
    corpus = toy_corpus()[:64]
    loss = MultiViewLoss(model, agreement="within")
    model.train()
    with torch.no_grad():
        value = loss([model.preprocess(corpus["sentence"])], torch.tensor(corpus["label"]))
    model.eval()
    return float(value)


def test_only_the_linear_view_learns() -> None:
    model = make_model()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    loss_before = loss_of(model)
    assert train_linear_first(model, toy_corpus(), SETTINGS) == 40
    changed = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed == {"2.linear.weight", "1.gru.weight_ih_l0", "1.gru.weight_ih_l0_reverse"}
    # The GRU starts with the same map, the gates as they were.
    for name, rows in (("weight_ih_l0", slice(0, 4)), ("weight_ih_l0_reverse", slice(4, 8))):
        weight, learnt = getattr(model[1].gru, name), model[2].linear.weight[rows]
        torch.testing.assert_close(weight[:8], before[f"1.gru.{name}"][:8])
        torch.testing.assert_close(weight[8:] / weight[8:].norm(), learnt / learnt.norm(), atol=0.2, rtol=0.2)
    assert loss_of(model) < loss_before
    assert not model.training
    assert model.max_seq_length == 512


def test_the_seed_decides() -> None:
    weights = []
    for seed in (0, 0, 1):
        model = make_model()
        train_linear_first(model, toy_corpus(), SETTINGS, seed=seed)
        weights.append(model[2].linear.weight.detach().numpy())
    np.testing.assert_array_equal(weights[0], weights[1])
    assert not np.array_equal(weights[0], weights[2])


def test_small_corpora_are_not_read_without_end() -> None:
    corpus = toy_corpus().select(range(35))
    assert train_linear_first(make_model(), corpus, SETTINGS) == MOST_EPOCHS * 2


def test_stops_in_time() -> None:
    assert train_linear_first(make_model(), toy_corpus(), SETTINGS, seconds=0.0) == 1


@pytest.mark.parametrize(("views", "steps"), [(("gru",), 40), (("gru", "linear"), 0)])
def test_nothing_to_do(views: tuple[str, ...], steps: int) -> None:
    model = make_model(views)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    settings = settings_for("small", hidden_size=4, batch_size=32, linear_first=steps)
    assert train_linear_first(model, toy_corpus(), settings) == 0
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_a_corpus_without_documents() -> None:
    assert train_linear_first(make_model(), toy_corpus().remove_columns("label"), SETTINGS) == 40
