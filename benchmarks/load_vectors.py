"""How fast does a text file of word vectors load, and how much memory does that take? Ours against gensim.

    pip install "mv-st[benchmarks]"
    python benchmarks/load_vectors.py

A file like those of fastText is made up in a temporary folder (500,000 words x 300 numbers, 1.1 GB). Each load runs in
a process of its own, the two libraries by turns, best of three. gensim reads only the first 50,000 rows, because the
rate does not depend on the number of rows and the whole file would take minutes. Writes `results/load_vectors.json`
and `.md`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).parent / "results"
DISTINCT_ROWS = 5000  # numbers repeat after so many rows, which no reader can profit from


def load_float32(path: str, peer_rows: int) -> np.ndarray:
    from mv_st.vectors import load_vectors

    return load_vectors(path, progress=False).matrix


def load_float16(path: str, peer_rows: int) -> np.ndarray:
    from mv_st.vectors import load_vectors

    return load_vectors(path, dtype="float16", progress=False).matrix


def load_gensim(path: str, peer_rows: int) -> np.ndarray:
    from gensim.models import KeyedVectors

    return KeyedVectors.load_word2vec_format(path, limit=peer_rows).vectors


LOADERS = {"mv_st float32": load_float32, "mv_st float16": load_float16, "gensim": load_gensim}


def write_vectors(path: Path, rows: int, dim: int) -> None:
    numbers = np.random.default_rng(0).normal(scale=0.1, size=(min(rows, DISTINCT_ROWS), dim))
    lines = [" ".join(f"{number:.4f}" for number in row) for row in numbers]
    with path.open("w") as stream:
        stream.write(f"{rows} {dim}\n")
        for row in range(rows):
            stream.write(f"word{row} {lines[row % len(lines)]} \n")


def measure(name: str, path: str, peer_rows: int) -> dict[str, float]:
    """Load the file in this process and note what it took."""
    import gensim.models  # noqa: F401  (imports are not what is measured)

    import mv_st.vector_text  # noqa: F401

    before, wall, cpu = peak_mb(), time.perf_counter(), time.process_time()
    matrix = LOADERS[name](path, peer_rows)
    return {
        "rows": len(matrix),
        "seconds": time.perf_counter() - wall,
        "cpu_seconds": time.process_time() - cpu,
        "matrix_mb": matrix.nbytes / 2**20,
        "peak_growth_mb": peak_mb() - before,
        "checksum": float(matrix[:1000].sum(dtype=np.float64)),
    }


def measure_apart(name: str, path: str, peer_rows: int) -> dict[str, float]:
    """The same in a process of its own, whose peak memory is that of this load alone."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(measure, name, path, peer_rows).result()


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def table(result: dict) -> str:
    lines = [
        f"# Loading a text file of {result['rows']:,} x {result['dim']} word vectors",
        "",
        f"`{result['command']}` on {result['cores']} cores (load average before the start "
        f"{result['load_average_before']}), best of {result['repeats']}, by turns. "
        + ", ".join(f"{name} {number}" for name, number in result["versions"].items())
        + ".",
        "",
        "| | rows | seconds | rows/s | rows per CPU second | against gensim | matrix, MB | peak memory on top, MB |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, best in result["best"].items():
        lines.append(
            f"| {name} | {best['rows']:,} | {best['seconds']:.2f} | {best['rows_per_second']:,.0f} "
            f"| {best['rows'] / best['cpu_seconds']:,.0f} | {best['ratio']:.1f} x | {best['matrix_mb']:,.0f} "
            f"| {best['peak_growth_mb'] - best['matrix_mb']:,.0f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--dim", type=int, default=300)
    parser.add_argument("--peer-rows", type=int, default=50_000, help="rows that gensim reads")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()

    load_before = round(os.getloadavg()[0], 1)
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in LOADERS}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "vectors.vec")
        print(f"Writing {arguments.rows:,} x {arguments.dim} numbers", file=sys.stderr)
        write_vectors(path, arguments.rows, arguments.dim)
        for _ in range(arguments.repeats):
            for name in LOADERS:
                runs[name].append(measure_apart(name, str(path), arguments.peer_rows))
                print(f"{name}: {runs[name][-1]['rows'] / runs[name][-1]['seconds']:,.0f} rows/s", file=sys.stderr)
    checksums = {run["checksum"] for name in ("mv_st float32", "gensim") for run in runs[name]}
    if len(checksums) != 1:
        raise SystemExit(f"the libraries read different numbers: {checksums}")

    best = {name: min(of_one, key=lambda run: run["seconds"] / run["rows"]) for name, of_one in runs.items()}
    for run in best.values():
        run["rows_per_second"] = run["rows"] / run["seconds"]
    for run in best.values():
        run["ratio"] = run["rows_per_second"] / best["gensim"]["rows_per_second"]
    result = {
        "command": " ".join(["python", "benchmarks/load_vectors.py", *sys.argv[1:]]),
        "rows": arguments.rows,
        "dim": arguments.dim,
        "repeats": arguments.repeats,
        "cores": os.cpu_count(),
        "load_average_before": load_before,
        "versions": {"Python": platform.python_version()}
        | {name: version(name) for name in ("gensim", "numpy", "pyarrow")},
        "best": best,
        "runs": runs,
    }
    arguments.output.mkdir(parents=True, exist_ok=True)
    (arguments.output / "load_vectors.json").write_text(json.dumps(result, indent=1) + "\n")
    text = table(result)
    (arguments.output / "load_vectors.md").write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
