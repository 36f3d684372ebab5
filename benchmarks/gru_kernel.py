"""How fast is our bi-directional GRU? Against `nn.GRU` over packed sequences, and against pure matrix products.

    OMP_WAIT_POLICY=passive python benchmarks/gru_kernel.py

(Without the setting, and with other programs on the same cores, the threads of `nn.GRU` spend their time waiting for
each other: it then takes up to ten times as long. Ours hardly depends on it.)

A batch of 512 sentences of 1 to 40 words (15 on average, a fifth of the words distinct, as in 512 sentences in a row
of a novel) with 300-wide word vectors. Training is a forward and a backward pass to all weights; the word vectors are
frozen. `nn.GRU` gets its batch sorted and packed before the clock starts, ours sorts inside. The candidates run by
turns, the best of all rounds counts. CPU time is given beside the time on the clock, because other programs disturb it
less; with several threads it includes the time that they spin while they wait for each other.

The limit is the time that all matrix products of the plain algorithm would take at the speed of one product of the
recurrent shape, (512 x d) times (d x 3d), measured in the same rounds. A candidate that is told which words are equal
projects each of them once, and may pass 100 %. The product is one of 32-bit numbers; candidates that say bfloat16 have
16 bits in their recurrent products.

`--busy N` measures d = 512 once more beside N processes that keep a core busy each. Writes `results/gru_kernel.json`
and `.md`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from reporting import printed_command, write_results
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence

from mv_st.modules.gru_kernel import bidirectional_gru, pooled_bidirectional_gru
from mv_st.modules.words import mean_per_sentence

SENTENCES, WIDTH, VOCABULARY = 512, 300, 8000
GEMM_REPEATS = 10
PEER = "nn.GRU, packed"


def make_batch(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Vectors of the distinct words, for each word its row among them, and the sentence lengths."""
    random = np.random.default_rng(seed)
    lengths = np.clip(np.round(random.gamma(2.2, 15 / 2.2, SENTENCES)), 1, 40).astype(np.int64)
    frequency = np.arange(1, VOCABULARY + 1) ** -1.15
    ids = random.choice(VOCABULARY, lengths.sum(), p=frequency / frequency.sum())
    distinct, index = np.unique(ids, return_inverse=True)
    vectors = torch.from_numpy(random.normal(scale=0.3, size=(len(distinct), WIDTH)).astype(np.float32))
    return vectors, torch.from_numpy(index), torch.from_numpy(lengths)


def make_candidates(d: int, vectors: Tensor, index: Tensor, lengths: Tensor) -> dict[str, Callable[[], Any]]:
    torch.manual_seed(0)
    gru = nn.GRU(WIDTH, d, bidirectional=True)
    tokens = vectors[index]
    padded = pad_sequence(tokens.split(lengths.tolist()), batch_first=True)
    packed = pack_padded_sequence(padded, lengths, batch_first=True, enforce_sorted=False)
    weighting = torch.randn(len(lengths), 2 * d)
    batch, weight, product = torch.randn(SENTENCES, d), torch.randn(d, 3 * d), torch.empty(SENTENCES, 3 * d)

    def train(run: Callable[[], Tensor]) -> Callable[[], None]:
        def step() -> None:
            gru.zero_grad()
            (run() * weighting).sum().backward()

        return step

    def gemm() -> None:
        for _ in range(GEMM_REPEATS):
            torch.mm(batch, weight, out=product)

    def mean_outside() -> Tensor:
        return mean_per_sentence(bidirectional_gru(vectors, lengths, gru, index)[0], lengths)

    def mean_in_bfloat16() -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return pooled_bidirectional_gru(vectors, lengths, gru, "mean", index)

    return {
        "gemm": gemm,
        f"train: {PEER}, last state": train(lambda: gru(packed)[1].transpose(0, 1).flatten(1)),
        "train: ours, last state": train(lambda: pooled_bidirectional_gru(tokens, lengths, gru, "last")),
        "train: ours, distinct words, last state": train(
            lambda: pooled_bidirectional_gru(vectors, lengths, gru, "last", index)
        ),
        "train: ours, distinct words, mean inside": train(
            lambda: pooled_bidirectional_gru(vectors, lengths, gru, "mean", index)
        ),
        "train: ours, distinct words, mean outside": train(mean_outside),
        "train: ours, distinct words, mean inside, bfloat16": train(mean_in_bfloat16),
        f"infer: {PEER}, all states": torch.inference_mode(lambda: gru(packed)),
        "infer: ours, all states": torch.inference_mode(lambda: bidirectional_gru(tokens, lengths, gru)),
        "infer: ours, distinct words, all states": torch.inference_mode(
            lambda: bidirectional_gru(vectors, lengths, gru, index)
        ),
        "infer: ours, distinct words, mean inside": torch.inference_mode(
            lambda: pooled_bidirectional_gru(vectors, lengths, gru, "mean", index)
        ),
        "infer: ours, distinct words, mean inside, bfloat16": torch.inference_mode(mean_in_bfloat16),
    }


