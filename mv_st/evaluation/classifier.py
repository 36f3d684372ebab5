r"""Logistic regression on a CPU, for many training sets at once.

Nested cross-validation with 10 x 10 folds asks for a hundred fits on almost the same data for each strength of
regularisation. They are solved together, as columns of one matrix, so that the work is a few large matrix products.

For each problem the objective is that of scikit-learn's LogisticRegression, with an intercept that is not penalised:

$$ \tfrac12 \lVert W \rVert^2 + C \sum_i m_i\, \ell(x_i W + b, y_i) $$

where m is 1 for samples in the training fold and 0 for the others, and the loss is the logistic loss (one column, two
classes) or cross-entropy with softmax (k columns; targets may be distributions). It is minimised by Newton's method,
the Newton step found by conjugate gradients. What makes that fast is a preconditioner: along the leading principal
directions of the samples the curvature is close to 1 + C c s, with s the sum of squares in that direction and c the
mean of p (1 - p), the same directions for all folds and all C.

On request features are scaled to equal variance first, and with it the penalty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

_SAMPLED_ROWS = 2048
_DIRECTIONS = 512


class Samples:
    """Training samples, centred in effect: an intercept absorbs that, and the problem is better conditioned.

    Args:
        features: Samples as rows, float32, shape (n, d). Not copied and not changed.
        equal_variance: Scale each feature to the same variance, such that samples have length 1 on average.

    Attributes:
        mean: Mean of each feature (d,).
        scale: Factor of each feature (d,); X below are the samples centred and scaled.
    """

    def __init__(self, features: NDArray[np.float32] | Tensor, equal_variance: bool = False) -> None:
        self.features = torch.as_tensor(features, dtype=torch.float32)
        self.n, self.width = self.features.shape
        variance, self.mean = torch.var_mean(self.features, dim=0, correction=0)
        self.scale = _to_equal_variance(variance) if equal_variance else torch.ones(self.width)
        total = self.n * (variance * self.scale.square()).sum()
        self.directions, self.squares, self.other_square = self._principal_directions(total)

    # Both products are computed transposed: with few columns, matrix libraries are up to 17 times as fast with the
    # narrow matrix on the left and its rows in memory.

    def forward(self, weights: Tensor) -> Tensor:
        """X W for W of shape (d, q)."""
        weights = weights * self.scale.unsqueeze(1)
        return (_rows(weights) @ self.features.T).T.contiguous() - self.mean @ weights

    def backward(self, scores: Tensor) -> Tensor:
        """X^T S for S of shape (n, q)."""
        product = (_rows(scores) @ self.features).T - torch.outer(self.mean, scores.sum(dim=0))
        return (product * self.scale.unsqueeze(1)).contiguous()

    def precondition(self, gradient: Tensor, level: Tensor) -> Tensor:
        """About (1 + level X^T X)^-1 times a gradient of shape (d, q), with one level per column."""
        other = 1.0 / (1.0 + self.other_square * level)
        along = 1.0 / (1.0 + self.squares.unsqueeze(1) * level) - other
        inside = along.T * (_rows(gradient) @ self.directions)  # (q, k)
        return other * gradient + (inside @ self.directions.T).T

    def _principal_directions(self, total: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Leading directions (d, k) of some of the rows, sums of squares along them and along an average other."""
        generator = torch.Generator().manual_seed(0)
        rows = torch.randperm(self.n, generator=generator)[:_SAMPLED_ROWS]
        sample = (self.features[rows] - self.mean) * self.scale
        keep = min(_DIRECTIONS, *sample.shape)
        if len(sample) < self.width:
            values, vectors = torch.linalg.eigh(sample @ sample.T)
            directions = sample.T @ (vectors[:, -keep:] / values[-keep:].clamp(min=1e-12).sqrt())
            directions = directions[:, values[-keep:] > 1e-6 * values[-1]]
        else:
            directions = torch.linalg.eigh(sample.T @ sample).eigenvectors[:, -keep:]
        squares = self.forward(directions).square().sum(dim=0)
        others = max(1, min(self.n, self.width) - directions.shape[1])
        return directions, squares, ((total - squares.sum()) / others).clamp(min=0.0)


