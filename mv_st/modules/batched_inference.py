"""The loop behind `model.encode` for our models: large batches, side by side on all threads, into one array.

The host library's own loop reads 32 sentences at a time unless told otherwise, computes one batch after another, and
takes every vector into the hand once or twice. Our modules read text without padding, so that a batch may hold
hundreds of sentences of different lengths, and batches do not depend on each other: each is computed by one thread
from beginning to end. Threads then never wait for each other within a batch, which also keeps the slow-down beside a
busy program near the fair share.

Importing this file changes nothing; `install` puts the loop in front of the host's, which still serves all other
models, other devices and other outputs. It replaces a private method, and only if that is the one known here.
"""

from __future__ import annotations

import functools
import inspect
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from tqdm.autonotebook import tqdm

from .linear_mean_view import LinearMeanView
from .pc_removal import PCRemoval

HOST_BATCH_SIZE = 32
"""The default of `encode`: nobody chose it, so the batch size is ours to choose."""
BATCH_SIZE = 512
MANY_CHARACTERS = 60_000
"""In a batch of more than one text: memory does not grow with their length."""
FEW_CHARACTERS = 4_000
"""Fewer are not worth a batch of their own."""
BATCHES_PER_THREAD = 4
"""At least, where there is enough to do: all threads should end at the same time."""
ENOUGH_TO_FOLD = 1000
"""Sentences for which it pays to fold the removal of components into the linear maps."""

_KNOWN_PARAMETERS = [
    "self",
    "inputs",
    "prompt",
    "batch_size",
    "show_progress_bar",
    "output_value",
    "save_to_cpu",
    "normalize_embeddings",
    "truncate_dim",
    "device",
    "kwargs",
]


def install(host: type, input_module: type) -> None:
    """Let models of the class `host` that begin with an `input_module` encode by the loop in this file.

    Args:
        host: `SentenceTransformer`.
        input_module: The class of the first module, whose `preprocess` takes any number of texts.
    """
    hosts_loop: Callable[..., Any] | None = getattr(host, "_inference", None)
    if hosts_loop is None or list(inspect.signature(hosts_loop).parameters) != _KNOWN_PARAMETERS:
        return  # another version of the host library: its own loop works too

    @functools.wraps(hosts_loop)
    def inference(self: Any, inputs: list[Any], **options: Any) -> Any:
        if isinstance(self[0], input_module) and _is_for_us(self, inputs, **options):
            return _encode(self, inputs, **options)
        return hosts_loop(self, inputs, **options)

    host._inference = inference  # type: ignore[attr-defined]


def _is_for_us(model: Any, inputs: list[Any], *, output_value: str | None, device: Any = None, **options: Any) -> bool:
    return (
        output_value == "sentence_embedding"
        and set(map(type, inputs)) == {str}
        and model.device.type == "cpu"
        and (device is None or torch.device(device).type == "cpu")
        and not torch.is_autocast_enabled("cpu")  # it belongs to the thread that asked for it
    )


@torch.inference_mode()
def _encode(
    model: Any,
    inputs: Sequence[str],
    *,
    prompt: str | None,
    batch_size: int,
    show_progress_bar: bool,
    output_value: str | None,
    save_to_cpu: bool,
    normalize_embeddings: bool,
    truncate_dim: int | None,
    device: Any = None,
    **kwargs: Any,
) -> Tensor:
    """The vectors of texts, in their order."""
    model.eval()
    threads = torch.get_num_threads()
    lengths = np.fromiter(map(len, inputs), dtype=np.int64, count=len(inputs))
    order = np.argsort(-lengths, kind="stable")  # longest first: the short ones fill the last gaps between threads
    largest = BATCH_SIZE if batch_size == HOST_BATCH_SIZE else batch_size
    batches = [order[part] for part in _parts(lengths[order], largest, threads)]
    folded_maps = (
        fold_maps(model) if len(inputs) >= ENOUGH_TO_FOLD and kwargs.get("representation") != "transfer" else {}
    )
    result: Tensor | None = None
    lock = Lock()

    def words_of(batch: np.ndarray) -> dict[str, Any]:
        features = model[0].preprocess([inputs[i] for i in batch], prompt=prompt, **kwargs)
        return features | {"folded_maps": folded_maps}

    def compute(batch: np.ndarray, features: dict[str, Any]) -> None:
        nonlocal result
        vectors = model(features, **kwargs)["sentence_embedding"]
        if truncate_dim is not None:
            vectors = vectors[..., :truncate_dim]
        if normalize_embeddings:
            vectors = F.normalize(vectors, p=2, dim=1)
        with lock:
            if result is None:
                result = vectors.new_empty(len(inputs), vectors.shape[1])
            bar.update()
        result.index_copy_(0, torch.from_numpy(batch), vectors)

    with tqdm(total=len(batches), desc="Batches", disable=not show_progress_bar) as bar:
        work = ((batch, words_of(batch)) for batch in batches)
        if threads > 1 and len(batches) > 1:
            _side_by_side(compute, work, threads)
        else:
            for batch, features in work:
                compute(batch, features)
    assert result is not None
    return result


def fold_maps(model: Any) -> dict[str, Tensor]:
    """For each linear view the transposed matrix that maps and removes components at once, shape (I, 2d).

    To remove components, and to whiten, is linear: done to the rows of W transposed, it is done to all W x.
    """
    removals = [module for module in model if isinstance(module, PCRemoval)]
    if len(removals) != 1:
        return {}
    views = [module for module in model if isinstance(module, LinearMeanView)]
    return {view.name: removals[0].clean(view.linear.weight.t(), view.name) for view in views}


def _parts(lengths: np.ndarray, batch_size: int, threads: int) -> Iterator[slice]:
    """Cut sorted texts of these lengths into batches, several for each thread if there is enough to do."""
    ends = lengths.cumsum()
    characters = np.clip(ends[-1] // (BATCHES_PER_THREAD * threads), FEW_CHARACTERS, MANY_CHARACTERS)
    start = 0
    while start < len(lengths):
        full = int(np.searchsorted(ends, ends[start] - lengths[start] + characters, side="right"))
        end = max(start + 1, min(start + batch_size, full))
        yield slice(start, end)
        start = end


def _side_by_side(run: Callable[..., None], work: Iterator[tuple[Any, ...]], threads: int) -> None:
    """Call `run` with each of `work`, on as many threads of Python, each of which is one thread for torch."""

    @torch.inference_mode()  # belongs to a thread, as does the number of threads
    def run_alone(*arguments: Any) -> None:
        if torch.get_num_threads() != 1:
            torch.set_num_threads(1)
        run(*arguments)

    pending: deque[Future[None]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="encode") as pool:
        try:
            for arguments in work:  # the calling thread reads text ahead meanwhile, but not far
                pending.append(pool.submit(run_alone, *arguments))
                if len(pending) > 2 * threads:
                    pending.popleft().result()
            while pending:
                pending.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)
            torch.set_num_threads(threads)  # the default of threads that torch has not seen yet
