"""The learning rates of the trained baselines, chosen by STS14 and the validation split of STS-B alone.

    python benchmarks/baseline_rates.py --data-dir eval --vectors glove.vec.gz --corpus books.txt.xz --minutes 2

Each baseline is trained for so long with each of three rates, and scored without components. What the word vectors
and an untrained GRU give is beside it: a baseline that does not beat these has learnt nothing for similarity.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch
from baselines import LossKeeper, STSBValidation
from reporting import RESULTS, printed_command, write_results
from sentence_transformers import SentenceTransformer

import mv_st
from mv_st.evaluation import evaluate
from mv_st.evaluation.baselines import average, random_gru, word_embedding
from mv_st.evaluation.scores import STSScores
from mv_st.evaluation.tables import markdown_table
from mv_st.evaluation.trained_baselines import TRAINED_BASELINES, train_baseline

RATES = {
    "quick-thought-rnn": (2e-4, 5e-4, 1e-3),
    "quick-thought-bow": (2e-4, 5e-4, 1e-3),
    "siamese-cbow": (1e-4, 5e-4, 2e-3),
    "fastsent": (5e-4, 2e-3, 5e-3),
}
TASKS = ("sts14", "stsb-validation")


def score(model: SentenceTransformer, data_dir: Path) -> dict[str, float]:
    """Pearson x 100 without components, and the mean of the two tasks."""
    results = evaluate({"model": model}, data_dir, ["sts14", STSBValidation])
    scores = {}
    for task in TASKS:
        value = results.models[0].tasks[task]
        assert isinstance(value, STSScores)
        scores[task] = 100 * value.mean.pearson
    return {**scores, "mean": sum(scores.values()) / len(scores)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--vectors", required=True)
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--hidden-size", type=int, default=256)
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--only", nargs="+", choices=list(RATES), default=list(RATES))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    words = word_embedding(options.vectors)
    corpus = mv_st.load_corpus(options.corpus)
    file = RESULTS / "baseline_rates.json"
    rows: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["rows"] if file.exists() else []
    for name, model in (("average", average(words)), ("random-gru", random_gru(words, options.hidden_size))):
        rows = [row for row in rows if row["name"] != name]
        rows.append({"name": name, "rate": None, **score(model, options.data_dir)})
    for name in options.only:
        for rate in RATES[name]:
            rows = [row for row in rows if (row["name"], row["rate"]) != (name, rate)]
            print(f"training {name} with learning rate {rate:g}", file=sys.stderr)
            losses = LossKeeper()
            model = train_baseline(
                name,
                corpus,
                words,
                options.hidden_size,
                minutes=options.minutes,
                seed=options.seed,
                learning_rate=rate,
                callbacks=[losses],
            )
            rows.append({"name": name, "rate": rate, **score(model, options.data_dir), **losses.summary()})
            report(rows, options, len(corpus))


def report(rows: list[dict[str, Any]], options: argparse.Namespace, sentences: int) -> None:
    """Write all rows, the best rate of each baseline marked."""
    best = {
        name: max((row for row in rows if row["name"] == name), key=lambda row: row["mean"])["rate"]
        for name in dict.fromkeys(row["name"] for row in rows)
    }
    lines = []
    for row in sorted(rows, key=lambda row: list(RATES).index(row["name"]) if row["name"] in RATES else -1):
        rate = (
            "" if row["rate"] is None else f"{row['rate']:g}" + (" (best)" if best[row["name"]] == row["rate"] else "")
        )
        learnt = (
            [f"{row['steps']:,}", f"{row['first_loss']:.3f}", f"{row['last_loss']:.3f}"]
            if "steps" in row
            else [""] * 3
        )
        lines.append([row["name"], rate, *learnt, *(f"{row[task]:.1f}" for task in (*TASKS, "mean"))])
    result = {
        "command": printed_command(),
        "vectors": Path(options.vectors).name,
        "corpus": {"file": Path(options.corpus).name, "sentences": sentences},
        "minutes": options.minutes,
        "threads": torch.get_num_threads(),
        "seed": options.seed,
        "in_use": {name: rate for name, (_, rate) in TRAINED_BASELINES.items()},
        "rows": rows,
    }
    text = [
        "# Learning rates of the trained baselines",
        "",
        f"{options.minutes:g} minutes each on {Path(options.corpus).name} with {Path(options.vectors).name}, "
        f"{torch.get_num_threads()} threads, seed {options.seed}. Pearson's r x 100, stored components (none).",
        "",
        markdown_table(
            ["", "learning rate", "steps", "first loss", "last loss", "STS14", "STS-B validation", "mean"], lines
        ),
    ]
    write_results("baseline_rates", result, text)


if __name__ == "__main__":
    main()
