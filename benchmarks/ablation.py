"""The ablation of the paper on a corpus of one's own: seven training runs, seventeen lines beside the printed ones.

    python benchmarks/ablation.py books.txt.xz --vectors glove.vec.gz --data-dir eval --models-dir runs --minutes 20

Nothing is done twice: a model that is in --models-dir is not trained again, an interrupted training goes on, and lines
that are in results/ablation.json are not scored again. Writes that file after each line, and at the end
`results/ablation.md` as well. The curves of the runs `cross` and `all` are what benchmarks/figure.py draws.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from reporting import RESULTS, printed_command, write_results
from sentence_transformers import SentenceTransformer
from tables import scored_with, training_in_words

import mv_st
from mv_st.errors import UserError
from mv_st.evaluation import EvaluationResults, evaluate
from mv_st.evaluation.ensembles import ensemble_of_views
from mv_st.evaluation.paper_ablation import ROWS, RUNS, AblationRow, Measured, ablation_table
from mv_st.files import whole_file
from mv_st.presets import PRESETS


class Ablation:
    """The runs and lines of an ablation, and the file that keeps what is done.

    Args:
        options: The command line.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.file = RESULTS / f"{options.name}.json"
        setup = {
            "preset": options.preset,
            "hidden_size": options.hidden_size,
            "temperature": options.temperature,
            "minutes": options.minutes,
            "max_steps": options.max_steps,
            "seed": options.seed,
            "tasks": options.tasks,
            "corpus": Path(options.corpus).name,
            "vectors": Path(options.vectors).name,
        }
        self.result: dict[str, Any] = {"command": printed_command(), "setup": setup, "runs": {}, "lines": []}
        if self.file.exists():
            before = json.loads(self.file.read_text(encoding="utf-8"))
            changed = [name for name in setup if before["setup"].get(name) != setup[name]]
            if changed:
                raise UserError(
                    f"{self.file} has lines with another {', '.join(changed)}; move it away or give another --name"
                )
            self.result |= {"runs": before["runs"], "lines": before["lines"]}

    def folder(self, run: str) -> Path:
        """Where the model of a run is."""
        return self.options.models_dir / run

    def train(self, run: str) -> None:
        """Train the model of a run, unless it is there."""
        folder = self.folder(run)
        if not folder.exists():
            print(f"training {run}", file=sys.stderr)
            mv_st.train(
                self.options.corpus,
                folder,
                vectors=self.options.vectors,
                preset=self.options.preset,
                hidden_size=self.options.hidden_size,
                temperature=self.options.temperature,
                minutes=self.options.minutes,
                max_steps=self.options.max_steps,
                seed=self.options.seed,
                resume=folder.with_name(f"{run}.run").exists(),
                **RUNS[run],
            )
        record = json.loads((folder / "training.json").read_text(encoding="utf-8"))
        self.check(run, record)
        self.result["runs"][run] = {key: value for key, value in record.items() if key != "history"}

    def check(self, run: str, record: dict[str, Any]) -> None:
        """Refuse a model that was trained in another way."""
        setup = self.result["setup"]
        wanted = setup | {"corpus": [setup["corpus"]], **RUNS[run], "views": list(RUNS[run]["views"])}
        there = {**record, **record["limits"], **record["settings"]}
        there |= {"corpus": record["corpus"]["sources"], "vectors": record["vectors"]["source"]}
        for name in ("preset", "minutes", "max_steps", "seed", "corpus", "vectors", "views", "agreement"):
            if there[name] != wanted[name]:
                raise UserError(
                    f"{self.folder(run)} was trained with another {name}: {there[name]}, not {wanted[name]}"
                )

    def score(self, row: AblationRow, components: str) -> None:
        """Score a line, unless that is done or a run that it needs is not."""
        done = {(line["variant"], line["representation"], line["components"]) for line in self.result["lines"]}
        runs = [run for run, _ in row.parts]
        if (row.variant, row.representation, components) in done or not set(runs) <= set(self.result["runs"]):
            return
        name = f"{row.variant} {row.representation}"
        print(f"scoring {name}, {components}", file=sys.stderr)
        model: Any
        if len(row.parts) == 1:
            ((run, view),) = row.parts
            model = self.folder(run)
        else:
            parts = [(SentenceTransformer(str(self.folder(run))), str(view)) for run, view in row.parts]
            model, view = ensemble_of_views(parts), None
        tasks = self.options.tasks
        results = evaluate({name: model}, self.options.data_dir, tasks, components=components, view=view)  # type: ignore
        seconds = sum(self.result["runs"][run]["seconds"]["training"] for run in runs)
        self.result["lines"].append(
            {
                "variant": row.variant,
                "representation": row.representation,
                "components": components,
                "runs": runs,
                "hours": seconds / 3600,
                "results": results.to_dict(),
            }
        )
        with whole_file(self.file) as partial:
            partial.write_text(json.dumps(self.result, indent=1) + "\n", encoding="utf-8")

    def write(self) -> None:
        """Write the table of all lines that there are."""
        rows = {(row.variant, row.representation): row for row in ROWS}
        measured, parts = [], []
        for line in self.result["lines"]:
            results = EvaluationResults.from_dict(line["results"])
            row = rows[line["variant"], line["representation"]]
            parts.append(results)
            measured += [Measured(row, scores, line["hours"]) for scores in results.models]
        table = ablation_table(measured)
        runs = [f"- run {run}: {in_words(record)}" for run, record in self.result["runs"].items()]
        problems = {problem for part in parts for problem in part.missing.values()}
        lines = ["# Ablation", "", table.to_markdown(), "", *runs, *scored_with(parts)]
        lines += [f"- {problem}" for problem in sorted(problems)]
        write_results(self.options.name, {**self.result, "table": table.to_dict()}, lines)


def in_words(record: dict[str, Any]) -> str:
    """What a training run was."""
    settings = record["settings"]
    return (
        f"views {', '.join(settings['views'])}, agreement {settings['agreement']}, d = {settings['hidden_size']}; "
        + training_in_words(record)
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus")
    parser.add_argument("--vectors", required=True)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--models-dir", type=Path, required=True, help="where the trained models go")
    parser.add_argument("--preset", choices=list(PRESETS), default="small")
    parser.add_argument("--hidden-size", type=int, help="that of the preset unless given")
    parser.add_argument("--temperature", type=float, help="where it starts; that of the preset unless given")
    length = parser.add_mutually_exclusive_group(required=True)
    length.add_argument("--minutes", type=float, help="time of each training run")
    length.add_argument("--max-steps", type=int, help="batches of each training run")
    parser.add_argument("--runs", nargs="+", choices=list(RUNS), default=list(RUNS), help="all unless given")
    parser.add_argument("--tasks", nargs="+", default=["all"])
    parser.add_argument("--components", nargs="+", default=["stored", "transductive"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--name", default="ablation", help="name of the output files")
    options = parser.parse_args()
    try:
        ablation = Ablation(options)
        for run in options.runs:
            ablation.train(run)
            # Lines that need several runs are scored as soon as the last of them is there.
            for row in ROWS:
                for components in options.components:
                    ablation.score(row, components)
        ablation.write()
    except UserError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
