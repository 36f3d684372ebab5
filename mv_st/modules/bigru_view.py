"""The sequential view f: a bi-directional GRU over the words."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from .gru_kernel import (
    bidirectional_gru,
    mean_and_last_state,
    pooled_bidirectional_gru,
    reference_bidirectional_gru,
)
from .view import View, Weighting
from .words import Words, extreme_per_sentence, mean_per_sentence

FEW_FLOATS = 2048
"""In the vectors of so few sentences that stock PyTorch, which calls fewer operations per word, is faster than we."""


class BiGRUView(View):
    """Reads the words in order, forwards and backwards.

    | vector | how |
    | --- | --- |
    | training | last state: forward at the last word, backward at the first (`train_on="last"`), or the mean state |
    | similarity | mean state, 2 x hidden_size; with `fade_out` also the states after the end |
    | transfer | [max; mean; min; last] of the states, 8 x hidden_size |

    Weights start as He et al. (2015) propose, the reset and update gates with a bias of 1.

    Args:
        embedding_dimension: Width of the word vectors.
        hidden_size: Units in each direction, d in the paper.
        name: How the view is asked for.
        train_on: The state to train on; the paper trains on the last one and tests on the mean.
        weighting: Weights by which the word vectors are multiplied before the GRU reads them for training and
            similarity, see `View`: a word of little weight leaves the state nearly as it is.
        vocab_size: See `View`.
        weights: See `View`.
        fade_out: Beyond the paper: count in the mean state what the states would be after the end of the sentence, as
            they fade. Without, the last words of a sentence are in fewer states than the first (and in the backward
            direction the first), so that two sentences of the same words in another order are less alike than they
            should be, above all if they are short.
    """

    config_keys = ["embedding_dimension", "hidden_size", "train_on", "fade_out", *View.config_keys]

    def __init__(
        self,
        embedding_dimension: int,
        hidden_size: int,
        name: str = "gru",
        train_on: Literal["last", "mean"] = "last",
        weighting: Weighting = "none",
        vocab_size: int | None = None,
        weights: np.ndarray | Tensor | None = None,
        fade_out: bool = False,
    ) -> None:
        super().__init__(name, weighting, vocab_size, weights)
        self.fade_out = fade_out
        self.embedding_dimension = embedding_dimension
        self.hidden_size = hidden_size
        self.train_on = train_on
        # Of a training run, not of the model: whether its products are computed in bfloat16.
        self.train_in_bfloat16 = False
        self.gru = nn.GRU(embedding_dimension, hidden_size, bidirectional=True)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise the weights as the paper does."""
        for parameter_name, parameter in self.gru.named_parameters():
            if parameter_name.startswith("weight"):
                nn.init.kaiming_normal_(parameter)
            else:
                nn.init.zeros_(parameter)
            # PyTorch adds two biases; one of them carries the 1 of the reset and the update gate.
            if parameter_name.startswith("bias_ih"):
                with torch.no_grad():
                    parameter[: 2 * self.hidden_size] = 1.0

    def start_gently(self) -> None:
        """Beyond the paper: start with states that remember the last words and are not upset by them.

        Recurrent weights of the size that He et al. propose make an untrained GRU chaotic: a word early in a sentence
        upsets all states after it. With a tenth of that the mean state is a good sentence vector before any training,
        and training adds what order tells.
        """
        with torch.no_grad():
            for suffix in ("", "_reverse"):
                getattr(self.gru, f"weight_hh_l0{suffix}").mul_(0.1)

    def start_like(self, linear_map: Tensor) -> None:
        """Beyond the paper: start with new states that are a linear map of the word, squashed; gates stay as they are.

        After `start_gently` the mean state is then close to the vector of a linear view with that map.

        Args:
            linear_map: The map, shape (2 x hidden_size, embedding_dimension). It is scaled to the size that He et al.
                propose.
        """
        d = self.hidden_size
        with torch.no_grad():
            scaled = linear_map * (2 / self.embedding_dimension) ** 0.5 / linear_map.std()
            for name, rows in (("weight_ih_l0", scaled[:d]), ("weight_ih_l0_reverse", scaled[d:])):
                getattr(self.gru, name)[2 * d :] = rows

    @property
    def widths(self) -> dict[str, int]:
        """Width of the vector of each representation."""
        return {"similarity": 2 * self.hidden_size, "transfer": 8 * self.hidden_size}

    def training_vector(self, words: Words) -> Tensor:
        """Last or mean state."""
        with torch.autocast("cpu", torch.bfloat16) if self.train_in_bfloat16 else nullcontext():
            return self._pooled(words, self.train_on)

    def similarity_vector(self, words: Words) -> Tensor:
        """Mean state."""
        return self._pooled(words, "mean")

    def _pooled(self, words: Words, pool: Literal["last", "mean"]) -> Tensor:
        vectors, index = words.distinct(self.word_weights)
        in_full_precision = words.dtype.itemsize >= 4  # stock PyTorch would compute in half precision
        if (
            len(words.lengths) * 2 * self.hidden_size < FEW_FLOATS
            and in_full_precision
            and not torch.is_grad_enabled()
        ):
            states, last = reference_bidirectional_gru(vectors, words.lengths.cpu(), self.gru, index)
            mean = mean_per_sentence(states, words.lengths)
        elif pool == "last":
            return pooled_bidirectional_gru(vectors, words.lengths.cpu(), self.gru, pool, index)
        else:
            mean, last = mean_and_last_state(vectors, words.lengths.cpu(), self.gru, index)
        if pool == "last":
            return last
        if not self.fade_out:
            return mean
        return mean + last * self._still_remembered().to(last.dtype) / words.lengths.unsqueeze(1)

    def _still_remembered(self) -> Tensor:
        """What the last state adds to those after the end, where nothing but its bias moves the update gate z: (2d,).

        The sum z + z^2 + z^3 ... = z / (1 - z), which for z = sigmoid(bias) is exp(bias).
        """
        update = slice(self.hidden_size, 2 * self.hidden_size)
        gru: Any = self.gru
        forward = gru.bias_ih_l0[update] + gru.bias_hh_l0[update]
        backward = gru.bias_ih_l0_reverse[update] + gru.bias_hh_l0_reverse[update]
        return torch.cat([forward, backward]).exp()

    def transfer_vector(self, words: Words) -> Tensor:
        """[max; mean; min; last] of the states, without weights: a classifier may need the words that link others."""
        vectors, index = words.distinct()
        states, last = bidirectional_gru(vectors, words.lengths.cpu(), self.gru, index)
        return torch.cat(
            [
                extreme_per_sentence(states, words.lengths, "max"),
                mean_per_sentence(states, words.lengths),
                extreme_per_sentence(states, words.lengths, "min"),
                last,
            ],
            dim=1,
        )
