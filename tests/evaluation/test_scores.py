from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr

from mv_st.errors import UserError
from mv_st.evaluation.scores import STSScores, combine, correlate, paired_cosines


def test_correlations_agree_with_scipy_with_ties() -> None:
    rng = np.random.default_rng(0)
    gold = rng.integers(0, 6, size=200).astype(float)
    predicted = gold + rng.normal(size=200)
    score = correlate(gold, predicted)
    assert score.pearson == pytest.approx(pearsonr(gold, predicted)[0])
    assert score.spearman == pytest.approx(spearmanr(gold, predicted)[0])
    assert score.n == 200


@pytest.mark.parametrize(
    ("gold", "predicted", "message"),
    [
        ([2.0, 2.0, 2.0], [0.1, 0.2, 0.3], "all 3 gold scores are equal"),
        ([1.0, 2.0, 3.0], [0.5, 0.5, 0.5], "all 3 predicted scores are equal"),
        ([1.0, 2.0, 3.0], [0.5, float("nan"), 0.7], "not finite"),
        ([1.0], [0.5], "only 1 pair"),
    ],
)
def test_where_there_is_no_correlation_an_error_says_so(gold: list, predicted: list, message: str) -> None:
    with pytest.raises(UserError, match=message):
        correlate(gold, predicted)


def test_cosines_and_zero_vectors() -> None:
    rng = np.random.default_rng(0)
    left, right = rng.normal(size=(2, 5, 7)).astype(np.float32)
    left[2] = 0
    expected = [u @ v / (np.linalg.norm(u) * np.linalg.norm(v) or 1.0) for u, v in zip(left, right, strict=True)]
    np.testing.assert_allclose(paired_cosines(left, right), expected, rtol=1e-5)


def test_the_three_scorings_of_a_year() -> None:
    rng = np.random.default_rng(1)
    pairs = {}
    for name, n, shift in (("small", 20, 0.0), ("large", 300, 3.0)):
        gold = rng.uniform(0, 5, size=n)
        pairs[name] = (gold, gold + shift + rng.normal(size=n) * (1.0 + shift))
    correlations = {name: correlate(*pair) for name, pair in pairs.items()}
    scores = combine(pairs, correlations, absent=["SMT"])
    small, large = (pearsonr(*pairs[name])[0] for name in ("small", "large"))
    everything = [np.concatenate([pairs["small"][side], pairs["large"][side]]) for side in (0, 1)]
    assert scores.mean.pearson == pytest.approx((small + large) / 2)
    assert scores.weighted_mean.pearson == pytest.approx((20 * small + 300 * large) / 320)
    assert scores.pooled.pearson == pytest.approx(pearsonr(*everything)[0])
    assert scores.pooled.spearman == pytest.approx(spearmanr(*everything)[0])
    assert len({scores.mean.pearson, scores.weighted_mean.pearson, scores.pooled.pearson}) == 3
    assert STSScores.from_dict(asdict(scores)) == scores
