"""Removal of the principal components that all sentences share, for each view on its own."""

from __future__ import annotations

from typing import Any

import torch
from sentence_transformers.util import all_gather
from torch import Tensor

from ..errors import UserError
from .view import unit_length
from .weights import ModuleWithWeights


class PCRemoval(ModuleWithWeights):
    """Projects each view onto the complement of its top principal components.

    In training the first component is estimated from the batch. At inference only stored components are removed, those
    that `fit_components` has estimated, so that a vector never depends on its neighbours in the batch.

    Beyond the paper, the components that remain can be whitened: those along which all sentences vary a lot are scaled
    down, by their variance to the power of -`whitening`. For similarity only; a classifier learns its own scales.

    Args:
        widths: For each view the width of its vector in each representation.
        n_components: Number of stored components; they are zero, and remove nothing, until they are fitted.
        iterations: Steps of the power iteration in training; 0 switches removal in training off.
        whitening: 0 for none, as in the paper, to 0.5 for equal variance along all components.
    """

    config_keys = ["widths", "n_components", "iterations", "whitening"]
    forward_kwargs: set[str] = {"view", "representation"}

    def __init__(
        self,
        widths: dict[str, dict[str, int]],
        n_components: int = 1,
        iterations: int = 10,
        whitening: float = 0.0,
    ) -> None:
        super().__init__()
        self.widths = widths
        self.iterations = iterations
        self.n_components = n_components
        self.whitening = whitening
        # Set by a loss that compares sentences of all processes: the batch is then the batch of all of them.
        self.across_devices = False
        for view, by_representation in widths.items():
            for representation, width in by_representation.items():
                self.register_buffer(_buffer(view, representation), torch.zeros(n_components, width))
            if whitening:
                self.register_buffer(_buffer(view, "whitening"), torch.eye(by_representation["similarity"]))

    def components(self, view: str, representation: str = "similarity") -> Tensor:
        """The stored components of a view as orthonormal rows, shape (n_components, width)."""
        return getattr(self, _buffer(view, representation))

    def store(self, components: dict[str, dict[str, Tensor]]) -> None:
        """Replace the stored components.

        Args:
            components: For each view and representation an array of shape (n_components, width).
        """
        rows_of = {
            (view, representation): components.get(view, {}).get(representation, self.components(view, representation))
            for view, by_representation in self.widths.items()
            for representation in by_representation
        }
        # All is checked before anything changes.
        for (view, representation), rows in rows_of.items():
            width = self.widths[view][representation]
            if rows.shape[1] != width:
                raise UserError(f"components of {view}/{representation} are {rows.shape[1]}, not {width} wide")
        counts = sorted({len(rows) for rows in rows_of.values()})
        if len(counts) > 1:
            raise UserError(
                f"all views and representations need the same number of components, not {counts}; fit all of them"
            )
        for (view, representation), rows in rows_of.items():
            setattr(self, _buffer(view, representation), rows.to(self.components(view, representation)))
        self.n_components = counts[0]

    def whitening_matrix(self, view: str) -> Tensor | None:
        """The matrix that scales the components of a view, shape (width, width), or None without whitening."""
        return getattr(self, _buffer(view, "whitening")) if self.whitening else None

    def store_whitening(self, whitening: float, matrices: dict[str, Tensor]) -> None:
        """Replace the matrices that scale the components; `whitening` 0 takes them away.

        Args:
            whitening: The power that the matrices stand for.
            matrices: For each view an array of shape (width, width).
        """
        for view, by_representation in self.widths.items():
            width = by_representation["similarity"]
            if whitening and matrices[view].shape != (width, width):
                raise UserError(f"the whitening matrix of {view} must be {width} x {width}")
        for view in self.widths:
            if self.whitening:
                delattr(self, _buffer(view, "whitening"))
            if whitening:
                self.register_buffer(_buffer(view, "whitening"), matrices[view].to(self.components(view)))
        self.whitening = whitening

    def clean(self, vectors: Tensor, view: str, representation: str = "similarity") -> Tensor:
        """Remove the stored components from vectors of a view, and whiten what remains."""
        vectors = remove_components(vectors, self.components(view, representation).to(vectors.dtype))
        matrix = self.whitening_matrix(view)
        if matrix is None or representation != "similarity":
            return vectors
        return vectors @ matrix.to(vectors.dtype)

    def forward(
        self, features: dict[str, Any], view: str | None = None, representation: str = "similarity", **kwargs: Any
    ) -> dict[str, Any]:
        """Remove the components from every view in `features["views"]`."""
        views: dict[str, Tensor] = features["views"]
        for name, vectors in views.items():
            if name in features.get("folded_maps", ()):
                continue
            if not self.training:
                views[name] = self.clean(vectors, name, representation)
            elif self.iterations:
                batch = vectors.detach()
                if self.across_devices:
                    batch = all_gather(batch)
                component = top_component(batch, self.iterations)
                views[name] = remove_components(vectors, component.unsqueeze(0))
        return features


def remove_components(vectors: Tensor, components: Tensor) -> Tensor:
    """Project vectors (N, D) onto the complement of orthonormal rows (k, D)."""
    return torch.addmm(vectors, vectors @ components.T, components, alpha=-1.0)


def top_component(vectors: Tensor, iterations: int) -> Tensor:
    """Estimate the first principal component of uncentred vectors by power iteration.

    Works on the smaller of the two Gram matrices. Vectors that are all zero give a zero component, which removes
    nothing.

    Args:
        vectors: Shape (N, D).
        iterations: Number of steps.

    Returns:
        A vector of length 1, or zero, shape (D,).
    """
    count, width = vectors.shape
    on_sentences = count < width
    gram = vectors @ vectors.T if on_sentences else vectors.T @ vectors
    # The sum of the vectors is close to the component; the ripple keeps the start from being orthogonal to it.
    ripple = 1.0 + 0.1 * torch.cos(torch.arange(count, device=vectors.device)).to(vectors.dtype)
    direction = ripple if on_sentences else vectors.T @ ripple
    for _ in range(iterations):
        direction = unit_length(gram @ direction)
    return unit_length(vectors.T @ direction) if on_sentences else direction


def _buffer(view: str, representation: str) -> str:
    return f"{view}_{representation}"
