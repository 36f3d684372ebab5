"""A corpus with something to learn, vectors for its words, and processes that train on it."""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import Dataset

from mv_st.vectors import WordVectors

TOPICS = 10
WORDS = ["".join(syllables) for syllables in product("bdfgk", "aeiou", ["l", "n"])]
DIMENSION = 8
DOCUMENT_LENGTH = 8

# Small and eager: a hundred steps are enough to learn something.
TINY: dict[str, Any] = {"hidden_size": 4, "batch_size": 32, "learning_rate": 0.05}
TINY_OPTIONS = ["--hidden-size", "4", "--batch-size", "32", "--learning-rate", "0.05"]


def toy_documents(documents: int = 25, seed: int = 0) -> list[list[str]]:
    """Each document is about one of ten topics, a topic is five words, and nothing else tells topics apart."""
    rng = np.random.default_rng(seed)
    by_topic = np.array(WORDS).reshape(TOPICS, -1)
    return [
        [" ".join(rng.choice(by_topic[document % TOPICS], size=3)) for _ in range(DOCUMENT_LENGTH)]
        for document in range(documents)
    ]


def toy_corpus() -> Dataset:
    """The documents as `load_corpus` would return them."""
    rows = [(sentence, number) for number, document in enumerate(toy_documents()) for sentence in document]
    return Dataset.from_dict({"sentence": [sentence for sentence, _ in rows], "label": [number for _, number in rows]})


def toy_vectors() -> WordVectors:
    """Half of the dimensions hint at the topic of a word; in the other half, which is larger, words are random."""
    rng = np.random.default_rng(1)
    hints = np.repeat(rng.normal(size=(TOPICS, DIMENSION // 2)), len(WORDS) // TOPICS, axis=0)
    matrix = np.hstack([0.5 * hints, rng.normal(size=(len(WORDS), DIMENSION // 2))]) + 0.3
    return WordVectors(list(WORDS), matrix.astype(np.float32))


def write_toy_files(folder: Path) -> tuple[Path, Path]:
    """The corpus as text and the vectors as a .vec file."""
    corpus, vectors = folder / "toy.txt", folder / "toy.vec"
    corpus.write_text("\n\n".join("\n".join(document) for document in toy_documents()) + "\n")
    rows = (f"{word} {' '.join(map(str, row))}" for word, row in zip(WORDS, toy_vectors().matrix, strict=True))
    vectors.write_text(f"{len(WORDS)} {DIMENSION}\n" + "\n".join(rows) + "\n")
    return corpus, vectors


@pytest.fixture(scope="session")
def toy_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_toy_files(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="module", autouse=True)
def quick_and_alone(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One thread, as in the other processes; no picture, which takes longer than the training; a cache of its own."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    cache = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "matplotlib", None)
        patch.setattr("datasets.config.HF_DATASETS_CACHE", cache)
        patch.setenv("HF_DATASETS_CACHE", str(cache))
        yield
    torch.set_num_threads(threads)


# --- other processes ---


def quick_context() -> Any:
    """Starts a process in a tenth of a second: it is forked from one that has imported everything and done nothing."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["mv_st.training", "mv_st.cli", "datasets", "toy_corpus"])
    return context


def start_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Start a function in another process."""
    process = quick_context().Process(target=function, args=arguments, daemon=True)
    process.start()
    return process


def run_command(arguments: list[str], messages: str, environment: dict[str, str]) -> None:
    """`mv-st` in a process of its own, with standard error in a file."""
    os.environ.update(environment)
    file = os.open(messages, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 2)
    import datasets
    import torch

    from mv_st.cli import main

    torch.set_num_threads(1)
    sys.modules["matplotlib"] = None  # type: ignore[assignment]
    datasets.config.HF_DATASETS_CACHE = Path(os.environ["HF_DATASETS_CACHE"])
    sys.exit(main(arguments))


def start_command(arguments: list[str], messages: Path) -> Any:
    """Start `mv-st`; its messages go to a file."""
    environment = {name: os.environ[name] for name in ("HF_DATASETS_CACHE", "HF_HUB_OFFLINE")}
    return start_process(run_command, arguments, str(messages), environment)


def run_rank(function: Callable[..., Any], *arguments: Any) -> None:
    """Run one process of a distributed run and end it without taking it down piece by piece.

    A process group that goes while its threads still tidy up after the last operation waits for them with the lock
    of the interpreter in its hand, which they need too: now and then, a process would never end.
    """
    function(*arguments)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def start_ranks(function: Callable[..., Any], *arguments: Any, count: int = 2) -> list[Any]:
    """Start the processes of a distributed run; the function gets rank and environment before the arguments."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count)}
    shared |= {name: os.environ[name] for name in ("HF_DATASETS_CACHE", "HF_HUB_OFFLINE") if name in os.environ}
    return [
        start_process(run_rank, function, rank, shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)}, *arguments)
        for rank in range(count)
    ]


def wait_for(processes: list[Any], seconds: float = 240) -> list[int]:
    """Exit codes; processes that take too long are ended."""
    for process in processes:
        process.join(seconds)
    codes = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
    return codes
