"""What the baselines reach on similarity tasks with the word vectors and the text that our models are given.

Untrained baselines are scored with the components that are stored in them, estimated on the corpus, and with 1, 5 and
10 components fitted on the sentences of each task. With --trained-minutes, those that learn from the order of
sentences are trained for so long each.

    python benchmarks/baselines.py --data-dir eval --vectors glove.vec.gz --corpus books.txt.xz
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import torch
from reporting import printed_command, write_results
from sentence_transformers import SentenceTransformer

import mv_st
from mv_st.components import fit_components
from mv_st.evaluation import EvaluationResults, STSTask, evaluate
from mv_st.evaluation.baselines import SENTENCES_FOR_COMPONENTS, untrained_baselines, word_embedding
from mv_st.evaluation.trained_baselines import TRAINED_BASELINES, train_baseline

# Those that differ in more than their stored components; transductive components take the place of these.
ENCODERS = ["average", "tf-idf", "sif", "usif", "all-but-the-top", "random-projection", "random-gru"]
TRANSDUCTIVE_COMPONENTS = (1, 5, 10)


class STSBValidation(STSTask):
    """Validation split of the STS benchmark, by cosine."""

    task_name = "stsb-validation"
    title = "STS-B validation"
    folder = "stsbenchmark"
    datasets = ("validation",)


TASKS = ["sts12", "sts13", "sts14", "stsb", STSBValidation, "sickr"]


def score_transductively(models: dict[str, SentenceTransformer], data_dir: Path) -> list[EvaluationResults]:
    return [
        evaluate(models, data_dir, TASKS, components="transductive", n_components=n_components)
        for n_components in TRANSDUCTIVE_COMPONENTS
    ]


def joined(parts: list[EvaluationResults]) -> EvaluationResults:
    """One result with the models of all; they ran on the same tasks."""
    models = [scores for part in parts for scores in part.models]
    failed = [failure for part in parts for failure in part.failed]
    settings = {**parts[0].settings, "components": "see each model", "n_components": None}
    return EvaluationResults(models, parts[0].missing, failed, settings)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--vectors", required=True)
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--hidden-size", type=int, default=256)
    parser.add_argument("--trained-minutes", type=float, help="train each of the trained baselines for so long")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    words = word_embedding(options.vectors)
    corpus = mv_st.load_corpus(options.corpus)

    untrained = untrained_baselines(words, corpus["sentence"], options.hidden_size, options.seed)
    stored = [evaluate(untrained, options.data_dir, TASKS)]
    transductive = score_transductively({name: untrained[name] for name in ENCODERS}, options.data_dir)
    training_seconds = {}
    if options.trained_minutes is not None:
        trained = {}
        for name in TRAINED_BASELINES:
            print(f"training {name}", file=sys.stderr)
            start = time.perf_counter()
            trained[name] = train_baseline(
                name, corpus, words, options.hidden_size, minutes=options.trained_minutes, seed=options.seed
            )
            training_seconds[name] = round(time.perf_counter() - start, 1)
        stored.append(evaluate(trained, options.data_dir, TASKS))
        transductive += score_transductively(trained, options.data_dir)
        sample = corpus.shuffle(seed=options.seed).select(range(min(len(corpus), SENTENCES_FOR_COMPONENTS)))
        fitted = {f"{name}-1": fit_components(model, sample["sentence"], 1) for name, model in trained.items()}
        stored.append(evaluate(fitted, options.data_dir, TASKS))

    results = joined(stored + transductive)
    result = {
        "command": printed_command(),
        "vectors": {"file": Path(options.vectors).name, "words": words.vocab_size - 1},
        "corpus": {"file": Path(options.corpus).name, "sentences": len(corpus)},
        "components_fitted_on": min(len(corpus), SENTENCES_FOR_COMPONENTS),
        "threads": torch.get_num_threads(),
        "training_seconds": training_seconds,
        "results": results.to_dict(),
    }
    lines = [
        "# Baselines",
        "",
        f"Word vectors {Path(options.vectors).name} ({words.vocab_size - 1:,} words), corpus "
        f"{Path(options.corpus).name} ({len(corpus):,} sentences), random and recurrent models with "
        f"d = {options.hidden_size}, seed {options.seed}.",
        "",
        "A number behind a name tells how many stored components, estimated on "
        f"{result['components_fitted_on']:,} sentences of the corpus, the model removes; whitened ones also have the "
        "variance along the remaining components made equal. Transductive components, their number in brackets, are "
        "fitted on each side of each dataset. `usif-5` removes a share of each component as published; transductively "
        "`usif` has its weights and loses whole components.",
    ]
    if training_seconds:
        each = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in training_seconds.items())
        lines += ["", f"Trained on the corpus in batches of 512 sentences: {each} (preparation included)."]
    write_results("baselines", result, [*lines, "", results.to_markdown().rstrip()])


if __name__ == "__main__":
    main()
