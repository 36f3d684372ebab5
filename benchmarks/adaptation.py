"""What it is worth to adapt a model to one's own sentences, without labels, measured on other sentences.

    python benchmarks/adaptation.py --models small --data-dir eval
    python benchmarks/adaptation.py --models small --data-dir eval --vectors glove.vec.gz --corpus books.txt.xz

Each dataset is divided into two halves at random. Components are fitted on the sentences of one half, the pairs of the
other half are scored, and the same the other way round; the score of a dataset is the mean of the two. `stored` is
scored on the same halves. With --vectors and --corpus, untrained baselines are treated in the same way.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from baselines import STSBValidation
from reporting import printed_command, write_results
from sentence_transformers import SentenceTransformer

import mv_st
from mv_st.evaluation import STSTask
from mv_st.evaluation.baselines import untrained_baselines, word_embedding
from mv_st.evaluation.data import find_file, read_rows
from mv_st.evaluation.scores import correlate, paired_cosines
from mv_st.evaluation.sts import STS12, STS13, STS14, SICKRelatedness, STSBenchmark
from mv_st.evaluation.tables import markdown_table
from mv_st.modules import PCRemoval
from mv_st.progress import progress_bar

TASKS: list[type[STSTask]] = [STS12, STS13, STS14, STSBenchmark, SICKRelatedness, STSBValidation]
REPORTED = [task.task_name for task in TASKS if task is not STSBValidation]
BASELINES = ("average-1", "average-whitened-1", "sif-whitened-1", "sif-10", "usif-5")


def fit(n_components: int, whitening: float) -> Callable[[SentenceTransformer, list[str]], Any]:
    """Components anew."""
    return lambda model, sentences: mv_st.fit_components(model, sentences, n_components, whitening=whitening)


WAYS: dict[str, Callable[[SentenceTransformer, list[str]], Any]] = {
    "stored": lambda model, sentences: model,
    "adapt_components": mv_st.adapt_components,
    "fit_components, 1": fit(1, 0.0),
    "fit_components, 5": fit(5, 0.0),
    "fit_components, 10": fit(10, 0.0),
    "fit_components, 1, whitened": fit(1, 0.5),
}


def load(data_dir: Path) -> dict[str, dict[str, Any]]:
    """The rows of all datasets by task."""
    loaded = {}
    for task in TASKS:
        files = {part: find_file(data_dir / task.folder, part) for part in task.datasets}
        loaded[task.task_name] = {part: read_rows(file, task.columns) for part, file in files.items() if file}
    return loaded


def score(model: SentenceTransformer, rows: Any, adapt: Callable[..., Any], seed: int) -> float:
    """Pearson x 100 of a dataset, the mean of both halves."""
    place = next(i for i, module in enumerate(model) if isinstance(module, PCRemoval))
    stored = model[place]
    order = np.random.default_rng(seed).permutation(len(rows["score"]))
    halves = np.sort(order[: len(order) // 2]), np.sort(order[len(order) // 2 :])
    found = []
    for scored, fitted in (halves, halves[::-1]):
        model[place] = copy.deepcopy(stored)
        adapt(model, [rows[side][i] for side in ("sentence1", "sentence2") for i in fitted])
        left, right = (model.encode([rows[side][i] for i in scored]) for side in ("sentence1", "sentence2"))
        found.append(correlate([rows["score"][i] for i in scored], paired_cosines(left, right)).pearson)
    model[place] = stored
    return 100 * float(np.mean(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", type=Path, default=[], help="folders of trained models")
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--vectors", help="for the baselines")
    parser.add_argument("--corpus", help="for the components that baselines store")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    models = {folder.name: SentenceTransformer(str(folder)) for folder in options.models}
    if options.vectors and options.corpus:
        sentences = mv_st.load_corpus(options.corpus)["sentence"]
        untrained = untrained_baselines(word_embedding(options.vectors), sentences, 256, options.seed)
        models |= {name: untrained[name] for name in BASELINES}
    data = load(options.data_dir)
    scores: dict[str, dict[str, dict[str, float]]] = {}
    table = []
    for name, model in models.items():
        for way, adapt in progress_bar(WAYS.items(), desc=name, unit="ways"):
            of = partial(score, model, adapt=adapt, seed=options.seed)
            by_task = {task: float(np.mean([of(rows) for rows in parts.values()])) for task, parts in data.items()}
            by_task["mean"] = float(np.mean([by_task[task] for task in REPORTED]))
            scores.setdefault(name, {})[way] = by_task
            table.append([name, way, *(f"{value:.1f}" for value in by_task.values())])
    lines = [
        "# Adaptation to one's own sentences",
        "",
        "Pearson x 100, unweighted mean over the datasets of a year. Fitted on one half of each dataset, scored on "
        "the other, mean of both ways. Numbers after fit_components are components removed. The mean is over all but "
        "STS-B validation.",
        "",
        markdown_table(["model", "components", *(task.title for task in TASKS), "mean"], table),
    ]
    write_results("adaptation", {"command": printed_command(), "seed": options.seed, "scores": scores}, lines)


if __name__ == "__main__":
    main()
