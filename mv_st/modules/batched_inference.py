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
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from threading import Lock
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from tqdm.autonotebook import tqdm

from .bigru_view import FEW_FLOATS
from .gru_kernel import one_thread
from .huge_pages import empty_on_huge_pages
from .linear_mean_view import LinearMeanView
from .pc_removal import PCRemoval
from .view import View

HOST_BATCH_SIZE = 32
"""The default of `encode`: nobody chose it, so the batch size is ours to choose."""
SMALLEST_BATCH = 512
FLOATS_PER_BATCH = 2**19
CHARACTERS_PER_SENTENCE = 120
"""A batch holds no more than that on average, so that memory does not grow with the length of texts."""
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
    # Like by like for a GRU; longest first, so that the short ones fill the last gaps between threads.
    order = np.arange(len(inputs)) if _averages_only(model, **kwargs) else np.argsort(-lengths, kind="stable")
    largest = _batch_size(model) if batch_size == HOST_BATCH_SIZE else batch_size
    batches = [order[part] for part in _parts(lengths[order], largest, threads)]
    in_similarity = kwargs.get("representation", "similarity") == "similarity"
    folded_maps = fold_maps(model) if in_similarity and len(inputs) >= ENOUGH_TO_FOLD else {}
    result: Tensor | None = None
    lock = Lock()

    def compute(batch: np.ndarray, features: dict[str, Any]) -> None:
        nonlocal result
        vectors = model(features | {"folded_maps": folded_maps}, **kwargs)["sentence_embedding"]
        if truncate_dim is not None:
            vectors = vectors[..., :truncate_dim]
        if normalize_embeddings:
            vectors = F.normalize(vectors, p=2, dim=1)
        with lock:
            if result is None:
                result = empty_on_huge_pages(len(inputs), vectors.shape[1], dtype=vectors.dtype)
            bar.update()
        result.index_copy_(0, torch.from_numpy(batch), vectors)

    with tqdm(total=len(batches), desc="Batches", disable=not show_progress_bar) as bar:
        # All text is read before anything is computed: reading needs the interpreter, which the threads need as well.
        work = [(batch, model[0].preprocess([inputs[i] for i in batch], prompt=prompt, **kwargs)) for batch in batches]
        if threads > 1 and len(batches) > 1:
            _side_by_side(compute, work, threads)
        else:
            # Threads that share the little work of few sentences only wait for each other.
            alone = len(inputs) * _width(model) < FEW_FLOATS
            with one_thread() if alone else nullcontext():
                for batch, features in work:
                    compute(batch, features)
    assert result is not None
    return result


def _averages_only(model: Any, view: str | None = None, representation: str = "similarity", **kwargs: Any) -> bool:
    """Whether a sentence costs little more per word, so that there is nothing to gain from sorting."""
    views = [module for module in model if isinstance(module, View) and view in (None, module.name)]
    return representation == "similarity" and all(isinstance(module, LinearMeanView) for module in views)


def _batch_size(model: Any) -> int:
    """As many sentences as have vectors of 2 MB, since more do not fit the cache, but enough for fast products."""
    return max(SMALLEST_BATCH, FLOATS_PER_BATCH // _width(model))


def _width(model: Any) -> int:
    """Width of the vectors of the views."""
    return max((module.widths["similarity"] for module in model if isinstance(module, View)), default=1)


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
    """Cut texts of these lengths into batches, several for each thread if there is enough to do."""
    ends = lengths.cumsum()
    most = max(FEW_CHARACTERS, CHARACTERS_PER_SENTENCE * batch_size)
    characters = np.clip(ends[-1] // (BATCHES_PER_THREAD * threads), FEW_CHARACTERS, most)
    start = 0
    while start < len(lengths):
        full = int(np.searchsorted(ends, ends[start] - lengths[start] + characters, side="right"))
        end = max(start + 1, min(start + batch_size, full))
        yield slice(start, end)
        start = end


def _side_by_side(run: Callable[..., None], work: list[tuple[Any, ...]], threads: int) -> None:
    """Call `run` with each of `work`, on as many threads of Python, each of which is one thread for torch."""

    @torch.inference_mode()  # belongs to a thread, as does the number of threads
    def run_alone(arguments: tuple[Any, ...]) -> None:
        if torch.get_num_threads() != 1:
            torch.set_num_threads(1)
        run(*arguments)

    with ThreadPoolExecutor(threads, thread_name_prefix="encode") as pool:
        try:
            for _ in pool.map(run_alone, work):
                pass
        finally:
            pool.shutdown(cancel_futures=True)
            torch.set_num_threads(threads)  # the default of threads that torch has not seen yet
