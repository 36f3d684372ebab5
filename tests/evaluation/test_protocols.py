from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from scipy.stats import pearsonr
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from mv_st.errors import UserError
from mv_st.evaluation.protocols import (
    _choose,
    bin_targets,
    cross_validation_then_test,
    nested_cross_validation,
    relatedness,
    validation_then_test,
)

GRID = [0.25, 4.0, 64.0]


def data(n: int, seed: int = 0, classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    features, labels = make_classification(
        n, 20, n_informative=8, n_classes=classes, class_sep=0.6, flip_y=0.15, random_state=seed
    )
    return features.astype(np.float32), labels


def scaled(features: np.ndarray, samples: np.ndarray) -> np.ndarray:
    """Features with equal variance over the samples, which have length 1 on average."""
    return features / samples.std(axis=0) / np.sqrt(features.shape[1])


def literal_accuracy(train: tuple, test: tuple, strength: float) -> float:
    return LogisticRegression(C=strength, tol=1e-8, max_iter=5000).fit(*train).score(*test)


def test_nested_cross_validation_is_the_literal_double_loop() -> None:
    features, labels = data(150)
    outcome = nested_cross_validation(features, labels, seed=1111, strengths=GRID, folds=4)
    features = scaled(features, features)
    test_scores, chosen = [], []
    for train, test in StratifiedKFold(4, shuffle=True, random_state=1111).split(features, labels):
        inner = list(StratifiedKFold(4, shuffle=True, random_state=1111).split(features[train], labels[train]))
        means = [
            np.mean(
                [
                    literal_accuracy(
                        (features[train][a], labels[train][a]), (features[train][b], labels[train][b]), strength
                    )
                    for a, b in inner
                ]
            )
            for strength in GRID
        ]
        best = GRID[int(np.argmax(np.round(100 * np.array(means), 2)))]
        chosen.append(best)
        test_scores.append(literal_accuracy((features[train], labels[train]), (features[test], labels[test]), best))
    # A sample on the border may fall to either side.
    assert outcome.test_score == pytest.approx(np.mean(test_scores), abs=1.01 / 37)
    assert sum(a == b for a, b in zip(outcome.strengths, chosen, strict=True)) >= 3
    assert outcome.predictions.shape == labels.shape


def test_cross_validation_then_test_is_the_literal_loop() -> None:
    features, labels = data(400, classes=3)
    train, test = (features[:250], labels[:250]), (features[250:], labels[250:])
    outcome = cross_validation_then_test(train, test, seed=7, strengths=GRID, folds=5)
    train, test = ((scaled(part, features[:250]), gold) for part, gold in (train, test))
    splits = list(StratifiedKFold(5, shuffle=True, random_state=7).split(*train))
    means = [
        np.mean(
            [literal_accuracy((train[0][a], train[1][a]), (train[0][b], train[1][b]), strength) for a, b in splits]
        )
        for strength in GRID
    ]
    assert outcome.dev_score == pytest.approx(max(means), abs=0.01)
    assert outcome.test_score == pytest.approx(literal_accuracy(train, test, outcome.strengths[0]), abs=0.014)


def test_validation_split_chooses_and_is_not_trained_on() -> None:
    features, labels = data(500)
    train, validation, test = ((features[a:b], labels[a:b]) for a, b in ((0, 200), (200, 300), (300, 500)))
    outcome = validation_then_test(train, validation, test, strengths=GRID)
    train, validation, test = ((scaled(part, features[:200]), gold) for part, gold in (train, validation, test))
    scores = [literal_accuracy(train, validation, strength) for strength in GRID]
    assert outcome.dev_score == pytest.approx(max(scores), abs=0.011)
    assert outcome.test_score == pytest.approx(literal_accuracy(train, test, outcome.strengths[0]), abs=0.011)


@pytest.mark.parametrize(("n_scored", "chosen", "asked"), [(500, 3, 6), (10_000, 1, 3)])
def test_a_fall_by_chance_does_not_end_the_search(n_scored: int, chosen: int, asked: int) -> None:
    """SICK-E has 500 validation samples: eight of them are nothing, 160 of 10,000 are."""
    scores = [0.742, 0.806, 0.79, 0.816, 0.812, 0.806, 0.792]
    seen: list[float] = []

    def score(fit: Any) -> list[float]:
        seen.append(fit)
        return [fit]

    best, dev_scores, _ = _choose(cast(Any, iter(scores)), score, n_scored)
    assert best == [chosen]
    assert dev_scores == [scores[chosen]]
    assert seen == scores[:asked]


def test_same_seed_same_scores_other_seed_other_folds() -> None:
    features, labels = data(120)
    first, again, other = (
        nested_cross_validation(features, labels, seed, strengths=[1.0], folds=3) for seed in (1111, 1111, 5)
    )
    assert first.test_score == again.test_score
    np.testing.assert_array_equal(first.predictions, again.predictions)
    assert not np.array_equal(first.predictions, other.predictions)


def test_the_scale_of_a_feature_does_not_matter() -> None:
    """As with Adam; a penalty on the weights of features as they are would hide the small ones."""
    features, labels = data(200)
    scale = np.geomspace(1e-2, 1e2, features.shape[1]).astype(np.float32)
    first, other = (nested_cross_validation(x, labels, 1, GRID, folds=3) for x in (features, features * scale + 5.0))
    assert (first.predictions == other.predictions).mean() > 0.99
    assert first.strengths == other.strengths


def test_bins_have_the_score_as_expectation() -> None:
    scores = np.array([1.0, 1.3, 2.0, 4.999, 5.0])
    targets = bin_targets(scores)
    np.testing.assert_allclose(targets.sum(axis=1), 1.0)
    np.testing.assert_allclose(targets @ np.arange(1, 6), scores)
    assert ((targets > 0).sum(axis=1) <= 2).all()
    with pytest.raises(UserError, match=r"between 1 and 5, found 0\.2 to 4"):
        bin_targets(np.array([0.2, 4.0]))


def test_relatedness_learns_a_score() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(600, 10)).astype(np.float32)
    scores = np.clip(3.0 + features[:, 0] - 0.5 * features[:, 1] + 0.2 * rng.normal(size=600), 1.0, 5.0)
    train, validation, test = ((features[a:b], scores[a:b]) for a, b in ((0, 300), (300, 400), (400, 600)))
    outcome = relatedness(train, validation, test)
    assert outcome.test_score > 0.9
    assert outcome.test_score == pytest.approx(pearsonr(outcome.predictions, test[1])[0])
    assert outcome.predictions.min() >= 1.0
    assert outcome.predictions.max() <= 5.0


def test_labels_that_cannot_be_learnt_are_refused() -> None:
    features, _ = data(30)
    with pytest.raises(UserError, match="all labels are equal"):
        nested_cross_validation(features, np.zeros(30, dtype=np.int64), 1)
    with pytest.raises(UserError, match="only 3 rows"):
        nested_cross_validation(features, np.array([1] * 3 + [0] * 27), 1)
