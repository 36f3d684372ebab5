"""What the cost of encoding depends on: length, batch size, width, number of sentences, vocabulary.

    python benchmarks/encode_curves.py --corpus books.txt.xz --vectors glove.vec.gz

Microseconds per sentence, best of several runs, two threads. Lengths and vocabularies are made up of words of the
vocabulary, drawn as often as Zipf's law says; everything else reads sentences of the corpus. Writes
`results/encode_curves.json`, `.md` and `.png`; `--curves` measures some curves and leaves the others as they are.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from functools import cache, cached_property
from typing import Any

import numpy as np
import torch
from encoding_peers import PRESET_OF, encoder, load_sentences, minilm, preset_model
from reporting import RESULTS, printed_command, write_results

from mv_st import build_model, load_vectors
from mv_st.training_record import versions
from mv_st.vectors import WordVectors

Curve = dict[str, dict[int, float]]  # name of the line -> x -> microseconds per sentence
TITLES = {
    "length": "words per sentence",
    "batch": "batch size",
    "width": "d, units per direction",
    "number": "number of sentences",
    "vocabulary": "words in the vocabulary",
}


def microseconds(run: Callable[[list[str]], Any], sentences: list[str], seconds: float = 1.0) -> float:
    """Per sentence, best of the runs that fit into so many seconds, but two at least."""
    best, begin, runs = np.inf, time.perf_counter(), 0
    while runs < 2 or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        run(sentences)
        best = min(best, time.perf_counter() - start)
        runs += 1
    return 1e6 * best / len(sentences)


def zipf_sentences(words: list[str], length: int, count: int) -> list[str]:
    """Sentences of so many words; word i of the vocabulary is i times as rare as the first."""
    frequency = 1.0 / np.arange(1, len(words) + 1)
    drawn = np.random.default_rng(0).choice(len(words), (count, length), p=frequency / frequency.sum())
    return [" ".join(words[i] for i in row) for row in drawn]


class Curves:
    """The curves, and what they share."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.model = cache(lambda d: preset_model(self.vectors, d, self.sentences[:3000]))

    @cached_property
    def vectors(self) -> WordVectors:
        """The word vectors."""
        return load_vectors(self.options.vectors, progress=False)

    @cached_property
    def sentences(self) -> list[str]:
        """Sentences of the corpus."""
        return load_sentences(self.options.corpus, 1_000_000)

    def length(self) -> Curve:
        """Short sentences cost what a call costs, long ones what a word costs."""
        ours, peer = self.model(256), minilm()
        lines = {
            "both views, d = 256": (encoder(ours), 40_000),
            "linear view, d = 256": (encoder(ours, view="linear"), 200_000),
            "MiniLM-L6": (encoder(peer), 1000),
        }
        return {
            name: {
                length: microseconds(run, zipf_sentences(self.vectors.words, length, max(32, words // length)))
                for length in (1, 2, 5, 10, 20, 40, 80, 160)
            }
            for name, (run, words) in lines.items()
        }

    def batch(self) -> Curve:
        """The batch size that is asked for; the default, 32, leaves it to us."""
        lines: Curve = {}
        for d in PRESET_OF:
            model, sentences = self.model(d), self.sentences[: 1_000_000 // d]
            lines[f"both views, d = {d}"] = {
                size: microseconds(encoder(model, batch_size=size), sentences[: 40 * size])
                for size in (1, 8, 31, 32, 64, 128, 256, 512, 1024, 2048)
            }
        linear = self.model(256)
        lines["linear view, d = 256"] = {
            size: microseconds(
                encoder(linear, batch_size=size, view="linear"), self.sentences[: min(20_000, 200 * size)]
            )
            for size in (1, 8, 31, 32, 64, 128, 256, 512, 1024, 2048, 4096)
        }
        return lines

    def width(self) -> Curve:
        """More units: the matrices grow with the square, the element-wise work does not."""
        lines: Curve = {"both views": {}, "GRU view": {}, "linear view": {}}
        for d in (32, 64, 128, 256, 512, 1024):
            model = build_model(self.vectors, d, seed=0)
            count = min(8000, 2_000_000 // d)
            lines["both views"][d] = microseconds(encoder(model), self.sentences[:count])
            lines["GRU view"][d] = microseconds(encoder(model, view="gru"), self.sentences[:count])
            lines["linear view"][d] = microseconds(encoder(model, view="linear"), self.sentences[:16_000])
        return lines

    def number(self) -> Curve:
        """The first sentences meet words that the memo of the tokeniser does not know: one run, empty memo."""
        lines: Curve = {"linear view, d = 256": {}, "both views, d = 256": {}}
        for name, run_options, counts in (
            ("linear view, d = 256", {"view": "linear"}, (1, 10, 100, 1000, 10_000, 100_000, 1_000_000)),
            ("both views, d = 256", {}, (1, 10, 100, 1000, 10_000, 50_000)),
        ):
            for count in counts:
                model = self.model(256)
                model.tokenizer = model.tokenizer  # empties the memo
                encoder(model, **run_options)(["warm up"] * 2000)
                sentences = self.sentences[-count:]
                start = time.perf_counter()
                encoder(model, **run_options)(sentences)
                lines[name][count] = 1e6 * (time.perf_counter() - start) / count
        return lines

    def vocabulary(self) -> Curve:
        """A larger table is further away from the processor."""
        lines: Curve = {"linear view, d = 256": {}, "both views, d = 256": {}}
        for count in (1000, 10_000, 100_000, 1_000_000):
            words = [f"w{i}" for i in range(count)]
            matrix = np.random.default_rng(0).standard_normal((count, 300), dtype=np.float32)
            model = build_model((words, matrix), 256, seed=0)
            sentences = zipf_sentences(words, 15, 20_000)
            lines["linear view, d = 256"][count] = microseconds(encoder(model, view="linear"), sentences)
            lines["both views, d = 256"][count] = microseconds(encoder(model), sentences[:6000])
        return lines


def draw(curves: dict[str, Curve], path: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * len(curves), 4), layout="constrained")
    for axes, (name, lines) in zip(np.atleast_1d(figure.subplots(1, len(curves))), curves.items(), strict=True):
        for label, points in lines.items():
            axes.loglog([int(x) for x in points], list(points.values()), marker="o", markersize=3, label=label)
        axes.set_xlabel(TITLES[name])
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7)
    figure.axes[0].set_ylabel("microseconds per sentence")
    figure.savefig(path, dpi=110)


def tables(curves: dict[str, Curve]) -> list[str]:
    lines = []
    for name, curve in curves.items():
        xs = sorted({int(x) for points in curve.values() for x in points})
        lines += [
            "",
            f"| {TITLES[name]} | " + " | ".join(f"{x:,}" for x in xs) + " |",
            "| --- |" + " ---: |" * len(xs),
        ]
        for label, points in curve.items():
            cells = [f"{points[str(x)]:,.1f}" if str(x) in points else "" for x in xs]
            lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--vectors", required=True)
    parser.add_argument("--curves", nargs="+", choices=TITLES, default=list(TITLES))
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    path = RESULTS / "encode_curves.json"
    curves = json.loads(path.read_text())["microseconds_per_sentence"] if path.exists() else {}
    measuring = Curves(options)
    for name in options.curves:
        curve: Curve = getattr(measuring, name)()
        curves[name] = {label: {str(x): y for x, y in points.items()} for label, points in curve.items()}
        print(name, curve, file=sys.stderr)
    curves = {name: curves[name] for name in TITLES if name in curves}
    result = {
        "command": printed_command(),
        "versions": versions(),
        "threads": options.threads,
        "cores": os.cpu_count(),
        "microseconds_per_sentence": curves,
    }
    markdown = [
        "# What the cost of encoding depends on",
        "",
        f"Microseconds per sentence, {options.threads} threads on {os.cpu_count()} cores.",
        "",
        "![curves](encode_curves.png)",
        *tables(curves),
    ]
    draw(curves, str(RESULTS / "encode_curves.png"))
    write_results("encode_curves", result, markdown)


if __name__ == "__main__":
    main()
