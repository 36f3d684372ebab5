"""The words of a batch of sentences, one after another without padding: what the views read."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F


class Words:
    """Word ids of N sentences, T words in all, and the frozen tables that hold their vectors.

    Vectors are looked up when a view asks for them, in the form it asks for: the sequential view needs the vector of
    every word, the linear view only their mean.

    Args:
        ids: Word ids of all sentences, shape (T,). The id -1 - i stands for row i of `extra`.
        lengths: Number of words in each sentence, at least 1, shape (N,).
        table: Word vectors; row 0 is the zero vector of unknown words.
        extra: Vectors of unknown words composed from subwords, for this batch only.
        dtype: Type to compute in, whatever the table is stored in.
    """

    def __init__(
        self,
        ids: Tensor,
        lengths: Tensor,
        table: Tensor,
        extra: Tensor | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        self.lengths = lengths
        self.table = table
        self.extra = extra
        self.dtype = dtype or table.dtype
        self._ids = ids

    @cached_property
    def known_ids(self) -> Tensor:
        """Ids within the vocabulary, with 0 in place of words that only `extra` knows."""
        if self.extra is None:
            return self._ids
        return self._ids.clamp(min=0)

    @property
    def vectors(self) -> Tensor:
        """One row per word, shape (T, dim)."""
        return self._stored_vectors.to(self.dtype)

    @cached_property
    def _stored_vectors(self) -> Tensor:
        return self._look_up(self._ids)

    def distinct(self, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """One row per distinct word, shape (U, dim), and for each word of the batch its row, shape (T,).

        Args:
            weights: One weight per row of the table; vectors are multiplied by those of their words.
        """
        ids, index = torch.unique(self._ids, return_inverse=True)
        vectors = self._look_up(ids).to(self.dtype)
        if weights is not None:
            vectors = vectors * weights[ids.clamp(min=0)].to(self.dtype).unsqueeze(1)
        return vectors, index

    def _look_up(self, ids: Tensor) -> Tensor:
        if self.extra is None:
            return F.embedding(ids, self.table)
        vectors = F.embedding(ids.clamp(min=0), self.table)
        is_extra = ids < 0
        vectors[is_extra] = self.extra[-1 - ids[is_extra]]
        return vectors

    @cached_property
    def starts(self) -> Tensor:
        """Position of the first word of each sentence, shape (N,)."""
        return torch.cumsum(self.lengths, 0) - self.lengths

    def mean(self, weights: Tensor | None = None) -> Tensor:
        """Mean word vector of each sentence, shape (N, dim).

        Args:
            weights: One weight per word in the batch, shape (T,). The weighted sum is divided by the number of words,
                not by the sum of weights.
        """
        if self.table.dtype != self.dtype:
            return mean_per_sentence(self.vectors, self.lengths, weights)
        # Reads each vector once and never writes the (T, dim) matrix.
        sums = F.embedding_bag(self.known_ids, self.table, self.starts, mode="sum", per_sample_weights=weights)
        if self.extra is not None:
            # Few words, which are zero so far.
            places = torch.nonzero(self._ids < 0).squeeze(1)
            vectors = self.extra[-1 - self._ids[places]]
            if weights is not None:
                vectors = vectors * weights[places].unsqueeze(1)
            sums = sums.index_add(0, sentence_index(self.lengths)[places], vectors)
        return sums / self.lengths.unsqueeze(1)


def join_batches(batches: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Join preprocessed batches into one: the sentences of the first, then those of the second, and so on."""
    if len(batches) == 1:
        return batches[0]
    ids, rows, offsets = [], [], []
    unknown_words = subwords = 0
    for batch in batches:
        ids.append(torch.where(batch["input_ids"] < 0, batch["input_ids"] - unknown_words, batch["input_ids"]))
        if "subword_rows" in batch:
            rows.append(batch["subword_rows"])
            offsets.append(batch["subword_offsets"] + subwords)
            unknown_words += len(batch["subword_offsets"])
            subwords += len(batch["subword_rows"])
    joined = {
        "input_ids": torch.cat(ids),
        "sentence_lengths": torch.cat([batch["sentence_lengths"] for batch in batches]),
    }
    if rows:
        joined |= {"subword_rows": torch.cat(rows), "subword_offsets": torch.cat(offsets)}
    return joined


def mean_per_sentence(rows: Tensor, lengths: Tensor, weights: Tensor | None = None) -> Tensor:
    """Average the rows (T, D) of each sentence: (N, D). Rows may be multiplied by weights (T,) before."""
    if weights is not None:
        rows = rows * weights.to(rows.dtype).unsqueeze(1)
    # One sparse-free matrix product would need (N, T); adding row by row is linear in the input.
    sums = rows.new_zeros(len(lengths), rows.shape[1]).index_add(0, sentence_index(lengths), rows)
    return sums / lengths.unsqueeze(1)


def extreme_per_sentence(rows: Tensor, lengths: Tensor, extreme: str) -> Tensor:
    """Element-wise "max" or "min" of the rows (T, D) of each sentence: (N, D)."""
    return torch.segment_reduce(rows, extreme, lengths=lengths)


def sentence_index(lengths: Tensor) -> Tensor:
    """For each word the number of its sentence, shape (T,).

    Example:
        >>> sentence_index(torch.tensor([2, 1, 3])).tolist()
        [0, 0, 1, 2, 2, 2]
    """
    return torch.repeat_interleave(torch.arange(len(lengths), device=lengths.device), lengths)
