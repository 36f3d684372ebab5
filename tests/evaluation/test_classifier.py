from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression

from mv_st.evaluation.classifier import Samples, classes_of, solve, solve_grid, targets_of


def problem(n_classes: int, width: int, n: int = 300) -> tuple[np.ndarray, np.ndarray]:
    features, labels = make_classification(
        n, width, n_informative=12, n_classes=n_classes, class_sep=0.7, flip_y=0.1, random_state=1
    )
    # Off centre and of unequal scale, as sentence vectors are.
    features = (features * np.linspace(0.2, 1.5, width) + 1.5).astype(np.float32)
    return features, labels


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("width", [24, 700])  # fewer features than samples, and more
@pytest.mark.parametrize("strength", [0.25, 8.0])
def test_solution_is_that_of_scikit_learn(n_classes: int, width: int, strength: float) -> None:
    features, labels = problem(n_classes, width)
    samples = Samples(features)
    fit = solve(samples, targets_of(labels, n_classes), torch.full((len(labels), 1), strength), tolerance=1e-5)
    weights, intercept = fit.coefficients(samples)

    reference = LogisticRegression(C=strength, tol=1e-8, max_iter=5000).fit(features.astype(np.float64), labels)
    expected = reference.coef_.T
    np.testing.assert_allclose(weights, expected, atol=2e-3 * np.abs(expected).max())
    # Softmax intercepts are defined up to a common number.
    ours, theirs = intercept.numpy(), reference.intercept_
    if n_classes > 2:
        ours, theirs = ours - ours.mean(), theirs - theirs.mean()
    np.testing.assert_allclose(ours, theirs, atol=2e-2)

    new = features[::-1] + 0.1
    scores = fit.predict(samples, new)
    np.testing.assert_allclose(
        torch.softmax(scores, 1) if n_classes > 2 else torch.sigmoid(scores[:, 0]),
        reference.predict_proba(new) if n_classes > 2 else reference.predict_proba(new)[:, 1],
        atol=2e-3,
    )


def test_features_of_equal_variance() -> None:
    """As if the features had been scaled before; a constant one has no weight, and new samples come unscaled."""
    features, labels = problem(2, 30)
    features[:, 7] = 3.0
    varies = features.std(axis=0) > 0
    scaled = np.where(varies, features / np.where(varies, features.std(axis=0), 1.0), 0.0) / np.sqrt(varies.sum())
    assert np.square(scaled - scaled.mean(axis=0)).sum(axis=1).mean() == pytest.approx(1.0, abs=1e-3)
    samples = Samples(features, equal_variance=True)
    fit = solve(samples, targets_of(labels, 2), torch.full((len(labels), 1), 50.0), tolerance=1e-5)
    reference = LogisticRegression(C=50.0, tol=1e-8, max_iter=5000).fit(scaled, labels)
    np.testing.assert_allclose(fit.scores[:, 0, 0], reference.decision_function(scaled), atol=3e-3)
    np.testing.assert_allclose(fit.predict(samples, features)[:, 0], reference.decision_function(scaled), atol=3e-3)
    assert fit.coefficients(samples)[0][7] == 0


def test_folds_and_grid_solved_together_equal_single_fits() -> None:
    features, labels = problem(2, 40)
    samples = Samples(features)
    exact = features.astype(np.float64)
    rng = np.random.default_rng(0)
    masks = torch.tensor(rng.random((len(labels), 5)) < 0.8).float()
    for strength, fit in zip(
        [0.5, 2.0, 32.0], solve_grid(samples, targets_of(labels, 2), masks, [0.5, 2.0, 32.0], 1e-5), strict=True
    ):
        for fold in range(5):
            rows = masks[:, fold].numpy() > 0
            reference = LogisticRegression(C=strength, tol=1e-8, max_iter=5000).fit(exact[rows], labels[rows])
            # Scores of all samples, those outside the fold included.
            np.testing.assert_allclose(fit.scores[:, fold, 0], reference.decision_function(exact), atol=3e-3)


def test_default_tolerance_gives_the_same_decisions() -> None:
    features, labels = problem(2, 100, n=600)
    samples = Samples(features)
    fit = solve(samples, targets_of(labels, 2), torch.full((len(labels), 1), 4.0))
    reference = LogisticRegression(C=4.0, tol=1e-8, max_iter=5000).fit(features, labels)
    assert (classes_of(fit.scores[:, 0]).numpy() == reference.predict(features)).mean() > 0.99


def test_soft_targets_minimise_cross_entropy() -> None:
    """Against plain gradient descent on the objective as written."""
    rng = np.random.default_rng(3)
    features = torch.tensor(rng.normal(size=(60, 5)), dtype=torch.float32)
    targets = torch.tensor(rng.dirichlet(np.ones(3), size=60), dtype=torch.float32)
    samples = Samples(features)
    fit = solve(samples, targets, torch.full((60, 1), 2.0), tolerance=1e-6)
    weights = torch.zeros(5, 3, requires_grad=True)
    intercept = torch.zeros(3, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights, intercept], max_iter=500, line_search_fn="strong_wolfe")

    def objective() -> torch.Tensor:
        optimizer.zero_grad()
        losses = -(targets * torch.log_softmax(features @ weights + intercept, dim=1)).sum()
        value = 0.5 * weights.square().sum() + 2.0 * losses
        value.backward()
        return value

    optimizer.step(objective)
    ours, _ = fit.coefficients(samples)
    np.testing.assert_allclose(ours, weights.detach(), atol=1e-3)


def test_degenerate_samples_stay_finite() -> None:
    """All samples equal, a zero feature, perfectly separable classes."""
    labels = np.array([0, 1] * 20)
    for features in (
        np.ones((40, 3), dtype=np.float32),
        np.zeros((40, 3), dtype=np.float32),
        np.stack([labels * 100.0, np.zeros(40)], axis=1).astype(np.float32),
    ):
        for equal_variance in (False, True):
            samples = Samples(features, equal_variance)
            fits = list(solve_grid(samples, targets_of(labels, 2), torch.ones(40, 1), [1.0, 1000.0]))
            assert all(torch.isfinite(fit.scores).all() for fit in fits)


def test_an_output_that_no_target_asks_for() -> None:
    """As when no pair of a task has a middling score: its intercept goes to minus infinity, and nothing else does."""
    rng = np.random.default_rng(0)
    features = torch.tensor(rng.normal(size=(60, 90)), dtype=torch.float32)
    ends = torch.tensor(rng.random(60) < 0.5)
    targets = torch.zeros(60, 5)
    targets[:, 0], targets[:, 4] = ends.float(), (~ends).float()
    samples = Samples(features, equal_variance=True)
    for fit in solve_grid(samples, targets, torch.ones(60, 1), [2.0**power for power in range(-4, 14, 2)]):
        assert torch.isfinite(fit.scores).all()
        assert fit.scores.softmax(dim=2)[:, 0, 1:4].max() < 0.05
        assert torch.isfinite(fit.predict(samples, features.numpy())).all()
    assert ((fit.scores[:, 0, 0] > fit.scores[:, 0, 4]) == ends).all()


def test_same_result_twice() -> None:
    features, labels = problem(3, 50)
    fits = [solve(Samples(features), targets_of(labels, 3), torch.ones(len(labels), 2)).weights for _ in range(2)]
    assert torch.equal(*fits)
