"""What the baselines reach on similarity tasks with the word vectors and the text that our models are given.

Untrained baselines are scored with the components that are stored in them, estimated on the corpus, and with 1, 5 and
10 components fitted on the sentences of each task. With --train-minutes, those that learn from the order of sentences
are trained for so long each, and scored in the same ways.

    python benchmarks/baselines.py --data-dir eval --vectors glove.vec.gz --corpus books.txt.xz --train-minutes 20

Results are written after each. `--only NAME...` does some of them; the others keep the results that they had.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from reporting import RESULTS, printed_command, write_results
from sentence_transformers import SentenceTransformer
from transformers import TrainerCallback

import mv_st
from mv_st.components import fit_components
from mv_st.evaluation import EvaluationResults, STSTask, evaluate
from mv_st.evaluation.baselines import SENTENCES_FOR_COMPONENTS, untrained_baselines, word_embedding
from mv_st.evaluation.trained_baselines import TRAINED_BASELINES, train_baseline

# Those that differ in more than their stored components; transductive components take the place of these.
ENCODERS = ["average", "tf-idf", "sif", "usif", "all-but-the-top", "random-projection", "random-gru"]
TRANSDUCTIVE_COMPONENTS = (1, 5, 10)
UNTRAINED = "untrained"


class STSBValidation(STSTask):
    """Validation split of the STS benchmark, by cosine."""

    task_name = "stsb-validation"
    title = "STS-B validation"
    folder = "stsbenchmark"
    datasets = ("validation",)


TASKS = ["sts12", "sts13", "sts14", "stsb", STSBValidation, "sickr"]


class LossKeeper(TrainerCallback):
    """Keeps the loss that the trainer logs, the mean of some steps each."""

    def __init__(self) -> None:
        self.steps = 0
        self.losses: list[float] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **kwargs: Any) -> None:
        """Add a loss."""
        self.steps = state.global_step
        if logs and "loss" in logs:
            self.losses.append(logs["loss"])

    def summary(self) -> dict[str, Any]:
        """Number of steps, first and last loss."""
        return {"steps": self.steps, "first_loss": self.losses[0], "last_loss": self.losses[-1]}


class Baselines:
    """The corpus, the vectors, and the file of results."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.words = word_embedding(options.vectors)
        self.corpus = mv_st.load_corpus(options.corpus)
        self.sections: dict[str, dict[str, Any]] = {}
        file = RESULTS / "baselines.json"
        if options.only and file.exists():
            self.sections = json.loads(file.read_text(encoding="utf-8"))["sections"]

    def untrained(self) -> None:
        """Score all that need no training."""
        models = untrained_baselines(self.words, self.corpus["sentence"], self.options.hidden_size, self.options.seed)
        stored = evaluate(models, self.options.data_dir, TASKS)
        fitted = self.score_transductively({name: models[name] for name in ENCODERS})
        self.keep(UNTRAINED, [stored, *fitted], None)

    def trained(self, name: str) -> None:
        """Train one and score it without components, with one that is stored, and transductively."""
        print(f"training {name}", file=sys.stderr)
        options = self.options
        losses = LossKeeper()
        start = time.perf_counter()
        model = train_baseline(
            name,
            self.corpus,
            self.words,
            options.hidden_size,
            minutes=options.train_minutes,
            seed=options.seed,
            callbacks=[losses],
        )
        seconds = round(time.perf_counter() - start, 1)
        training = {
            "minutes": options.train_minutes,
            "seconds": seconds,
            "learning_rate": TRAINED_BASELINES[name][1],
            **losses.summary(),
        }
        parts = [evaluate({name: model}, options.data_dir, TASKS), *self.score_transductively({name: model})]
        sample = self.corpus.shuffle(seed=options.seed).select(range(self.sample_size))
        parts.append(evaluate({f"{name}-1": fit_components(model, sample["sentence"], 1)}, options.data_dir, TASKS))
        self.keep(name, parts, training)

    @property
    def sample_size(self) -> int:
        """How many sentences components are estimated on."""
        return min(len(self.corpus), SENTENCES_FOR_COMPONENTS)

    def score_transductively(self, models: dict[str, SentenceTransformer]) -> list[EvaluationResults]:
        """Scores with components of the tasks."""
        return [
            evaluate(models, self.options.data_dir, TASKS, components="transductive", n_components=n_components)
            for n_components in TRANSDUCTIVE_COMPONENTS
        ]

    def keep(self, name: str, parts: list[EvaluationResults], training: dict[str, Any] | None) -> None:
        """Add a section to the file of results."""
        self.sections[name] = {
            "command": printed_command(),
            "threads": torch.get_num_threads(),
            "training": training,
            "results": joined(parts).to_dict(),
        }
        order = [UNTRAINED, *TRAINED_BASELINES]
        self.sections = {name: self.sections[name] for name in order if name in self.sections}
        results = joined([EvaluationResults.from_dict(section["results"]) for section in self.sections.values()])
        result = {
            "command": printed_command(),
            "vectors": {"file": Path(self.options.vectors).name, "words": self.words.vocab_size - 1},
            "corpus": {"file": Path(self.options.corpus).name, "sentences": len(self.corpus)},
            "components_fitted_on": self.sample_size,
            "hidden_size": self.options.hidden_size,
            "seed": self.options.seed,
            "sections": self.sections,
        }
        write_results("baselines", result, [*self.introduction(), "", results.to_markdown().rstrip()])

    def introduction(self) -> list[str]:
        """What the tables below it show."""
        options = self.options
        lines = [
            "# Baselines",
            "",
            f"Word vectors {Path(options.vectors).name} ({self.words.vocab_size - 1:,} words), corpus "
            f"{Path(options.corpus).name} ({len(self.corpus):,} sentences), random and recurrent models with "
            f"d = {options.hidden_size}, seed {options.seed}.",
            "",
            f"A number behind a name tells how many stored components, estimated on {self.sample_size:,} sentences of "
            "the corpus, the model removes; whitened ones also have the variance along the remaining components made "
            "equal. Transductive components, their number in brackets, are fitted on each side of each dataset. "
            "`usif-5` removes a share of each component as published; transductively `usif` has its weights and loses "
            "whole components.",
        ]
        trained = {name: section for name, section in self.sections.items() if section["training"]}
        if trained:
            lines += ["", "Trained on the corpus in batches of 512 sentences:", ""]
        for name, section in trained.items():
            training = section["training"]
            lines.append(
                f"- {name}: {training['steps']:,} steps in {training['seconds'] / 60:.1f} min on {section['threads']} "
                f"threads, learning rate {training['learning_rate']:g}, loss {training['first_loss']:.3f} at first, "
                f"{training['last_loss']:.3f} at last"
            )
        return lines


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
    parser.add_argument("--train-minutes", type=float, help="train each of the trained baselines for so long")
    parser.add_argument("--only", nargs="+", choices=[UNTRAINED, *TRAINED_BASELINES], help="some of them")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chosen = options.only or [UNTRAINED, *(TRAINED_BASELINES if options.train_minutes else [])]
    if set(chosen) & set(TRAINED_BASELINES) and options.train_minutes is None:
        parser.error("--train-minutes is needed for those that are trained")
    baselines = Baselines(options)
    for name in chosen:
        if name == UNTRAINED:
            baselines.untrained()
        else:
            baselines.trained(name)


if __name__ == "__main__":
    main()
