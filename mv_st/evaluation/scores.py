"""Correlation scores of similarity tasks: per dataset, and the three ways in use to make one number of a year.

Numbers of different scorings cannot be compared, so all of them are computed and named:

* `mean`: unweighted mean over the datasets of a year (Tang & de Sa 2018; SentEval's "mean").
* `weighted_mean`: mean over the datasets, weighted by their number of pairs (SentEval's "wmean").
* `pooled`: one correlation over the pairs of all datasets joined (mteb and most papers since 2021, with Spearman).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mv_st.errors import UserError


@dataclass(frozen=True)
class Correlation:
    """Pearson's r and Spearman's rho, both between -1 and 1, over `n` pairs."""

    pearson: float
    spearman: float
    n: int


@dataclass(frozen=True)
class STSScores:
    """All scores of one similarity task.

    Attributes:
        datasets: Dataset name -> its correlation.
        mean: Unweighted mean over the datasets (the paper's scoring).
        weighted_mean: Mean over the datasets, weighted by their size.
        pooled: Correlation over all pairs of all datasets.
        absent: Datasets that belong to the task but were not scored: the means are then not comparable.
    """

    datasets: dict[str, Correlation]
    mean: Correlation
    weighted_mean: Correlation
    pooled: Correlation
    absent: list[str] = field(default_factory=list)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> STSScores:
        """The inverse of `dataclasses.asdict`."""
        return cls(
            datasets={name: Correlation(**score) for name, score in data["datasets"].items()},
            mean=Correlation(**data["mean"]),
            weighted_mean=Correlation(**data["weighted_mean"]),
            pooled=Correlation(**data["pooled"]),
            absent=list(data["absent"]),
        )


def correlate(gold: ArrayLike, predicted: ArrayLike) -> Correlation:
    """Pearson and Spearman correlation of two sequences.

    Raises:
        UserError: One side is constant or has fewer than two values, so that no correlation exists.

    Example:
        >>> score = correlate([0.0, 1.0, 2.0, 5.0], [0.0, 0.1, 0.2, 0.3])
        >>> round(score.pearson, 3), round(score.spearman, 3), score.n
        (0.956, 1.0, 4)
    """
    from scipy.stats import rankdata

    gold_values = np.asarray(gold, dtype=np.float64)
    predicted_values = np.asarray(predicted, dtype=np.float64)
    for values, what in ((gold_values, "gold scores"), (predicted_values, "predicted scores")):
        if len(values) < 2:
            raise UserError(f"no correlation: only {len(values)} pair")
        if not np.isfinite(values).all():
            raise UserError(f"no correlation: some {what} are not finite")
        if np.ptp(values) <= 1e-12 * max(1.0, float(np.abs(values).max())):
            raise UserError(f"no correlation: all {len(values)} {what} are equal ({values[0]:g})")
    pearson = _pearson(gold_values, predicted_values)
    spearman = _pearson(rankdata(gold_values), rankdata(predicted_values))
    return Correlation(pearson, spearman, len(gold_values))


def paired_cosines(left: NDArray[Any], right: NDArray[Any]) -> NDArray[np.float64]:
    """Cosine of each row of `left` with the same row of `right`; 0 where a vector is zero.

    Example:
        >>> paired_cosines(np.array([[1.0, 0.0], [0.0, 0.0]]), np.array([[3.0, 4.0], [1.0, 1.0]]))
        array([0.6, 0. ])
    """
    left, right = left.astype(np.float64), right.astype(np.float64)
    norms = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    products = np.einsum("nd,nd->n", left, right)
    return np.divide(products, norms, out=np.zeros_like(products), where=norms > 0)


def combine(
    pairs: Mapping[str, tuple[ArrayLike, ArrayLike]], datasets: Mapping[str, Correlation], absent: Sequence[str] = ()
) -> STSScores:
    """Make the scores of a task from those of its datasets.

    Args:
        pairs: Dataset name -> (gold scores, predicted scores) of the datasets that have a score.
        datasets: Dataset name -> correlation, for the same datasets.
        absent: Datasets of the task that have none.
    """
    sizes = [score.n for score in datasets.values()]
    gold = np.concatenate([np.asarray(pairs[name][0], dtype=np.float64) for name in datasets])
    predicted = np.concatenate([np.asarray(pairs[name][1], dtype=np.float64) for name in datasets])
    return STSScores(
        datasets=dict(datasets),
        mean=_mean(datasets.values(), None, sum(sizes)),
        weighted_mean=_mean(datasets.values(), sizes, sum(sizes)),
        pooled=correlate(gold, predicted),
        absent=list(absent),
    )


def _mean(scores: Any, weights: Sequence[int] | None, n: int) -> Correlation:
    pearson, spearman = zip(*((score.pearson, score.spearman) for score in scores), strict=True)
    return Correlation(float(np.average(pearson, weights=weights)), float(np.average(spearman, weights=weights)), n)


def _pearson(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    x, y = x - x.mean(), y - y.mean()
    return float(np.clip((x @ y) / (np.linalg.norm(x) * np.linalg.norm(y)), -1.0, 1.0))
