from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
import torch

from mv_st import MultiViewLoss, build_model
from mv_st.errors import UserError
from mv_st.loss import LossCurves, agreement_scores

WORDS = ["red", "green", "blue", "sky", "grass", "sea", "leaf", "rose", "sun", "moon"]
VECTORS = (WORDS, np.random.default_rng(0).normal(size=(10, 6)))


def sentences(count: int) -> list[str]:
    rng = np.random.default_rng(1)
    return [" ".join(rng.choice(WORDS, size=rng.integers(1, 5))) for _ in range(count)]


def literal_loss(
    views: list[torch.Tensor], tau: torch.Tensor, group: list, window: int, agreement: str, include_self: bool
) -> torch.Tensor:
    """The paper's equation as three loops over i, j and n, for normalised views, in Python."""
    n = len(views[0])

    def a(i: int, j: int) -> torch.Tensor:
        total = torch.zeros((), dtype=views[0].dtype)
        for u, v in product(range(len(views)), repeat=2):
            wanted = {"cross": u != v, "within": u == v, "all": True}[agreement] or len(views) == 1
            if wanted:
                total = total + (views[u][i] * views[v][j]).sum()
        return total

    total, pairs = torch.zeros((), dtype=views[0].dtype), 0
    for i in range(n):
        denominator = torch.zeros((), dtype=views[0].dtype)
        for k in range(n):
            if k == i and not include_self:
                continue  # a sentence that is not its own neighbour is left out
            denominator = denominator + torch.exp(a(i, k) / tau)
        for j in range(n):
            if abs(i - j) <= window and group[i] == group[j] and (include_self or i != j):
                total = total - torch.log(torch.exp(a(i, j) / tau) / denominator)
                pairs += 1
    return total / pairs


def double_model(views=("gru", "linear"), **options):
    return build_model(VECTORS, hidden_size=3, views=views, seed=0, temperature=0.7, **options).double().train()


