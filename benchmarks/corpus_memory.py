"""Does memory grow with the corpus? Peak memory of reading a text file, of iterating over its batches, of training.

    python benchmarks/corpus_memory.py

Text of each size is made up in a temporary folder and read in a process of its own, which watches its memory. Linux
tells private memory (RssAnon), which a process needs, from mapped file pages (RssFile), which the system lends it and
takes back at will: the mapped corpus is of the second kind. Writes `results/corpus_memory.json` and `.md`.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
BATCH_SIZE = 512
BLOCKS = 8


def memory_in_mb() -> dict[str, float]:
    status = Path("/proc/self/status").read_text()
    return {kind: int(re.search(rf"{kind}:\s+(\d+) kB", status)[1]) / 1024 for kind in ("RssAnon", "RssFile")}


@contextmanager
def watched(stage: str, stages: dict[str, dict[str, float]]) -> Iterator[None]:
    """Note the CPU time of a stage, its peak of private and of mapped memory, and how far the first one rose."""
    start_memory = memory_in_mb()
    peak = dict(start_memory)
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.01):
            for kind, value in memory_in_mb().items():
                peak[kind] = max(peak[kind], value)

    watcher = threading.Thread(target=watch)
    watcher.start()
    start = time.process_time()
    try:
        yield
    finally:
        seconds = time.process_time() - start
        done.set()
        watcher.join()
    stages[stage] = {
        "cpu_seconds": round(seconds, 2),
        "private_peak_mb": round(peak["RssAnon"], 1),
        "private_growth_mb": round(peak["RssAnon"] - start_memory["RssAnon"], 1),
        "mapped_peak_mb": round(peak["RssFile"], 1),
    }


def made_up_words() -> list[str]:
    import numpy as np

    random = np.random.default_rng(0)
    letters = list("abcdefghijklmnopqrstuvwxyz")
    return list({"".join(random.choice(letters, length)): None for length in random.integers(2, 9, 5000)})


def write_text(path: Path, lines: int) -> None:
    """Made-up sentences of 3 to 25 words, with an empty line after about every thirtieth."""
    import numpy as np

    random = np.random.default_rng(0)
    words = made_up_words()
    pool = [" ".join(random.choice(words, length)) + "." for length in random.integers(3, 26, 20_000)]
    with path.open("w", encoding="utf-8") as file:
        for low in range(0, lines, 100_000):
            picked = random.integers(len(pool), size=min(100_000, lines - low))
            ends_document = random.random(len(picked)) < 1 / 30
            file.write(
                "".join(pool[i] + ("\n\n" if end else "\n") for i, end in zip(picked, ends_document, strict=True))
            )


def measure(path: Path) -> dict[str, object]:
    """The stages of a corpus's life in training, in this process."""
    import numpy as np
    from torch.utils.data import DataLoader

    from mv_st.corpus import load_corpus
    from mv_st.sampler import ContiguousBatchSampler
    from mv_st.training import train
    from mv_st.vectors import WordVectors

    stages: dict[str, dict[str, float]] = {}
    before = memory_in_mb()["RssAnon"]
    with watched("read the file", stages):
        corpus = load_corpus(path, cache_dir=path.parent / "cache")
    with watched("find it in the cache", stages):
        corpus = load_corpus(path, cache_dir=path.parent / "cache")
    with watched("iterate over all batches", stages):
        sampler = ContiguousBatchSampler(corpus, BATCH_SIZE, blocks=BLOCKS)
        sentences = sum(len(batch) for batch in DataLoader(corpus, batch_sampler=sampler, collate_fn=list))
    with watched("train a few steps", stages):
        words = made_up_words()
        vectors = WordVectors(words, np.random.default_rng(0).normal(size=(len(words), 50)).astype(np.float32))
        train(corpus, path.parent / "model", vectors=vectors, hidden_size=16, max_steps=5)
    return {
        "sentences": len(corpus),
        "sentences_in_batches": sentences,
        "private_before_mb": round(before, 1),
        "text_mb": round(path.stat().st_size / 1e6),
        "stages": stages,
    }


def as_markdown(results: dict[str, dict]) -> str:
    sizes = list(results)
    table = [
        "# Memory and the size of the corpus",
        "",
        "Peak memory in MB of a process that reads a text file with `load_corpus`, iterates over all batches of "
        f"`ContiguousBatchSampler` ({BLOCKS} blocks of {BATCH_SIZE // BLOCKS} sentences), and then calls `train` for "
        "a few steps of a tiny model, with word counts, components and all. *Private* is what the "
        "process needs; *mapped* are pages of the Arrow file, which the system keeps as long as it has room.",
        "",
        "| sentences | text | stage | private, peak | private, growth | mapped, peak | sentences per CPU second |",
        "| ---: | ---: | --- | ---: | ---: | ---: | ---: |",
    ]
    for size in sizes:
        result = results[size]
        for stage, numbers in result["stages"].items():
            rate = f"{result['sentences'] / numbers['cpu_seconds']:,.0f}" if "all" in stage or "read" in stage else ""
            table.append(
                f"| {result['sentences']:,} | {result['text_mb']:,} MB | {stage} | {numbers['private_peak_mb']:.0f} "
                f"| {numbers['private_growth_mb']:.0f} | {numbers['mapped_peak_mb']:.0f} | {rate} |"
            )
    first, last = results[sizes[0]], results[sizes[-1]]
    growth = peak_of(last) - peak_of(first)
    table += [
        "",
        f"From {first['sentences']:,} to {last['sentences']:,} sentences the peak of private memory changes by "
        f"{growth:+.0f} MB, from {peak_of(first):.0f} MB to {peak_of(last):.0f} MB, of which "
        f"{last['private_before_mb']:.0f} MB are the imported libraries.",
        "",
        f"Written by `python benchmarks/corpus_memory.py` (Python {platform.python_version()}, "
        f"datasets {version('datasets')}, pyarrow {version('pyarrow')}).",
        "",
    ]
    return "\n".join(table)


def peak_of(result: dict) -> float:
    return max(numbers["private_peak_mb"] for numbers in result["stages"].values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lines", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)  # the part that runs in a process of its own
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(arguments.measure)))
        return
    results: dict[str, dict] = {}
    for lines in arguments.lines:
        with tempfile.TemporaryDirectory() as folder:
            text = Path(folder) / "corpus.txt"
            write_text(text, lines)
            command = [sys.executable, __file__, "--measure", str(text)]
            results[str(lines)] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "corpus_memory.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    (RESULTS / "corpus_memory.md").write_text(as_markdown(results), encoding="utf-8")
    print(as_markdown(results))


if __name__ == "__main__":
    main()
