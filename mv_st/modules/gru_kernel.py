"""The bi-directional GRU of the sequential view: a CPU kernel over padding-free input, for training and inference.

Where the time goes, and what is done about it:

- The sentences are sorted by length and walked through word by word, so that the batch of a time step only holds the
  sentences that are still running. Nothing is padded, and both directions share one schedule.
- A caller that names the row of each word (`index`) has every *distinct* word projected once, not every word.
- Each direction runs on a thread of its own with half of torch's threads. On two cores this parallelises the
  element-wise maths as well, and the threads meet once per pass instead of once per operation.
- Under `torch.autocast("cpu", torch.bfloat16)` the products with recurrent weights, most of the work, are computed in
  16 bits, which takes recent processors half the time (`has_fast_bfloat16`). States and all else keep their 32 bits.
- The backward pass is written by hand: only the gradient of the state goes back step by step; the weight gradients
  are large matrix products over many time steps at once.

`reference_bidirectional_gru` is the same function in stock PyTorch; it also serves devices other than the CPU.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from .gru_direction import Tape, backward_direction, forward_direction, make_schedule
from .words import mean_per_sentence

Pool = Literal["last", "mean"]

_Result = TypeVar("_Result")


def has_fast_bfloat16() -> bool:
    """Whether this processor is known to multiply numbers of 16 bits (bfloat16) faster than those of 32."""
    # Older releases of torch do not tell.
    capabilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


def reference_bidirectional_gru(
    tokens: Tensor, lengths: Tensor, gru: nn.GRU, index: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """`bidirectional_gru` in stock PyTorch, `nn.GRU` over a packed batch: what the fast path is tested against."""
    if index is not None:
        tokens = tokens[index]
    padded = pad_sequence(tokens.split(lengths.tolist()), batch_first=True)
    packed = pack_padded_sequence(padded, lengths, batch_first=True, enforce_sorted=False)
    packed_states, final = gru(packed)
    states, _ = pad_packed_sequence(packed_states, batch_first=True)
    is_word = torch.arange(states.shape[1]) < lengths.unsqueeze(1)
    return states[is_word.to(states.device)], final.transpose(0, 1).flatten(1)


def bidirectional_gru(
    tokens: Tensor, lengths: Tensor, gru: nn.GRU, index: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Run a one-layer bi-directional GRU over sentences that are stored one after another, without padding.

    Gradients flow to the parameters and, if they require it, to `tokens`. Half precision on the CPU is computed in
    float32 and returned in the type of the parameters.

    Args:
        tokens: Word vectors of all sentences one after another, (T, I).
        lengths: Words per sentence, (N,) int64 on the CPU, each at least 1, summing to T, in any order.
        gru: One bi-directional layer with biases, which holds the parameters.
        index: If given, (T,) int64: word t is row `index[t]` of `tokens`, which then has one row per distinct word.
            Text repeats words, so this saves most of the input projection.

    Returns:
        The states (T, 2d) in the order of the words, forward then backward direction, and (N, 2d) the last state of
        each sentence: [forward at its last word; backward at its first word].

    Example:
        >>> gru = torch.nn.GRU(3, 4, bidirectional=True)
        >>> words, index = torch.randn(3, 3), torch.tensor([0, 1, 0, 2, 1])
        >>> states, last = bidirectional_gru(words[index], torch.tensor([2, 3]), gru)
        >>> states.shape, last.shape
        (torch.Size([5, 8]), torch.Size([2, 8]))
        >>> torch.equal(last[0], torch.cat([states[1, :4], states[0, 4:]]))
        True
        >>> torch.allclose(states, bidirectional_gru(words, torch.tensor([2, 3]), gru, index)[0], atol=1e-6)
        True
    """
    if not _has_fast_path(tokens, gru):
        return reference_bidirectional_gru(tokens, lengths, gru, index)
    states, last = _run(tokens, lengths, gru, index, pool=None)
    return states, last


def pooled_bidirectional_gru(
    tokens: Tensor,
    lengths: Tensor,
    gru: nn.GRU,
    pool: Pool,
    index: Tensor | None = None,
) -> Tensor:
    """One vector per sentence, (N, 2d), from `bidirectional_gru`, without storing the states of all words.

    Args:
        tokens: As in `bidirectional_gru`.
        lengths: As in `bidirectional_gru`.
        gru: As in `bidirectional_gru`.
        pool: `"last"` for the last state of either direction, `"mean"` for the mean of the states over the words.
        index: As in `bidirectional_gru`.

    Example:
        >>> gru, tokens, lengths = torch.nn.GRU(3, 4, bidirectional=True), torch.randn(5, 3), torch.tensor([2, 3])
        >>> mean = pooled_bidirectional_gru(tokens, lengths, gru, pool="mean")
        >>> states, _ = bidirectional_gru(tokens, lengths, gru)
        >>> torch.allclose(mean, torch.stack([states[:2].mean(0), states[2:].mean(0)]), atol=1e-6)
        True
    """
    if pool == "mean":
        return mean_and_last_state(tokens, lengths, gru, index)[0]
    if not _has_fast_path(tokens, gru):
        return reference_bidirectional_gru(tokens, lengths, gru, index)[1]
    return _run(tokens, lengths, gru, index, pool)[1]


