"""What the views of a sentence have in common."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import UserError
from .weights import ModuleWithWeights
from .words import Words

Weighting = Literal["none", "fixed", "learned"]
Representation = Literal["similarity", "transfer"]
REPRESENTATIONS: tuple[Representation, Representation] = ("similarity", "transfer")


class View(ModuleWithWeights):
    """One way of reading a sentence. Subclass it to add another.

    A view gives three vectors of the same sentence: one to train on, one to compare sentences with ("similarity", of
    the same width in all views of a model, since they are added), and one to put a classifier on ("transfer").

    Args:
        name: How the view is asked for in `model.encode(sentences, view=name)`.
        weighting: Whether words have weights, as they have in SIF: `"none"` as in the paper, `"fixed"`, or
            `"learned"`, which trains them from where they start.
        vocab_size: Number of rows of the table of word vectors; needed for weights.
        weights: One weight per row of the table to start from; 1 if left out.
    """

    config_keys: list[str] = ["name", "weighting", "vocab_size"]
    forward_kwargs: set[str] = {"view", "representation"}

    def __init__(
        self,
        name: str,
        weighting: Weighting = "none",
        vocab_size: int | None = None,
        weights: np.ndarray | Tensor | None = None,
    ) -> None:
        super().__init__()
        self.name = name
        self.weighting = weighting
        self.vocab_size = vocab_size
        self.word_weights: Tensor | None
        if weighting == "none":
            self.word_weights = None
        else:
            if vocab_size is None:
                raise UserError(f'weighting="{weighting}" needs vocab_size')
            start = torch.ones(vocab_size) if weights is None else torch.as_tensor(weights, dtype=torch.float32)
            if start.shape != (vocab_size,):
                raise UserError(f"expected {vocab_size} word weights, got an array of shape {tuple(start.shape)}")
            if weighting == "learned":
                self.word_weights = nn.Parameter(start.clone())
            else:
                self.register_buffer("word_weights", start.clone())

    def weights_of(self, words: Words) -> Tensor | None:
        """The weight of each word in the batch (T,), or None if words have no weights."""
        return None if self.word_weights is None else self.word_weights[words.known_ids]

    def start_gently(self) -> None:
        """Beyond the paper: start with weights under which the vectors of sentences are good before any training."""

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
