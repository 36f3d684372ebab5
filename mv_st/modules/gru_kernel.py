"""The bi-directional GRU of the sequential view, as a function over padding-free input."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence


def reference_bidirectional_gru(tokens: Tensor, lengths: Tensor, gru: nn.GRU) -> tuple[Tensor, Tensor]:
    """`bidirectional_gru` in stock PyTorch: `nn.GRU` over a packed batch. The fast path is tested against it.

    Args:
        tokens: Word vectors of all sentences one after another, (T, I).
        lengths: Words per sentence, (N,) int64 on the CPU, each at least 1, summing to T, in any order.
        gru: One bi-directional layer with biases, which holds the parameters.

    Returns:
        The states (T, 2d) in the order of `tokens`, and (N, 2d) the final state of either direction per sentence.
    """
    padded = pad_sequence(tokens.split(lengths.tolist()), batch_first=True)
    packed = pack_padded_sequence(padded, lengths, batch_first=True, enforce_sorted=False)
    packed_states, final = gru(packed)
    states, _ = pad_packed_sequence(packed_states, batch_first=True)
    is_word = torch.arange(states.shape[1]) < lengths.unsqueeze(1)
    return states[is_word.to(states.device)], final.transpose(0, 1).flatten(1)


def bidirectional_gru(tokens: Tensor, lengths: Tensor, gru: nn.GRU) -> tuple[Tensor, Tensor]:
    """Run a one-layer bi-directional GRU over sentences that are stored one after another, without padding.

    Args:
        tokens: Word vectors of all sentences one after another, (T, I).
        lengths: Words per sentence, (N,) int64 on the CPU, each at least 1, summing to T, in any order.
        gru: One bi-directional layer with biases, which holds the parameters.

    Returns:
        The states (T, 2d) in the order of `tokens`, forward then backward direction, and (N, 2d) the last state of
        each sentence: [forward at its last word; backward at its first word].

    Example:
        >>> gru = torch.nn.GRU(3, 4, bidirectional=True)
        >>> states, last = bidirectional_gru(torch.randn(5, 3), torch.tensor([2, 3]), gru)
        >>> states.shape, last.shape
        (torch.Size([5, 8]), torch.Size([2, 8]))
        >>> torch.equal(last[0], torch.cat([states[1, :4], states[0, 4:]]))
        True
    """
    return reference_bidirectional_gru(tokens, lengths, gru)
