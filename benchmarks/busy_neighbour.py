"""What do programs that keep a core busy each do to our speed, and to that of others?

    python benchmarks/busy_neighbour.py --corpus books.txt.xz --vectors glove.vec.gz

Torch shares most operations among OpenMP threads, which meet at the end of each operation. If one of them is off the
processor at that time, all wait for it, and by default they wait actively, on a core that somebody else could use.
`OMP_WAIT_POLICY=passive` lets them sleep instead; it is read once, when OpenMP is loaded, so that each setting has a
process of its own here. Speeds are those of some seconds, not of the best run.

The fair share is what the scheduler owes to a process with that many threads beside so many neighbours: with two
threads on two cores two thirds beside one neighbour and a half beside two.

Writes `results/busy_neighbour.json` and `.md`; `--settings` measures some of them and leaves the others as they are.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from itertools import cycle
from typing import Any

import torch
from encoding_peers import deal, encoder, load_sentences, minilm, preset_model
from reporting import RESULTS, printed_command, write_results

from mv_st import MultiViewLoss, load_vectors
from mv_st.training_record import versions

NEIGHBOURS = (0, 1, 2)
SETTINGS = {
    f"{policy}, {threads} thread{'s' * (threads > 1)}": (policy, threads)
    for policy in ("default", "active", "passive")
    for threads in (2, 1)
}
BATCH = 512
D = 256


def keep_busy() -> None:
    while True:
        pass


@contextlib.contextmanager
def busy_neighbours(count: int) -> Iterator[None]:
    """So many processes that do nothing but use a core."""
    processes = [multiprocessing.get_context("spawn").Process(target=keep_busy, daemon=True) for _ in range(count)]
    for process in processes:
        process.start()
    try:
        if processes:
            time.sleep(1)  # until they have started
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


def works(corpus: str, vectors: str) -> dict[str, tuple[Callable[[list[str]], Any], list[list[str]]]]:
    """What is measured, and the portions of sentences it gets."""
    sentences = load_sentences(corpus, 32 * BATCH, of_lines=100_000)
    portions = deal(sentences, 32)
    model = preset_model(load_vectors(vectors, progress=False), D, sentences[:2000])
    student = deepcopy(model)
    loss = MultiViewLoss(student)
    optimizer = torch.optim.Adam(student.parameters(), lr=5e-4)

    def train_step(batch: list[str]) -> None:
        student.train()
        loss([student.preprocess(batch)], None).backward()
        optimizer.step()
        optimizer.zero_grad()

    several = [[s for portion in portions[k : k + 4] for s in portion] for k in range(0, 32, 4)]
    return {
        f"encode, both views, d = {D}": (encoder(model), several),
        f"encode, linear view, d = {D}": (encoder(model, view="linear"), several),
        "encode one sentence": (encoder(model), [[sentence] for sentence in sentences[:500]]),
        f"training step, d = {D}": (train_step, portions),
        "MiniLM encode": (encoder(minilm()), [portion[:64] for portion in portions]),
    }


def sentences_per_second(run: Callable[[list[str]], Any], portions: list[list[str]], seconds: float) -> float:
    run(portions[0])
    count, start = 0, time.perf_counter()
    for portion in cycle(portions):
        run(portion)
        count += len(portion)
        if (elapsed := time.perf_counter() - start) > seconds:
            return count / elapsed
    raise AssertionError


def measure_here(options: argparse.Namespace) -> None:
    """Measure in this process, whose environment holds the setting, and print the result."""
    torch.set_num_threads(options.threads)
    result: dict[str, dict[int, float]] = {}
    for name, (run, portions) in works(options.corpus, options.vectors).items():
        result[name] = {}
        for count in NEIGHBOURS:
            with busy_neighbours(count):
                result[name][count] = sentences_per_second(run, portions, options.seconds)
    print(json.dumps(result))


def measure_apart(options: argparse.Namespace, policy: str, threads: int) -> dict[str, dict[str, float]]:
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    if policy != "default":
        environment["OMP_WAIT_POLICY"] = policy
    words = [sys.argv[0], *sys.argv[1:], "--here", "--threads", str(threads)]
    output = subprocess.run([sys.executable, *words], env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(output.stdout.splitlines()[-1])


def fair_share(threads: int, neighbours: int) -> float:
    """The part of its speed alone that a process keeps if all threads on the machine are treated alike."""
    cores = os.cpu_count() or 1
    runnable = threads + neighbours
    return min(1.0, cores / runnable) * threads / min(threads, cores)


def table(rows: dict[str, dict[str, dict[str, float]]]) -> list[str]:
    lines = [
        "| work | OpenMP waits | alone, sentences/s | 1 neighbour | kept (fair) | 2 neighbours | kept (fair) |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for work in next(iter(rows.values())):
        for setting, by_work in rows.items():
            rates, threads = by_work[work], SETTINGS[setting][1]
            cells = [f"{rates['0']:,.0f}"]
            for count in (1, 2):
                rate = rates[str(count)]
                cells += [f"{rate:,.0f}", f"{rate / rates['0']:.0%} ({fair_share(threads, count):.0%})"]
            lines.append(f"| {work} | {setting} | " + " | ".join(cells) + " |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--vectors", required=True)
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--seconds", type=float, default=3.0, help="for each number")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, default=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        measure_here(options)
        return
    path = RESULTS / "busy_neighbour.json"
    rows = json.loads(path.read_text())["rows"] if path.exists() else {}
    for setting in options.settings:
        rows[setting] = measure_apart(options, *SETTINGS[setting])
        print(setting, rows[setting], file=sys.stderr)
    result = {
        "command": printed_command(),
        "versions": versions(),
        "cores": os.cpu_count(),
        "rows": {setting: rows[setting] for setting in SETTINGS if setting in rows},
    }
    markdown = [
        "# Beside busy neighbours",
        "",
        f"{os.cpu_count()} cores, {options.seconds:g} seconds for each number. A neighbour is a process that uses all "
        "of a core.",
        "",
        *table(result["rows"]),
    ]
    write_results("busy_neighbour", result, markdown)


if __name__ == "__main__":
    main()
