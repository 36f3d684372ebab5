"""The tables of the paper with our numbers beside the printed ones: unsupervised, supervised, detailed.

Reads files that `mv-st evaluate --output` wrote, or evaluates models itself; results/baselines.json will do too:

    python benchmarks/tables.py unsupervised benchmarks/results/baselines.json my-evaluation.json
    python benchmarks/tables.py supervised --models my-model --data-dir eval --components transductive

Writes `results/table_NAME.json` (complete) and `results/table_NAME.md`.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from reporting import printed_command, write_results

from mv_st.errors import UserError
from mv_st.evaluation import EvaluationResults, evaluate
from mv_st.evaluation.paper import TABLES
from mv_st.evaluation.results import ModelScores

TASK_GROUP = {"unsupervised": "sts", "detailed": "sts", "supervised": "transfer"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=list(TABLES))
    parser.add_argument("results", nargs="*", type=Path, metavar="RESULTS.json", help="written by mv-st evaluate")
    parser.add_argument("--models", nargs="+", default=[], metavar="MODEL", help="evaluate these as well")
    parser.add_argument("--data-dir", type=Path, help="evaluation data for --models")
    parser.add_argument("--components", choices=["stored", "transductive", "transductive-joint"], default="stored")
    parser.add_argument("--name", help="name of the output files, table_TABLE unless given")
    options = parser.parse_args()
    try:
        parts = [part for path in options.results for part in load(path)]
        if options.models:
            tasks = [TASK_GROUP[options.table]]
            parts.append(evaluate(options.models, options.data_dir, tasks, components=options.components))
        if not parts:
            raise UserError("nothing to show: give files of results, or --models and --data-dir")
    except UserError as error:
        print(error, file=sys.stderr)
        return 1
    models = [model for part in parts for model in part.models]
    table = TABLES[options.table](models)
    command = printed_command()
    result = {"command": command, "table": table.to_dict(), "evaluations": [part.to_dict() for part in parts]}
    markdown = [table.to_markdown(), *how_it_was_made(parts, models)]
    write_results(options.name or f"table_{options.table}", result, markdown)
    for part in parts:
        for problem in part.problems():
            print(problem, file=sys.stderr)
    return 0


def load(path: Path) -> list[EvaluationResults]:
    """The results in a file, of which a file of benchmarks/baselines.py has several."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        data = {}
    if "sections" not in data:
        return [EvaluationResults.load(path)]
    return [
        EvaluationResults.from_dict(
            section["results"] | {"settings": section["results"]["settings"] | {"command": section["command"]}}
        )
        for section in data["sections"].values()
    ]


def how_it_was_made(parts: list[EvaluationResults], models: list[ModelScores]) -> list[str]:
    """Vectors, corpus, training time and seed of each model, and what scored them."""
    lines = ["", "How the measured rows were made:", ""]
    trained = [model for model in models if model.training is not None]
    lines += [f"- {label}: {how}" for label, how in {m.label: training_in_words(m.training) for m in trained}.items()]
    for part in parts:
        if others := dict.fromkeys(model.label for model in part.models if model.training is None):
            command = part.settings.get("command")
            how = f"`{command}`" if command else "no record of training"
            lines.append(f"- {', '.join(others)}: {how}")
    return [*lines, *scored_with(parts)]


def scored_with(parts: list[EvaluationResults]) -> list[str]:
    """Versions and seeds of evaluations."""
    lines = []
    for versions in {tuple(part.settings["versions"].items()): None for part in parts}:
        lines.append("- scored with " + ", ".join(f"{name} {number}" for name, number in versions))
    seeds = sorted({part.settings["seed"] for part in parts})
    return [*lines, f"- seed of the folds: {', '.join(map(str, seeds))}"]


def training_in_words(training: dict[str, Any]) -> str:
    corpus, vectors, seconds = training["corpus"], training["vectors"], training["seconds"]
    sources = ", ".join(Path(source).name for source in corpus["sources"])
    return (
        f"{sources} ({corpus['sentences']:,} sentences), vectors {vectors.get('source', 'of the corpus')}, "
        f"{training['steps']:,} steps, {seconds['training'] / 60:.0f} min on {training['threads']} threads, "
        f"seed {training['seed']}"
    )


if __name__ == "__main__":
    sys.exit(main())