@dataclass(frozen=True)
class Fit:
    """Solved problems.

    Attributes:
        weights: Shape (d, problems, outputs).
        intercept: For centred samples, shape (problems, outputs).
        scores: X W + b for all n samples, in the training fold or not, shape (n, problems, outputs).
        steps: Conjugate gradient steps that were needed.
    """

    weights: Tensor
    intercept: Tensor
    scores: Tensor
    steps: int

    def coefficients(self, samples: Samples, problem: int = 0) -> tuple[Tensor, Tensor]:
        """Weights (d, outputs) and intercept (outputs,) of one problem, for features as they were given."""
        weights = self.weights[:, problem] * samples.scale.unsqueeze(1)
        return weights, self.intercept[problem] - samples.mean @ weights

    def predict(self, samples: Samples, features: NDArray[np.float32], problem: int = 0) -> Tensor:
        """Scores of new samples by one of the problems, shape (samples, outputs)."""
        weights, intercept = self.coefficients(samples, problem)
        return torch.as_tensor(features, dtype=torch.float32) @ weights + intercept


def targets_of(labels: NDArray[np.int64], n_classes: int) -> Tensor:
    """Targets for class ids: one column of 0 and 1 for two classes, one-hot columns for more."""
    ids = torch.as_tensor(labels)
    return ids.float().unsqueeze(1) if n_classes == 2 else F.one_hot(ids, n_classes).float()


def classes_of(scores: Tensor) -> Tensor:
    """Class ids for scores whose last dimension are the outputs."""
    return (scores[..., 0] > 0).long() if scores.shape[-1] == 1 else scores.argmax(dim=-1)


def solve_grid(
    samples: Samples, targets: Tensor, masks: Tensor, strengths: Sequence[float], tolerance: float = 1e-2
) -> Iterator[Fit]:
    """Solve all training folds for each C of a rising grid.

    Folds have most samples in common, and a change of C moves their solutions alike. So the problem of all samples,
    which is one column and cheap, is solved first, and the others begin where its move takes them.

    Args:
        samples: The samples.
        targets: Shape (n, outputs).
        masks: 1 where a sample is in a training fold, shape (n, folds).
        strengths: The values of C.
        tolerance: See `solve`.

    Yields:
        One fit per C.
    """
    everything = torch.ones(samples.n, 1)
    folds: Fit | None = None
    whole: Fit | None = None
    for strength in strengths:
        if masks.shape[1] > 1:
            before = whole
            whole = solve(samples, targets, strength * everything, before, tolerance)
            start: Fit | None = _moved(folds, before, whole, masks.shape[1])
        else:
            start = folds
        folds = solve(samples, targets, strength * masks, start, tolerance)
        yield folds


def solve(
    samples: Samples,
    targets: Tensor,
    importance: Tensor,
    start: Fit | None = None,
    tolerance: float = 1e-2,
    max_newton: int = 50,
) -> Fit:
    """Minimise the objective for several problems together.

    Args:
        samples: The samples.
        targets: Shape (n, outputs).
        importance: C times mask, shape (n, problems).
        start: Where to begin; at zero if not given.
        tolerance: Stop when the gradient is this small against the weights. The objective is 1-strongly convex in W,
            so this bounds the relative error of W; in practice it is far smaller.
        max_newton: Newton steps at most.

    Returns:
        The solutions.
    """
    n, problems = importance.shape
    outputs = targets.shape[1]
    if start is None:
        weights = torch.zeros(samples.width, problems, outputs)
        intercept, scores = torch.zeros(problems, outputs), torch.zeros(n, problems, outputs)
    else:
        weights, intercept, scores = start.weights.clone(), start.intercept.clone(), start.scores.clone()
    active = torch.arange(problems)
    steps = 0
    for _ in range(max_newton):
        loss = _Loss(targets.unsqueeze(1), importance[:, active].unsqueeze(2))
        residual = loss.gradient(scores[:, active])
        gradient = weights[:, active] + _per_output(samples.backward, residual)
        gradient_b = loss.of_intercept(residual)
        # The intercept is not penalised: what its gradient is worth follows from its own curvature.
        bend_b = loss.curvature(scores[:, active]).of_intercept()
        size = gradient.square().sum(dim=(0, 2)) + (gradient_b.square() / bend_b).sum(dim=1)
        length = weights[:, active].square().sum(dim=(0, 2))
        unsolved = size > tolerance**2 * length.clamp(min=1e-12)
        if not unsolved.any():
            break
        active = active[unsolved]
        loss = _Loss(targets.unsqueeze(1), importance[:, active].unsqueeze(2))
        step, step_b, change, used = _newton_step(
            samples, loss, scores[:, active], gradient[:, unsolved], gradient_b[unsolved]
        )
        steps += used
        slope = (weights[:, active] * step).sum(dim=(0, 2))
        pace = _line_search(loss, scores[:, active], change, slope, step.square().sum(dim=(0, 2))).unsqueeze(1)
        weights[:, active] += pace * step
        intercept[active] += pace * step_b
        scores[:, active] += pace * change
        active = active[pace.squeeze(1) > 0]  # where the objective no longer falls, float32 can do no better
        if not len(active):
            break
    return Fit(weights, intercept, scores, steps)