def gradients(model) -> dict[str, torch.Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("agreement", ["cross", "all", "within"])
@pytest.mark.parametrize("views", [("gru", "linear"), ("linear", "linear"), ("gru",), ("gru", "linear", "linear")])
@pytest.mark.parametrize("documents", [None, [0, 0, 0, 5, 5, 9, 9, 9, 9]])
@pytest.mark.parametrize("include_self", [True, False])
def test_loss_is_the_papers_equation(agreement, views, documents, include_self):
    model = double_model(views)
    loss = MultiViewLoss(model, window=2, agreement=agreement, include_self=include_self)
    batch = model.preprocess(sentences(9))
    labels = None if documents is None else torch.tensor(documents)
    value = loss([dict(batch)], labels)
    value.backward()
    fast = gradients(model)

    model.zero_grad()
    out = model(dict(batch))
    by_view = list(out["view_embeddings"].unbind(dim=1))
    expected = literal_loss(by_view, model[-1].temperature, documents or [0] * 9, 2, agreement, include_self)
    expected.backward()
    assert value.item() == pytest.approx(expected.item(), abs=1e-12)
    for name, gradient in gradients(model).items():
        torch.testing.assert_close(fast[name], gradient, atol=1e-12, rtol=1e-9)
    assert "4.temperature" in fast or len(views) != 2


def test_views_are_normalised_and_stripped_of_the_batch_component():
    model = double_model()
    out = model(model.preprocess(sentences(9)))
    views = out["view_embeddings"]
    torch.testing.assert_close(views.norm(dim=2), torch.ones(9, 2, dtype=torch.double))


def test_blocks_of_one_document_are_not_neighbours():
    model = double_model()
    batch = model.preprocess(sentences(8))
    with_blocks = MultiViewLoss(model, window=3, blocks=2)([dict(batch)], torch.zeros(8))
    as_documents = MultiViewLoss(model, window=3)([dict(batch)], torch.tensor([0] * 4 + [1] * 4))
    joined = MultiViewLoss(model, window=3)([dict(batch)], torch.zeros(8))
    assert with_blocks.item() == pytest.approx(as_documents.item(), abs=1e-12)
    assert with_blocks.item() != pytest.approx(joined.item(), abs=1e-4)


def test_window_columns_equal_one_contiguous_column():
    model = double_model(power_iterations=1000)  # enough for the order of the batch not to matter
    rows = [sentences(12)[i : i + 4] for i in (0, 4, 8)]
    columns = [model.preprocess([row[w] for row in rows]) for w in range(4)]
    windows = MultiViewLoss(model, window=3)(columns, torch.ones(3))
    contiguous = MultiViewLoss(model, window=3)(
        [model.preprocess([s for row in rows for s in row])], torch.tensor([0] * 4 + [1] * 4 + [2] * 4)
    )
    assert windows.item() == pytest.approx(contiguous.item(), abs=1e-12)


def test_value_does_not_depend_on_batch_size_for_random_vectors():
    # With uniform scores, each term is log N whatever the window.
    model = double_model()
    for window in (1, 3):
        loss = MultiViewLoss(model, window=window)
        same = model.preprocess(["red"] * 6)
        assert loss([dict(same)]).item() == pytest.approx(math.log(6), abs=1e-9)


def test_curves_are_the_papers_figure():
    model = double_model()
    loss = MultiViewLoss(model)
    batch = model.preprocess(sentences(5))
    documents = torch.tensor([0, 0, 0, 1, 1])
    loss([dict(batch)], documents)
    f, g = model(dict(batch))["view_embeddings"].detach().unbind(dim=1)
    pairs = [(0, 1), (1, 2), (3, 4)]
    tau = 0.7
    curves = loss.pop_curves()
    assert curves["temperature"] == pytest.approx(tau)
    assert curves["agreement_gru_gru"] == pytest.approx(np.mean([float(f[i] @ f[j]) for i, j in pairs]) / tau)
    cross = np.mean([(float(f[i] @ g[j]) + float(g[i] @ f[j])) / 2 for i, j in pairs]) / tau
    assert curves["agreement_gru_linear"] == pytest.approx(cross)
    assert loss.pop_curves() == {}


def test_curves_reach_the_trainers_history():
    from types import SimpleNamespace

    model = double_model()
    loss = MultiViewLoss(model)
    loss([model.preprocess(sentences(5))])
    state = SimpleNamespace(log_history=[{"loss": 1.0}])
    logs = {"loss": 1.0}
    LossCurves(loss).on_log(None, state, None, logs=logs)
    assert logs["temperature"] == pytest.approx(0.7)
    assert state.log_history[0]["agreement_linear_linear"] == logs["agreement_linear_linear"]
    assert logs["loss"] == 1.0


def test_no_positive_pair_gives_a_finite_loss():
    model = double_model()
    loss = MultiViewLoss(model, window=1, include_self=False)
    value = loss([model.preprocess(sentences(3))], torch.tensor([0, 1, 2]))
    value.backward()
    assert value.item() == 0.0
    assert all(torch.isfinite(g).all() for g in gradients(model).values())


@pytest.mark.parametrize("options", [{"window": -1}, {"window": 0, "include_self": False}, {"agreement": "sideways"}])
def test_wrong_options_are_named(options):
    with pytest.raises(UserError):
        MultiViewLoss(double_model(), **options)


def test_blocks_must_divide_the_batch():
    model = double_model()
    with pytest.raises(UserError, match="7 sentences cannot be divided into 2 blocks"):
        MultiViewLoss(model, blocks=2)([model.preprocess(sentences(7))])


def test_agreement_scores_between_different_batches():
    a, b = torch.randn(3, 2, 4), torch.randn(5, 2, 4)
    expected = a[:, 0] @ b[:, 1].T + a[:, 1] @ b[:, 0].T
    torch.testing.assert_close(agreement_scores(a, b, "cross"), expected)
