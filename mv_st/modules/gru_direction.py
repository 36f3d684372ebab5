"""One direction of the GRU: the order in which it visits the words, its forward and its backward pass.

Everything here runs on one thread of Python and writes to tensors that the other direction does not touch.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .huge_pages import empty_on_huge_pages

# Consecutive time steps are treated together, for all that does not depend on the previous state, until they hold this
# many words: enough for an efficient matrix product, few enough to stay in the cache.
CHUNK_WORDS = 1024

_sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
_tanh_backward = torch.ops.aten.tanh_backward.grad_input


class Schedule(NamedTuple):
    """The order in which words are processed: time step by time step, longest sentences first ("packed" order)."""

    order: Tensor  # (N,) sentences, longest first
    lengths: Tensor  # (N,) their numbers of words
    batch_sizes: list[int]  # sentences that are still running, per time step
    word_rows: tuple[Tensor, Tensor]  # (T,) for either direction: which word of the flat input a packed row is
    chunks: list[tuple[int, int, int, int]]  # first and end time step, first and end packed row

    @property
    def most_words(self) -> int:
        """Words in the largest chunk."""
        return max(end - start for _, _, start, end in self.chunks)


def make_schedule(lengths: Tensor, step_by_step: bool = False) -> Schedule:
    """Sort sentences of these lengths, (N,), which are stored one after another; a chunk may be a single step.

    Example:
        >>> schedule = make_schedule(torch.tensor([2, 3]))
        >>> schedule.batch_sizes  # both sentences, both, only the longer one
        [2, 2, 1]
        >>> [rows.tolist() for rows in schedule.word_rows]
        [[2, 0, 3, 1, 4], [4, 1, 3, 0, 2]]
    """
    # In NumPy: these are small arrays, and torch's own threads stay out of it (they would not survive a fork).
    length = lengths.numpy()
    order = np.argsort(-length, kind="stable")
    sorted_length = length[order]
    steps = int(sorted_length[0])
    batch_sizes = len(length) - np.bincount(length)[:steps].cumsum()
    step = np.repeat(np.arange(steps), batch_sizes)
    rank = np.arange(len(step)) - np.repeat(batch_sizes.cumsum() - batch_sizes, batch_sizes)
    first_word = (length.cumsum() - length)[order][rank]
    forward_rows = first_word + step
    backward_rows = first_word + sorted_length[rank] - 1 - step

    sizes: list[int] = batch_sizes.tolist()
    chunks = []
    first_step = start = end = 0
    for k, size in enumerate(sizes):
        end += size
        if step_by_step or end - start >= CHUNK_WORDS or k == steps - 1:
            chunks.append((first_step, k + 1, start, end))
            first_step, start = k + 1, end
    word_rows = torch.from_numpy(forward_rows), torch.from_numpy(backward_rows)
    return Schedule(torch.from_numpy(order), torch.from_numpy(sorted_length), sizes, word_rows, chunks)


class Tape(NamedTuple):
    """What the backward pass of one direction needs, in packed order."""

    gates: Tensor  # (T, 4d): n, r, z, and W_hn h + b_hn
    states: Tensor  # (T, d)


def _new_tape(words: int, d: int, dtype: torch.dtype) -> Tape:
    """An empty tape of all words."""
    return Tape(empty_on_huge_pages(words, 4 * d, dtype=dtype), empty_on_huge_pages(words, d, dtype=dtype))


def forward_direction(
    direction: int,
    schedule: Schedule,
    tokens: Tensor,
    index: Tensor | None,
    weights: tuple[Tensor, ...],
    states: Tensor | None,
    mean: Tensor | None,
    last: Tensor,
    keep_tape: bool,
    products: torch.dtype,
) -> Tape:
    """Run one direction and write its half of the columns of `states`, `mean` (where wanted) and `last`.

    Products with recurrent weights are computed in `products`, all else in the type of `tokens`.
    """
    weight_ih, weight_hh, bias_ih, bias_hh = weights
    d = weight_hh.shape[1]
    columns = slice(direction * d, (direction + 1) * d)
    rows = schedule.word_rows[direction]

    # Gates are laid out as n, r, z, hn: the input feeds the first three, the state the last three, so that either is
    # one product, and n may be multiplied by r in between. n is doubled: tanh(x) = 2 sigmoid(2x) - 1, and torch
    # computes sigmoid three times as fast as tanh.
    input_weight = torch.cat([2 * weight_ih[2 * d :], weight_ih[: 2 * d]]).t()
    bias = torch.cat([2 * bias_ih[2 * d :], bias_ih[: 2 * d] + bias_hh[: 2 * d], bias_hh[2 * d :]])
    recurrent_weight = weight_hh.t().to(products)
    if len(rows) > 2 * CHUNK_WORDS:  # faster products of small batches, once there are enough to pay for the copy
        recurrent_weight = empty_on_huge_pages(d, 3 * d, dtype=products).copy_(recurrent_weight)
    minus_one = tokens.new_tensor(-1.0)
    if index is not None:
        projected = empty_on_huge_pages(len(tokens), 4 * d, dtype=tokens.dtype).copy_(bias)  # (distinct words, 4d)
        projected[:, : 3 * d].addmm_(tokens, input_weight)
        rows_of_projected = index[rows]

    if keep_tape:
        tape = _new_tape(len(rows), d, tokens.dtype)
    else:
        # One chunk at a time. The first step of the next chunk overwrites the previous state with its successor,
        # element by element, or else, as batches never grow, only rows before it.
        sizes = (schedule.most_words, 4 * d), (schedule.most_words, d)
        tape = Tape(*(empty_on_huge_pages(*size, dtype=tokens.dtype) for size in sizes))
    sentences = schedule.batch_sizes[0]
    total = tokens.new_zeros(sentences, d)
    final = tokens.new_empty(sentences, d)
    state = final[:0]
    for first_step, end_step, start, end in schedule.chunks:
        here = slice(start, end) if keep_tape else slice(end - start)
        gates, new_states = tape.gates[here], tape.states[here]
        if index is not None:
            torch.index_select(projected, 0, rows_of_projected[start:end], out=gates)
        else:
            gates.copy_(bias)
            gates[:, : 3 * d].addmm_(tokens.index_select(0, rows[start:end]), input_weight)

        n, r, z, hn = gates.split(d, dim=1)
        batch_sizes = schedule.batch_sizes[first_step:end_step]
        by_step = [t.split(batch_sizes) for t in (n, r, z, hn, gates[:, d : 3 * d], gates[:, d:], new_states)]
        for n, r, z, hn, rz, from_state, new_state in zip(*by_step, strict=True):
            running = len(n)
            if len(state):
                final[running : len(state)] = state[running:]
                state = state[:running]
                _add_product(from_state, state, recurrent_weight)
            rz.sigmoid_()
            n.addcmul_(r, hn, value=2).sigmoid_()
            torch.add(minus_one, n, alpha=2, out=n)
            if len(state):
                torch.lerp(n, state, z, out=new_state)
            else:
                torch.addcmul(n, n, z, value=-1, out=new_state)  # the initial state is zero
            state = new_state
            if mean is not None:
                total[:running] += state
        if states is not None:
            states[:, columns].index_copy_(0, rows[start:end], new_states)

    final[: len(state)] = state
    last[:, columns].index_copy_(0, schedule.order, final)
    if mean is not None:
        mean[:, columns].index_copy_(0, schedule.order, total.div_(schedule.lengths.unsqueeze(1)))
    return tape


def backward_direction(
    direction: int,
    schedule: Schedule,
    tokens: Tensor,
    index: Tensor | None,
    weights: tuple[Tensor, ...],
    tape: Tape,
    grad_states: Tensor | None,
    grad_mean: Tensor | None,
    grad_last: Tensor | None,
    needs_token_grad: bool,
    products: torch.dtype,
) -> tuple[Tensor | None, tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Gradients of one direction with respect to `tokens` (None if not needed) and its four parameters."""
    weight_ih, weight_hh = weights[:2]
    d = weight_hh.shape[1]
    columns = slice(direction * d, (direction + 1) * d)
    rows = schedule.word_rows[direction]
    sentences = schedule.batch_sizes[0]
    offsets = [0, *itertools.accumulate(schedule.batch_sizes)]

    # A sentence's row takes part from its last word on, so that the gradient of its last state can wait there.
    grad_state = tokens.new_zeros(sentences, d)
    if grad_last is not None:
        torch.index_select(grad_last[:, columns], 0, schedule.order, out=grad_state)
    if grad_mean is not None:
        grad_total = grad_mean[:, columns].index_select(0, schedule.order).div_(schedule.lengths.unsqueeze(1))
    recurrent_weight = weight_hh.to(products)
    grad_weight_hh = torch.zeros_like(weight_hh)
    grad_input_weight = torch.zeros_like(weight_ih)  # rows in the order n, r, z
    grad_bias = tokens.new_zeros(4 * d)  # n, r, z, hn
    grad_tokens = torch.empty_like(tokens) if needs_token_grad else None
    grad_projected = tokens.new_zeros(len(tokens), 4 * d) if index is not None else None

    gate_buffer = tokens.new_empty(schedule.most_words, 4 * d)
    state_buffer = tokens.new_empty(schedule.most_words, d)
    for first_step, end_step, start, end in reversed(schedule.chunks):
        gates, grad_gates = tape.gates[start:end], gate_buffer[: end - start]
        previous = state_buffer[: end - start]
        if grad_states is not None:
            chunk_grad_states = grad_states[:, columns].index_select(0, rows[start:end])

        batch_sizes = schedule.batch_sizes[first_step:end_step]
        parts = (*gates.split(d, dim=1), gates[:, d : 3 * d], previous)
        grad_parts = (*grad_gates.split(d, dim=1), grad_gates[:, d : 3 * d], grad_gates[:, d:])
        by_step = [t.split(batch_sizes) for t in (*parts, *grad_parts)]
        for k in range(end_step - 1, first_step - 1, -1):
            n, r, z, hn, rz, old, grad_n, grad_r, grad_z, grad_hn, grad_rz, grad_from_state = (
                part[k - first_step] for part in by_step
            )
            running = len(n)
            grad = grad_state[:running]
            if grad_states is not None:
                grad += chunk_grad_states[offsets[k] - start : offsets[k + 1] - start]
            if grad_mean is not None:
                grad += grad_total[:running]
            # new = (1 - z) n + z old, all gradients before the non-linearity
            torch.addcmul(grad, grad, z, value=-1, out=grad_n)
            _tanh_backward(grad_n, n, grad_input=grad_n)
            if k > 0:
                old.copy_(tape.states[offsets[k - 1] : offsets[k - 1] + running])
            else:
                old.zero_()
            torch.sub(old, n, out=grad_z).mul_(grad)
            torch.mul(grad_n, hn, out=grad_r)
            _sigmoid_backward(grad_rz, rz, grad_input=grad_rz)
            torch.mul(grad_n, r, out=grad_hn)
            if k > 0:
                _add_product(grad.mul_(z), grad_from_state, recurrent_weight)

        recurrent = slice(sentences if first_step == 0 else 0, None)  # the first state is zero
        _add_product(grad_weight_hh, grad_gates[recurrent, d:].t(), previous[recurrent].to(products))
        if grad_projected is not None and index is not None:
            grad_projected.index_add_(0, index[rows[start:end]], grad_gates)
            continue
        grad_input_weight.addmm_(grad_gates[:, : 3 * d].t(), tokens.index_select(0, rows[start:end]))
        grad_bias += grad_gates.sum(0)
        if grad_tokens is not None:
            grad_tokens.index_copy_(0, rows[start:end], _through_input(grad_gates, weight_ih))

    if grad_projected is not None:
        torch.mm(grad_projected[:, : 3 * d].t(), tokens, out=grad_input_weight)
        grad_bias = grad_projected.sum(0)
        if needs_token_grad:
            grad_tokens = _through_input(grad_projected, weight_ih)
    grad_weight_ih = torch.cat([grad_input_weight[d:], grad_input_weight[:d]])
    grad_bias_ih = torch.cat([grad_bias[d : 3 * d], grad_bias[:d]])
    return grad_tokens, (grad_weight_ih, grad_weight_hh, grad_bias_ih, grad_bias[d:])


def _add_product(target: Tensor, left: Tensor, right: Tensor) -> None:
    """Add `left @ right` to `target`, computed in the type of `right`."""
    if left.dtype == right.dtype:
        target.addmm_(left, right)
    else:
        target.add_(torch.mm(left.to(right.dtype), right))


def _through_input(grad_gates: Tensor, weight_ih: Tensor) -> Tensor:
    """The gradient of the input vectors (rows, I) from that of their gates (rows, 4d)."""
    d = len(weight_ih) // 3
    return torch.mm(grad_gates[:, d : 3 * d], weight_ih[: 2 * d]).addmm_(grad_gates[:, :d], weight_ih[2 * d :])
