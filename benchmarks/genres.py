r"""One model for each genre of text, with the whole evaluation: what to expect from a corpus of one's own.

    python benchmarks/genres.py books.txt.xz news.txt.xz reviews.txt.xz --vectors glove.vec.gz --data-dir eval \
        --models-dir runs --preset base --minutes 60
    python benchmarks/genres.py books.txt.xz --data-dir eval --models-dir runs --preset small --minutes 60

With --together there is one model of all of them. Without --vectors, word vectors are trained on the corpus itself
(fastText), which is all that a language without published vectors needs. Nothing is done twice: a model in
--models-dir is not trained again, and an interrupted training goes on. Each model has a folder in `results/genres/`
with its configuration, its curve and its scores; `results/genres.md` is written from all that are there.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from baselines import STSBValidation
from reporting import RESULTS, printed_command, write_results

import mv_st
from mv_st.evaluation import GROUPS, EvaluationResults, evaluate
from mv_st.evaluation.tables import markdown_table, transfer_value
from mv_st.presets import PRESETS

STS = ["sts12", "sts13", "sts14", "stsb", "sickr"]
STS_COLUMNS = ["model", "vectors of", "STS12", "STS13", "STS14", "STS-B", "SICK-R", "STS-B val.", "mean"]
TRANSFER = "transfer.json"
WAYS: dict[str, dict[str, Any]] = {
    "f + g": {},
    "f": {"view": "gru"},
    "g": {"view": "linear"},
    "f + g, transductive": {"components": "transductive", "n_components": 1},
    "f + g, transductive 5": {"components": "transductive", "n_components": 5},
    "f + g, adapted": {"components": "adapted"},
}


def name_of(corpora: list[str], options: argparse.Namespace) -> str:
    """Of a run, from its corpora."""
    genre = "+".join(Path(corpus).name.split(".")[0] for corpus in corpora)
    steps = "" if options.max_steps is None else f"-{options.max_steps}"
    return f"{options.preset}-{genre}{steps}" + ("" if options.vectors else "-raw")


def train(corpora: list[str], folder: Path, options: argparse.Namespace) -> None:
    """Train a model, unless it is there."""
    if not folder.exists():
        print(f"training {folder.name}", file=sys.stderr)
        mv_st.train(
            corpora,
            folder,
            vectors=options.vectors,
            preset=options.preset,
            minutes=options.minutes,
            max_steps=options.max_steps,
            seed=options.seed,
            eval_data=options.data_dir,
            resume=folder.with_name(f"{folder.name}.run").exists(),
        )


def score_similarity(folder: Path, results: Path, options: argparse.Namespace) -> None:
    """Score a model on the similarity tasks in all ways, unless that is done."""
    results.mkdir(parents=True, exist_ok=True)
    for file in ("training.json", "training.png"):
        if (folder / file).exists():
            shutil.copy(folder / file, results / file)
    for way, choices in WAYS.items():
        file = file_of(way, results)
        if not file.exists():
            print(f"scoring {folder.name}, {way}", file=sys.stderr)
            scores = evaluate({f"{folder.name}, {way}": folder}, options.data_dir, ["sts", STSBValidation], **choices)
            scores.save(file)


def score_transfer(folder: Path, results: Path, options: argparse.Namespace) -> None:
    """Score a model on the transfer tasks, unless that is done. Features do not care for components."""
    if not (results / TRANSFER).exists():
        print(f"scoring {folder.name}, transfer", file=sys.stderr)
        evaluate({folder.name: folder}, options.data_dir, ["transfer"]).save(results / TRANSFER)


def file_of(way: str, results: Path) -> Path:
    """Where scores are kept."""
    return results / f"{way.replace(' ', '').replace(',', '-')}.json"


def write() -> None:
    """The table of all models that there are."""
    sts_rows, transfer_rows, runs = [], [], {}
    for results in sorted((RESULTS / "genres").iterdir()):
        record = json.loads((results / "training.json").read_text(encoding="utf-8"))
        runs[results.name] = {key: value for key, value in record.items() if key != "history"}
        for way in WAYS:
            file = file_of(way, results)
            if not file.exists():
                continue
            tasks = EvaluationResults.load(file).models[0].tasks
            scores = {task: 100 * tasks[task].mean.pearson for task in [*STS, "stsb-validation"]}
            mean = sum(scores[task] for task in STS) / len(STS)
            sts_rows.append([results.name, way, *(f"{value:.1f}" for value in scores.values()), f"{mean:.1f}"])
        if (results / TRANSFER).exists():
            tasks = EvaluationResults.load(results / TRANSFER).models[0].tasks
            values = [transfer_value(tasks[task]) for task in GROUPS["transfer"] if task in tasks]
            transfer_rows.append([results.name, *("" if value is None else f"{value:.1f}" for value in values)])
            transfer_columns = [task for task in GROUPS["transfer"] if task in tasks]
    text = [
        "# Models of several genres",
        "",
        "Pearson x 100, unweighted mean over the datasets of a year, STS13 without SMT. Stored components unless a "
        "line says transductive (one component or five, fitted on each side of each dataset). The mean is over all "
        "but STS-B validation.",
        "",
        markdown_table(STS_COLUMNS, sts_rows),
    ]
    if transfer_rows:
        text += [
            "",
            "Transfer tasks by SentEval's protocol, features of both views (accuracy; r for relatedness):",
            "",
            markdown_table(["model", *transfer_columns], transfer_rows),
        ]
    text += ["", *(f"- {name}: {in_words(record)}" for name, record in runs.items())]
    write_results(
        "genres", {"command": printed_command(), "runs": runs, "sts": sts_rows, "transfer": transfer_rows}, text
    )


def in_words(record: dict[str, Any]) -> str:
    """What a training run was."""
    settings = record["settings"]
    before = (
        "the head start of the linear view and all other preparation" if settings["linear_first"] else "preparation"
    )
    return (
        f"preset {record['preset']}, d = {settings['hidden_size']}, {record['sentences_seen']:,} of "
        f"{record['corpus']['sentences']:,} sentences seen in {record['seconds']['training'] / 60:.0f} min after "
        f"{before} ({record['seconds']['preparation'] / 60:.1f} min), on "
        f"{record['threads']} thread(s), vectors {record['vectors']['source'] or 'trained on the corpus'}, "
        f"seed {record['seed']}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", nargs="*", metavar="CORPUS", help="without any, only the table is written")
    parser.add_argument("--vectors", help="trained on the corpus if left out")
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--models-dir", type=Path, required=True, help="where the trained models go")
    parser.add_argument("--preset", choices=list(PRESETS), default="base")
    parser.add_argument("--minutes", type=float, help="time of each training run")
    parser.add_argument("--max-steps", type=int, help="batches of each training run")
    parser.add_argument("--together", action="store_true", help="train one model on all corpora")
    parser.add_argument("--similarity-only", action="store_true", help="leave the transfer tasks for another call")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    runs = [options.corpora] if options.together and options.corpora else [[corpus] for corpus in options.corpora]
    folders = {options.models_dir / name_of(corpora, options): corpora for corpora in runs}
    for folder, corpora in folders.items():
        train(corpora, folder, options)
        score_similarity(folder, RESULTS / "genres" / folder.name, options)
        write()
    for folder in [] if options.similarity_only else folders:
        score_transfer(folder, RESULTS / "genres" / folder.name, options)
        write()
    if not folders:
        write()


if __name__ == "__main__":
    main()