def mean_and_last_state(
    tokens: Tensor, lengths: Tensor, gru: nn.GRU, index: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Mean and last state of each sentence, both (N, 2d), at the cost of one of them.

    Args:
        tokens: As in `bidirectional_gru`.
        lengths: As in `bidirectional_gru`.
        gru: As in `bidirectional_gru`.
        index: As in `bidirectional_gru`.
    """
    if not _has_fast_path(tokens, gru):
        states, last = reference_bidirectional_gru(tokens, lengths, gru, index)
        return mean_per_sentence(states, lengths.to(states.device)), last
    return _run(tokens, lengths, gru, index, "mean")


def _has_fast_path(tokens: Tensor, gru: nn.GRU) -> bool:
    if gru.num_layers != 1 or not gru.bidirectional or not gru.bias:
        raise ValueError(f"Expected a GRU with one bi-directional layer and biases, got {gru}.")
    return tokens.device.type == "cpu" and gru.weight_hh_l0.device.type == "cpu"


def _run(
    tokens: Tensor,
    lengths: Tensor,
    gru: nn.GRU,
    index: Tensor | None,
    pool: Pool | None,
) -> tuple[Any, Tensor]:
    words = len(tokens if index is None else index)
    if int(lengths.sum()) != words or int(lengths.min()) < 1:
        raise ValueError(f"The lengths must be at least 1 and sum to the number of words, {words}.")
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    weights = [getattr(gru, name + suffix) for suffix in ("", "_reverse") for name in names]
    dtype = weights[0].dtype
    # Half precision has neither fast CPU kernels nor the accuracy for a long recurrence.
    compute_dtype = torch.float32 if dtype.itemsize < 4 else dtype
    inputs = [tensor.to(compute_dtype) for tensor in (tokens, *weights)]
    keep_tape = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)
    wants_bfloat16 = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16
    products = torch.bfloat16 if wants_bfloat16 and compute_dtype == torch.float32 else compute_dtype
    first, last = _BidirectionalGRU.apply(index, lengths, pool, keep_tape, products, *inputs)
    return (None if first is None else first.to(dtype)), last.to(dtype)


class _BidirectionalGRU(torch.autograd.Function):
    """Both directions, with the backward pass above. Outputs: states or mean (None for pool "last"), and last."""

    @staticmethod
    def forward(
        ctx: Any,
        index: Tensor | None,
        lengths: Tensor,
        pool: Pool | None,
        keep_tape: bool,
        products: torch.dtype,
        tokens: Tensor,
        *weights: Tensor,
    ) -> tuple[Tensor | None, Tensor]:
        ctx.set_materialize_grads(False)
        # Without a tape, gates of distinct words are only copied: the fewer at a time, the warmer they are.
        schedule = make_schedule(lengths, step_by_step=index is not None and not keep_tape)
        width = 2 * weights[1].shape[1]
        last = tokens.new_empty(len(lengths), width)
        states = tokens.new_empty(len(schedule.word_rows[0]), width) if pool is None else None
        mean = torch.empty_like(last) if pool == "mean" else None

        def run(direction: int) -> Tape:
            own_weights = weights[4 * direction : 4 * direction + 4]
            return forward_direction(
                direction, schedule, tokens, index, own_weights, states, mean, last, keep_tape, products
            )

        tapes = _both_directions(run)
        if keep_tape:
            ctx.schedule, ctx.pool, ctx.products = schedule, pool, products
            ctx.save_for_backward(tokens, index, *weights, *tapes[0], *tapes[1])
        return (mean if pool == "mean" else states), last

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_first: Tensor | None, grad_last: Tensor | None) -> tuple[Tensor | None, ...]:
        tokens, index, *rest = ctx.saved_tensors
        weights, tapes = tuple(rest[:8]), (Tape(*rest[8:10]), Tape(*rest[10:]))
        grad_states, grad_mean = (None, grad_first) if ctx.pool == "mean" else (grad_first, None)

        def run(direction: int) -> tuple[Tensor | None, tuple[Tensor, ...]]:
            return backward_direction(
                direction,
                ctx.schedule,
                tokens,
                index,
                weights[4 * direction : 4 * direction + 4],
                tapes[direction],
                grad_states,
                grad_mean,
                grad_last,
                ctx.needs_input_grad[5],
                ctx.products,
            )

        (tokens_forward, forward), (tokens_backward, backward) = _both_directions(run)
        grad_tokens = None
        if tokens_forward is not None and tokens_backward is not None:
            grad_tokens = tokens_forward.add_(tokens_backward)
        return None, None, None, None, None, grad_tokens, *forward, *backward


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread in a block of code."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@functools.cache
def _direction_threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(2, thread_name_prefix="bidirectional-gru")


if hasattr(os, "register_at_fork"):  # threads do not survive a fork: a child process starts its own
    os.register_at_fork(after_in_child=_direction_threads.cache_clear)


def _both_directions(run: Callable[[int], _Result]) -> tuple[_Result, _Result]:
    """`run(0), run(1)`, side by side with half of torch's threads each, if it has more than one."""
    threads = torch.get_num_threads()
    inference = torch.is_inference_mode_enabled()

    def run_alone(direction: int) -> _Result:
        if threads > 1 and torch.get_num_threads() != threads // 2:
            torch.set_num_threads(threads // 2)  # of the thread that calls it
        # These modes belong to a thread, too.
        with torch.inference_mode(inference), torch.no_grad(), torch.autocast("cpu", enabled=False):
            return run(direction)

    if threads == 1:
        return run_alone(0), run_alone(1)
    forward, backward = (_direction_threads().submit(run_alone, direction) for direction in (0, 1))
    try:
        return forward.result(), backward.result()
    finally:
        torch.set_num_threads(threads)  # it is also the default of threads that torch has not seen yet
