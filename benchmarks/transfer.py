"""Transfer tasks: trained models against averaged word vectors and untrained encoders of the same width.

    python benchmarks/transfer.py --models small base --data-dir eval --vectors glove.vec.gz --corpus books.txt.xz
    python benchmarks/tables.py supervised benchmarks/results/transfer/*.json

Each has a file of its own in `results/transfer/`, and is not scored again if that is there; `results/transfer.md` is
written from all of them.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from reporting import RESULTS, printed_command, write_results

import mv_st
from mv_st.evaluation import GROUPS, EvaluationResults, evaluate
from mv_st.evaluation.baselines import untrained_baselines, word_embedding
from mv_st.evaluation.tables import markdown_table, transfer_value

BASELINES = ("average", "random-projection", "random-gru")
HIDDEN_SIZE = 256
# The mean that recipes are judged by; CR and SUBJ may not be passed on.
IN_MEAN = ("mr", "mpqa", "sst2", "trec", "mrpc")


def write(folder: Path) -> None:
    """The table of all that there are."""
    results = {path.stem: EvaluationResults.load(path) for path in sorted(folder.glob("*.json"))}
    tasks = [task for task in GROUPS["transfer"] if any(task in part.models[0].tasks for part in results.values())]
    scores: dict[str, dict[str, Any]] = {}
    for name, part in results.items():
        found: Any = part.models[0].tasks
        scores[name] = {task: transfer_value(found[task]) for task in tasks if task in found}
        scores[name] |= {
            "width": found[tasks[0]].width,
            "mean": sum(scores[name][task] for task in IN_MEAN) / len(IN_MEAN),
        }
    order = sorted(scores, key=lambda name: scores[name]["mean"])
    rows = [
        [name, scores[name]["width"], *(f"{scores[name][column]:.1f}" for column in [*tasks, "mean"])]
        for name in order
    ]
    text = [
        "# Transfer tasks",
        "",
        "SentEval's protocol: accuracy x 100, Pearson x 100 for relatedness. The width is that of the features of one "
        f"sentence; the mean is over {', '.join(IN_MEAN)}.",
        "",
        markdown_table(["", "width", *tasks, "mean"], rows),
    ]
    write_results("transfer", {"command": printed_command(), "scores": scores}, text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", type=Path, default=[], help="folders of trained models")
    parser.add_argument("--baselines", nargs="*", choices=BASELINES, default=[])
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--vectors", help="for the baselines")
    parser.add_argument("--corpus", help="for the baselines")
    parser.add_argument("--hidden-size", type=int, default=HIDDEN_SIZE, help="of the untrained encoders")
    options = parser.parse_args()
    models: dict[str, Any] = {folder.name: folder for folder in options.models}
    if options.baselines:
        sentences = mv_st.load_corpus(options.corpus)["sentence"]
        untrained = untrained_baselines(word_embedding(options.vectors), sentences, options.hidden_size)
        sized = "" if options.hidden_size == HIDDEN_SIZE else f"-{options.hidden_size}"
        models |= {name if name == "average" else name + sized: untrained[name] for name in options.baselines}
    folder = RESULTS / "transfer"
    folder.mkdir(parents=True, exist_ok=True)
    for name, model in models.items():
        file = folder / f"{name}.json"
        if not file.exists():
            evaluate({name: model}, options.data_dir, ["transfer"]).save(file)
        write(folder)


if __name__ == "__main__":
    main()
