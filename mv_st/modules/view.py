"""What the views of a sentence have in common."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import UserError
from .weights import ModuleWithWeights
from .words import Words

Representation = Literal["similarity", "transfer"]
REPRESENTATIONS: tuple[Representation, Representation] = ("similarity", "transfer")


class View(ModuleWithWeights):
    """One way of reading a sentence. Subclass it to add another.

    A view gives three vectors of the same sentence: one to train on, one to compare sentences with ("similarity", of
    the same width in all views of a model, since they are added), and one to put a classifier on ("transfer").

    Args:
        name: How the view is asked for in `model.encode(sentences, view=name)`.
    """

    config_keys: list[str] = ["name"]
    forward_kwargs: set[str] = {"view", "representation"}

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    @property
    @abstractmethod
    def widths(self) -> dict[str, int]:
        """Width of the vector of each representation."""

    @abstractmethod
    def training_vector(self, words: Words) -> Tensor:
        """The vector that the loss sees, shape (N, widths["similarity"])."""

    @abstractmethod
    def similarity_vector(self, words: Words) -> Tensor:
        """The vector for comparing sentences, shape (N, widths["similarity"])."""

    @abstractmethod
    def transfer_vector(self, words: Words) -> Tensor:
        """The features for a classifier, shape (N, widths["transfer"])."""

    def forward(
        self, features: dict[str, Any], view: str | None = None, representation: str = "similarity", **kwargs: Any
    ) -> dict[str, Any]:
        """Add this view's vector to `features["views"]`, unless another view alone was asked for."""
        if representation not in REPRESENTATIONS:
            raise UserError(f"no representation {representation!r}; choose {' or '.join(REPRESENTATIONS)}")
        views = features.setdefault("views", {})
        if view is not None and view != self.name:
            return features
        words: Words = features["words"]
        parameter = next(self.parameters(), None)
        words.dtype = torch.float32 if parameter is None else parameter.dtype
        if self.training:
            views[self.name] = self.training_vector(words)
        elif representation == "transfer":
            views[self.name] = self.transfer_vector(words)
        else:
            views[self.name] = self.similarity_vector(words)
        return features


def unit_length(vectors: Tensor) -> Tensor:
    """Scale vectors to length 1. Zero vectors stay zero, also in half precision, where the usual 1e-12 is zero."""
    return F.normalize(vectors, dim=-1, eps=max(1e-12, torch.finfo(vectors.dtype).tiny))
