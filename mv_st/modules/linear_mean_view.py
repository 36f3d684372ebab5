"""The parallel view g: a linear map of each word, averaged."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .view import View, Weighting
from .words import Words, extreme_per_sentence, mean_per_sentence


class LinearMeanView(View):
    """Maps every word by the same matrix and averages, without regard to order.

    | vector | how |
    | --- | --- |
    | training, similarity | mean of W x, with the weights of the words if they have any |
    | transfer | [max; mean; min] of W x, without weights |

    Args:
        embedding_dimension: Width of the word vectors.
        output_dimension: Width of the view, 2d in the paper.
        name: How the view is asked for.
        weighting: Word weights, see `View`.
        vocab_size: See `View`.
        weights: See `View`.
    """

    config_keys = ["embedding_dimension", "output_dimension", *View.config_keys]

    def __init__(
        self,
        embedding_dimension: int,
        output_dimension: int,
        name: str = "linear",
        weighting: Weighting = "none",
        vocab_size: int | None = None,
        weights: np.ndarray | Tensor | None = None,
    ) -> None:
        super().__init__(name, weighting, vocab_size, weights)
        self.embedding_dimension = embedding_dimension
        self.output_dimension = output_dimension
        self.linear = nn.Linear(embedding_dimension, output_dimension, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise the map as the paper does."""
        nn.init.kaiming_normal_(self.linear.weight)

    def start_gently(self) -> None:
        """Beyond the paper: start with a rotation, under which sentences are as alike as their word vectors are."""
        nn.init.orthogonal_(self.linear.weight)

    @property
    def widths(self) -> dict[str, int]:
        """Width of the vector of each representation."""
        return {"similarity": self.output_dimension, "transfer": 3 * self.output_dimension}

    def forward(
        self, features: dict[str, Any], view: str | None = None, representation: str = "similarity", **kwargs: Any
    ) -> dict[str, Any]:
        """As in all views; but where the map that includes the removal of components is at hand, take that."""
        folded_map = features.get("folded_maps", {}).get(self.name)
        if folded_map is None or view not in (None, self.name):
            return super().forward(features, view=view, representation=representation, **kwargs)
        words: Words = features["words"]
        words.dtype = folded_map.dtype
        features.setdefault("views", {})[self.name] = words.mean(self.weights_of(words)) @ folded_map
        return features

    def training_vector(self, words: Words) -> Tensor:
        """Mean of W x."""
        return self.similarity_vector(words)

    def similarity_vector(self, words: Words) -> Tensor:
        """Mean of W x, computed as W times the mean of x, which is the same."""
        return self.linear(words.mean(self.weights_of(words)))

    def transfer_vector(self, words: Words) -> Tensor:
        """[max; mean; min] of W x, without weights: a classifier may need what frequent words tell, such as "not".

        The extremes need W x of every word.
        """
        mapped = self.linear(words.vectors)  # (T, 2d)
        return torch.cat(
            [
                extreme_per_sentence(mapped, words.lengths, "max"),
                mean_per_sentence(mapped, words.lengths),
                extreme_per_sentence(mapped, words.lengths, "min"),
            ],
            dim=1,
        )