def _newton_step(
    samples: Samples, loss: _Loss, scores: Tensor, gradient: Tensor, gradient_b: Tensor, max_steps: int = 100
) -> tuple[Tensor, Tensor, Tensor, int]:
    """Solve H d = -gradient by preconditioned conjugate gradients, to a tenth in the norm of the preconditioner.

    Returns:
        The step in the weights (d, problems, outputs), in the intercept (problems, outputs), the change of the scores
        that it makes (n, problems, outputs), and the number of conjugate gradient steps.
    """
    curvature = loss.curvature(scores)
    bend_b = curvature.of_intercept()
    total = curvature.diagonal.sum(dim=0)  # (problems, outputs)
    level = (total / loss.importance.count_nonzero(dim=0).clamp(min=1)).flatten()

    def precondition(rest: Tensor, rest_b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        better = _per_output(lambda columns: samples.precondition(columns, level), rest)
        better_b = rest_b / bend_b
        return better, better_b, _inner(rest, better, rest_b, better_b)

    rest, rest_b = -gradient, -gradient_b
    move, move_b, size = precondition(rest, rest_b)
    goal = 0.01 * size
    step, step_b, change = torch.zeros_like(gradient), torch.zeros_like(gradient_b), torch.zeros_like(scores)
    used = 0
    for _ in range(max_steps):
        used += 1
        moved = _per_output(samples.forward, move) + move_b
        image = curvature(moved)
        image_b = loss.of_intercept(image)
        image = move + _per_output(samples.backward, image)
        bend = _inner(move, image, move_b, image_b)
        pace = torch.where(size > goal, size / bend.clamp(min=1e-30), 0.0).unsqueeze(1)
        step += pace * move
        step_b += pace * move_b
        change += pace * moved
        rest = rest - pace * image
        rest_b = rest_b - pace * image_b
        better, better_b, new_size = precondition(rest, rest_b)
        if not (new_size > goal).any():
            break
        ratio = (new_size / size.clamp(min=1e-30)).unsqueeze(1)
        move = better + ratio * move
        move_b = better_b + ratio * move_b
        size = new_size
    return step, step_b, change, used


class _Loss:
    """The data term of the objective, as a function of scores (n, problems, outputs)."""

    def __init__(self, targets: Tensor, importance: Tensor) -> None:
        self.targets = targets  # (n, 1, outputs)
        self.importance = importance  # (n, problems, 1)
        self.binary = targets.shape[2] == 1

    def value(self, scores: Tensor) -> Tensor:
        """Per problem, in double precision."""
        norm = F.softplus(scores).squeeze(2) if self.binary else scores.logsumexp(dim=2)
        losses = norm - (self.targets * scores).sum(dim=2)
        return (self.importance.squeeze(2) * losses).sum(dim=0, dtype=torch.float64)

    def gradient(self, scores: Tensor) -> Tensor:
        return self.importance * (self._probabilities(scores) - self.targets)

    def curvature(self, scores: Tensor) -> _Curvature:
        return _Curvature(self._probabilities(scores), self.importance, self.binary)

    def of_intercept(self, change: Tensor) -> Tensor:
        """The part of a gradient or Hessian product that belongs to the intercept, shape (problems, outputs)."""
        total = change.sum(dim=0)
        # Softmax does not see a number added to all outputs: rounding must not let it grow.
        return total if self.binary else total - total.mean(dim=1, keepdim=True)

    def _probabilities(self, scores: Tensor) -> Tensor:
        return scores.sigmoid() if self.binary else scores.softmax(dim=2)


class _Curvature:
    """The Hessian of the data term at fixed scores, applied to a change of scores."""

    def __init__(self, probabilities: Tensor, importance: Tensor, binary: bool) -> None:
        self.probabilities = probabilities
        self.importance = importance
        self.binary = binary
        self.diagonal = importance * probabilities * (1.0 - probabilities)

    def of_intercept(self) -> Tensor:
        """About the curvature along each intercept, shape (problems, outputs)."""
        total = self.diagonal.sum(dim=0)
        # An output that no target asks for has next to none, and its intercept would be thrown anywhere.
        return total.clamp(min=1e-12).maximum(1e-3 * total.amax(dim=1, keepdim=True))

    def __call__(self, change: Tensor) -> Tensor:
        if self.binary:
            return self.diagonal * change
        weighted = self.probabilities * change
        return self.importance * (weighted - self.probabilities * weighted.sum(dim=2, keepdim=True))


def _line_search(loss: _Loss, scores: Tensor, change: Tensor, slope: Tensor, bend: Tensor) -> Tensor:
    """Halve the Newton step until the objective falls; no product is needed for a trial.

    Args:
        loss: The data term.
        scores: Where we are.
        change: What a full step does to the scores.
        slope: Derivative of the penalty along the step, per problem.
        bend: Its second derivative.

    Returns:
        Per problem the share of the step to take; 0 if none helps.
    """
    before = loss.value(scores)
    pace = torch.ones_like(slope)
    for _ in range(20):
        gain = before - loss.value(scores + pace.view(-1, 1) * change) - pace * (slope + 0.5 * pace * bend)
        worse = gain <= 0
        if not worse.any():
            break
        pace = torch.where(worse, 0.5 * pace, pace)
    return torch.where(gain <= 1e-9 * before, 0.0, pace)


def _inner(left: Tensor, right: Tensor, left_b: Tensor, right_b: Tensor) -> Tensor:
    """Inner product of weights and intercepts, per problem."""
    return (left * right).sum(dim=(0, 2)) + (left_b * right_b).sum(dim=1)


def _moved(folds: Fit | None, before: Fit | None, whole: Fit, count: int) -> Fit:
    """The fits of folds, moved as the fit of all samples has moved; without any, that fit for each fold."""
    if folds is None or before is None:
        return Fit(
            whole.weights.repeat(1, count, 1), whole.intercept.repeat(count, 1), whole.scores.repeat(1, count, 1), 0
        )
    return Fit(
        folds.weights + (whole.weights - before.weights),
        folds.intercept + (whole.intercept - before.intercept),
        folds.scores + (whole.scores - before.scores),
        steps=0,
    )


def _rows(columns: Tensor) -> Tensor:
    """The transposed matrix, as rows in memory."""
    return columns.T.contiguous()


def _per_output(product: Callable[[Tensor], Tensor], columns: Tensor) -> Tensor:
    """Apply a product with a matrix to a tensor (rows, problems, outputs) as to one matrix of many columns."""
    return product(columns.flatten(start_dim=1)).unflatten(1, columns.shape[1:])


def _to_equal_variance(variance: Tensor) -> Tensor:
    """Factors that make the variances of features equal, and their sum 1. Constant features are left out."""
    varies = variance > 1e-12 * variance.max()
    return torch.where(varies, (variance * varies.sum()).clamp(min=1e-38).rsqrt(), 0.0)
