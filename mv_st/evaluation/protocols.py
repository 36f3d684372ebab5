"""SentEval's protocols: how a classifier on frozen vectors is trained, chosen and scored (Conneau & Kiela 2018).

* `nested_cross_validation` (MR, CR, SUBJ, MPQA): ten stratified folds; for each, C is chosen by ten inner folds.
* `cross_validation_then_test` (TREC, MRPC): C is chosen by ten folds of the training split.
* `validation_then_test` (SST-2, SICK-E): C is chosen on the validation split.
* `relatedness` (SICK-R, STS-B): regression as the prediction of a distribution over five bins (Tai et al. 2015).

Where this differs from SentEval:

* The classifier is its `usepytorch=False` one, L2-regularised logistic regression, solved to convergence. SentEval's
  other choice stops Adam early, which adds noise and depends on its settings.
* Several classes are one softmax, where scikit-learn's `liblinear`, the default of its day, took one class against the
  rest; and the intercept is not penalised.
* Features are scaled to equal variance. Adam, by which published results are mostly trained, does not see the scale of
  a feature; a penalty does, and u * v is far smaller than |u - v|. Without it, averaged word vectors lose several
  points on SICK-R and STS-B; tasks of single sentences do not change.
* C is 2^-4, 2^-2, ... 2^8, and rises only until the score has fallen beyond chance or not been bettered twice.
  SentEval's grids (2^-2 ... 2^3, or 2^-1 ... 2^5) depend on the norm of the vectors. Beyond the best C the fits
  overfit, and take longest.
* Relatedness: cross-entropy against the target distribution (as Tai et al. do) and a penalty chosen by Pearson's r
  on the validation split, instead of squared error without penalty, stopped early by the same criterion.

The folds are those of SentEval for the same seed and order of rows: scikit-learn's StratifiedKFold with shuffling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mv_st.errors import UserError

from .classifier import Fit, Samples, classes_of, solve, solve_grid, targets_of
from .scores import correlate

STRENGTHS: tuple[float, ...] = tuple(2.0**power for power in range(-4, 10, 2))
FOLDS = 10
BINS = 5

Features = NDArray[np.float32]
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Outcome:
    """What a protocol found.

    Attributes:
        test_score: Accuracy or Pearson's r on test data; for cross-validation the mean over the outer folds.
        dev_score: Score by which C was chosen; the mean over the outer folds.
        strengths: The values of C that were chosen, one per outer fold.
        predictions: Per test sample the class id or the expected relatedness.
    """

    test_score: float
    dev_score: float
    strengths: list[float]
    predictions: NDArray[Any]


def nested_cross_validation(
    features: Features, labels: Labels, seed: int, strengths: Sequence[float] = STRENGTHS, folds: int = FOLDS
) -> Outcome:
    """Accuracy by stratified folds, with C chosen anew for each fold by inner folds of its training part."""
    n_classes = _check_labels(labels, folds)
    outer = _splits(labels, folds, seed)
    masks, inner_held_out = [], []
    for train, _ in outer:
        for inner_train, inner_test in _splits(labels[train], folds, seed):
            masks.append(_mask(train[inner_train], len(labels)))
            inner_held_out.append(train[inner_test])
    samples = Samples(features, equal_variance=True)
    targets = targets_of(labels, n_classes)
    gold = torch.as_tensor(labels)

    def inner_accuracy(fit: Fit) -> list[float]:
        predicted = classes_of(fit.scores)  # (n, outer x inner)
        hits = [_accuracy(predicted[rows, j], gold[rows]) for j, rows in enumerate(inner_held_out)]
        return list(np.reshape(hits, (folds, folds)).mean(axis=1))

    fits = solve_grid(samples, targets, torch.stack(masks, dim=1), strengths)
    chosen, dev_scores, _ = _choose(fits, inner_accuracy, len(labels))
    importance = torch.stack(
        [strengths[c] * _mask(train, len(labels)) for c, (train, _) in zip(chosen, outer, strict=True)], dim=1
    )
    predicted = classes_of(solve(samples, targets, importance).scores)
    predictions = np.empty(len(labels), dtype=np.int64)
    test_scores = []
    for fold, (_, test) in enumerate(outer):
        predictions[test] = predicted[test, fold].numpy()
        test_scores.append(_accuracy(predicted[test, fold], gold[test]))
    return Outcome(
        float(np.mean(test_scores)),
        float(np.mean(dev_scores)),
        [strengths[c] for c in chosen],
        predictions,
    )


def cross_validation_then_test(
    train: tuple[Features, Labels],
    test: tuple[Features, Labels],
    seed: int,
    strengths: Sequence[float] = STRENGTHS,
    folds: int = FOLDS,
) -> Outcome:
    """Test accuracy, with C chosen by stratified folds of the training split."""
    features, labels = train
    n_classes = _check_labels(labels, folds)
    splits = _splits(labels, folds, seed)
    masks = torch.stack([_mask(rows, len(labels)) for rows, _ in splits], dim=1)
    samples = Samples(features, equal_variance=True)
    targets = targets_of(labels, n_classes)
    gold = torch.as_tensor(labels)

    def held_out_accuracy(fit: Fit) -> list[float]:
        predicted = classes_of(fit.scores)
        return [float(np.mean([_accuracy(predicted[rows, j], gold[rows]) for j, (_, rows) in enumerate(splits)]))]

    chosen, dev_scores, _ = _choose(solve_grid(samples, targets, masks, strengths), held_out_accuracy, len(labels))
    strength = strengths[chosen[0]]
    final = solve(samples, targets, torch.full((len(labels), 1), strength))
    predictions = classes_of(final.predict(samples, test[0]))
    return Outcome(_accuracy(predictions, torch.as_tensor(test[1])), dev_scores[0], [strength], predictions.numpy())


def validation_then_test(
    train: tuple[Features, Labels],
    validation: tuple[Features, Labels],
    test: tuple[Features, Labels],
    strengths: Sequence[float] = STRENGTHS,
) -> Outcome:
    """Test accuracy, with C chosen on the validation split. The validation split is not trained on."""
    features, labels = train
    n_classes = _check_labels(labels, 1)
    samples = Samples(features, equal_variance=True)
    everything = torch.ones(len(labels), 1)
    gold = torch.as_tensor(validation[1])
    chosen, dev_scores, fits = _choose(
        solve_grid(samples, targets_of(labels, n_classes), everything, strengths),
        lambda fit: [_accuracy(classes_of(fit.predict(samples, validation[0])), gold)],
        len(gold),
    )
    predictions = classes_of(fits[chosen[0]].predict(samples, test[0]))
    return Outcome(
        _accuracy(predictions, torch.as_tensor(test[1])), dev_scores[0], [strengths[chosen[0]]], predictions.numpy()
    )


def relatedness(
    train: tuple[Features, NDArray[np.float64]],
    validation: tuple[Features, NDArray[np.float64]],
    test: tuple[Features, NDArray[np.float64]],
    lowest: float = 1.0,
    strengths: Sequence[float] = STRENGTHS,
) -> Outcome:
    """Pearson's r of a regression that predicts a distribution over five neighbouring scores.

    Args:
        train: Features and gold scores.
        validation: The same; chooses C.
        test: The same.
        lowest: Score of the first bin; the last is four above.
        strengths: Values of C to choose from.
    """
    samples = Samples(train[0], equal_variance=True)
    targets = torch.as_tensor(bin_targets(train[1], lowest), dtype=torch.float32)
    values = lowest + torch.arange(BINS, dtype=torch.float32)

    def expected_score(fit: Fit, features: Features) -> NDArray[np.float64]:
        return (fit.predict(samples, features).softmax(dim=1) @ values).numpy().astype(np.float64)

    chosen, dev_scores, fits = _choose(
        solve_grid(samples, targets, torch.ones(len(targets), 1), strengths),
        lambda fit: [correlate(validation[1], expected_score(fit, validation[0])).pearson],
        len(validation[1]),
    )
    predictions = expected_score(fits[chosen[0]], test[0])
    return Outcome(correlate(test[1], predictions).pearson, dev_scores[0], [strengths[chosen[0]]], predictions)


def bin_targets(scores: NDArray[np.float64], lowest: float = 1.0) -> NDArray[np.float64]:
    """Distributions over five bins whose expectation is the score: all weight on the two bins next to it.

    Example:
        >>> bin_targets(np.array([1.0, 3.6]))
        array([[1. , 0. , 0. , 0. , 0. ],
               [0. , 0. , 0.4, 0.6, 0. ]])
    """
    position = np.asarray(scores, dtype=np.float64) - lowest
    if position.min() < 0 or position.max() > BINS - 1:
        raise UserError(
            f"scores must lie between {lowest:g} and {lowest + BINS - 1:g}, "
            f"found {position.min() + lowest:g} to {position.max() + lowest:g}"
        )
    below = np.minimum(np.floor(position).astype(int), BINS - 2)
    share = position - below
    rows = np.arange(len(position))
    targets = np.zeros((len(position), BINS))
    targets[rows, below] = 1.0 - share
    targets[rows, below + 1] = share
    return targets


def _splits(labels: Labels, folds: int, seed: int) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    from sklearn.model_selection import StratifiedKFold

    return list(StratifiedKFold(folds, shuffle=True, random_state=seed).split(np.zeros(len(labels)), labels))


def _check_labels(labels: Labels, folds: int) -> int:
    """The number of classes, if there are at least two and each can be spread over the folds."""
    counts = np.bincount(labels)
    if len(counts) < 2:
        raise UserError("all labels are equal, there is nothing to learn")
    # Inner folds are made of nine tenths of a class.
    if counts.min() < folds + 1 and folds > 1:
        raise UserError(f"a class has only {counts.min()} rows, {folds}-fold cross-validation needs {folds + 2}")
    return len(counts)


def _mask(rows: NDArray[np.int64], n: int) -> torch.Tensor:
    mask = torch.zeros(n)
    mask[rows] = 1.0
    return mask


def _accuracy(predicted: torch.Tensor, gold: torch.Tensor) -> float:
    return float((predicted == gold).double().mean())


def _choose(
    fits: Iterator[Fit], score: Callable[[Fit], list[float]], n_scored: int
) -> tuple[list[int], list[float], list[Fit]]:
    """Choose C for each of one or more choices that are made on the same fits.

    Among scores that agree to a hundredth of a per cent the first is taken, as in SentEval.

    Args:
        fits: One per C, rising; not all of them are asked for if the scores fall.
        score: Gives the scores of a fit, one per choice.
        n_scored: Number of samples behind a score: of few, a score falls now and then by chance.

    Returns:
        Per choice the index of C and its score; and, if there is one choice only, the fits.
    """
    scores, kept = [], []
    clear_fall = 0.4 / np.sqrt(n_scored)  # about the standard error of an accuracy of 80 %
    for fit in fits:
        scores.append(score(fit))
        if len(scores[0]) == 1:
            kept.append(fit)
        table = np.asarray(scores)  # (values of C, choices)
        best = np.argmax(np.round(100 * table, 2), axis=0)
        fall = table.max(axis=0) - table[-1]
        if fall.mean() > clear_fall or (best < len(scores) - 2).all():
            break
    return [int(c) for c in best], [float(table[c, choice]) for choice, c in enumerate(best)], kept
