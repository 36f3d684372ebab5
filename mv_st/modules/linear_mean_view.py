"""The parallel view g: a linear map of each word, averaged."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import UserError
from .view import View
from .words import Words, extreme_per_sentence, mean_per_sentence

Weighting = Literal["none", "fixed", "learned"]


class LinearMeanView(View):
    """Maps every word by the same matrix and averages, without regard to order.

    | vector | how |
    | --- | --- |
    | training, similarity | mean of W x |
    | transfer | [max; mean; min] of W x |

    Args:
        embedding_dimension: Width of the word vectors.
        output_dimension: Width of the view, 2d in the paper.
        name: How the view is asked for.
        weighting: Whether words have weights, as they have in SIF: `"none"` as in the paper, `"fixed"`, or
            `"learned"`, which trains them from where they start.
        vocab_size: Number of rows of the table of word vectors; needed for weights.
        weights: One weight per row of the table to start from; 1 if left out.
    """

    config_keys = ["embedding_dimension", "output_dimension", "name", "weighting", "vocab_size"]

    def __init__(
        self,
        embedding_dimension: int,
        output_dimension: int,
        name: str = "linear",
        weighting: Weighting = "none",
        vocab_size: int | None = None,
        weights: np.ndarray | Tensor | None = None,
    ) -> None:
        super().__init__(name)
        self.embedding_dimension = embedding_dimension
        self.output_dimension = output_dimension
        self.weighting = weighting
        self.vocab_size = vocab_size
        self.linear = nn.Linear(embedding_dimension, output_dimension, bias=False)
        self.reset_parameters()
        if weighting != "none":
            if vocab_size is None:
                raise UserError(f'weighting="{weighting}" needs vocab_size')
            start = torch.ones(vocab_size) if weights is None else torch.as_tensor(weights, dtype=torch.float32)
            if start.shape != (vocab_size,):
                raise UserError(f"expected {vocab_size} word weights, got an array of shape {tuple(start.shape)}")
            if weighting == "learned":
                self.word_weights = nn.Parameter(start.clone())
            else:
                self.register_buffer("word_weights", start.clone())

    def reset_parameters(self) -> None:
        """Initialise the map as the paper does."""
        nn.init.kaiming_normal_(self.linear.weight)

    @property
    def widths(self) -> dict[str, int]:
        """Width of the vector of each representation."""
        return {"similarity": self.output_dimension, "transfer": 3 * self.output_dimension}

    def _weights_of(self, words: Words) -> Tensor | None:
        """The weight of each word in the batch (T,)."""
        if self.weighting == "none":
            return None
        return self.word_weights[words.known_ids]

    def forward(
        self, features: dict[str, Any], view: str | None = None, representation: str = "similarity", **kwargs: Any
    ) -> dict[str, Any]:
        """As in all views; but where the map that includes the removal of components is at hand, take that."""
        folded_map = features.get("folded_maps", {}).get(self.name)
        if folded_map is None or view not in (None, self.name):
            return super().forward(features, view=view, representation=representation, **kwargs)
        words: Words = features["words"]
        words.dtype = folded_map.dtype
        features.setdefault("views", {})[self.name] = words.mean(self._weights_of(words)) @ folded_map
        return features

    def training_vector(self, words: Words) -> Tensor:
        """Mean of W x."""
        return self.similarity_vector(words)

    def similarity_vector(self, words: Words) -> Tensor:
        """Mean of W x, computed as W times the mean of x, which is the same."""
        return self.linear(words.mean(self._weights_of(words)))

    def transfer_vector(self, words: Words) -> Tensor:
        """[max; mean; min] of W x. The extremes need W x of every word."""
        mapped = self.linear(words.vectors)  # (T, 2d)
        weights = self._weights_of(words)
        if weights is not None:
            mapped = mapped * weights.unsqueeze(1)
        return torch.cat(
            [
                extreme_per_sentence(mapped, words.lengths, "max"),
                mean_per_sentence(mapped, words.lengths),
                extreme_per_sentence(mapped, words.lengths, "min"),
            ],
            dim=1,
        )