def best_times(candidates: dict[str, Callable[[], Any]], rounds: int) -> dict[str, np.ndarray]:
    """Seconds on the clock and seconds of CPU time."""
    best = {name: np.full(2, np.inf) for name in candidates}
    for _ in range(rounds):
        for name, run in candidates.items():
            start = np.array([time.perf_counter(), time.process_time()])
            run()
            best[name] = np.minimum(best[name], np.array([time.perf_counter(), time.process_time()]) - start)
    return best


def measure(d: int, threads: int, rounds: int) -> list[dict[str, Any]]:
    vectors, index, lengths = make_batch()
    torch.set_num_threads(threads)
    best = best_times(make_candidates(d, vectors, index, lengths), rounds)
    rate = GEMM_REPEATS * 2 * SENTENCES * d * 3 * d / best.pop("gemm")
    recurrent, inputs = (2 * 2 * len(index) * width * 3 * d for width in (d, WIDTH))
    # Backwards: the gradient of the state and of both weights; none of the word vectors.
    limits = {"train": (3 * recurrent + 2 * inputs) / rate, "infer": (recurrent + inputs) / rate}
    peers = {name.split(":")[0]: seconds for name, seconds in best.items() if PEER in name}
    rows = []
    for name, seconds in best.items():
        work, candidate = name.split(": ")
        ratios, limit_shares = peers[work] / seconds, limits[work] / seconds
        rows.append(
            {
                "d": d,
                "threads": threads,
                "work": work,
                "candidate": candidate,
                "ms": round(1000 * seconds[0], 1),
                "cpu_ms": round(1000 * seconds[1], 1),
                "times_as_fast": round(ratios[0], 2),
                "times_as_fast_cpu": round(ratios[1], 2),
                "percent_of_gemm_limit": round(100 * limit_shares[0]),
                "percent_of_gemm_limit_cpu": round(100 * limit_shares[1]),
                "gemm_gflops": round(rate[0] / 1e9),
            }
        )
    return rows


def keep_busy() -> None:
    while True:
        pass


def table(rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        "| d | threads | what | candidate | ms | CPU ms | times as fast | by CPU time "
        "| % of the GEMM limit | by CPU time | GEMM GFLOP/s |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    return lines + ["| " + " | ".join(str(value) for value in row.values()) + " |" for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden-size", type=int, nargs="+", default=[512, 256, 1024])
    parser.add_argument("--threads", type=int, nargs="+", default=[2, 1])
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--busy", type=int, default=0, help="also measure d = 512 beside this many busy processes")
    args = parser.parse_args()

    load = os.getloadavg()[0]
    rows = [row for t in args.threads for d in args.hidden_size for row in measure(d, t, args.rounds)]
    busy_rows: list[dict[str, Any]] = []
    if args.busy:
        neighbours = [multiprocessing.get_context("spawn").Process(target=keep_busy) for _ in range(args.busy)]
        for neighbour in neighbours:
            neighbour.start()
        try:
            busy_rows = measure(512, max(args.threads), args.rounds)
        finally:
            for neighbour in neighbours:
                neighbour.kill()

    vectors, index, lengths = make_batch()
    result = {
        "command": printed_command(),
        "versions": {"torch": torch.__version__, "python": platform.python_version(), "numpy": np.__version__},
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY", "default"),
        "load_before": round(load, 1),
        "sentences": len(lengths),
        "words": len(index),
        "distinct_words": len(vectors),
        "rounds": args.rounds,
        "rows": rows,
        "busy_processes": args.busy,
        "rows_beside_busy_processes": busy_rows,
    }
    markdown = [
        "# The bi-directional GRU",
        "",
        f"{len(lengths)} sentences, {len(index)} words, {len(vectors)} of them distinct, {WIDTH}-wide vectors, "
        f"best of {args.rounds} rounds. torch {torch.__version__}, {result['cpu_capability']}, {os.cpu_count()} "
        f"cores, OMP_WAIT_POLICY {result['omp_wait_policy']}, load {load:.1f} from other programs before the start.",
        "",
        *table(rows),
    ]
    if busy_rows:
        markdown += ["", f"The same beside {args.busy} busy processes:", "", *table(busy_rows)]
    write_results("gru_kernel", result, markdown)


if __name__ == "__main__":
    main()
