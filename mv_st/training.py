"""From raw ordered text to a trained model in one call."""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from accelerate import PartialState
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from transformers.trainer_callback import PrinterCallback, ProgressCallback

from .components import fit_components
from .corpus import load_corpus
from .errors import UserError
from .files import check_new_directory, whole_directory
from .loss import LossCurves, MultiViewLoss
from .model import build_model
from .modules import FastTextEmbedding
from .presets import Settings, settings_for
from .sampler import ContiguousBatchSampler
from .training_callbacks import CheckpointClock, Interruption, TimeBudget, TrainingProgress
from .training_record import versions, write_record

if TYPE_CHECKING:
    from datasets import Dataset

    from .vectors import WordVectors

logger = logging.getLogger(__name__)

SENTENCES_FOR_COMPONENTS = 20_000
SENTENCES_FOR_COUNTS = 1_000_000
STEPS_BETWEEN_LOGS = 20
STEPS_BETWEEN_EVALUATIONS = 500


class MultiViewTrainer(SentenceTransformerTrainer):
    """The stock trainer, with checkpoints that leave out the frozen word vectors.

    A checkpoint of the stock trainer writes the whole embedding matrix again, 2.4 GB for two million words.
    """

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        directory = Path(output_dir or self.args.output_dir)
        directory.mkdir(parents=True, exist_ok=True)
        save_file(_trained_weights(self.model), directory / "model.safetensors")

    def _load_from_checkpoint(self, checkpoint_path: str) -> None:
        weights = load_file(Path(checkpoint_path) / "model.safetensors")
        missing, unexpected = self.model.load_state_dict(weights, strict=False)
        if unexpected or set(missing) != set(self.model.state_dict()) - set(weights):
            raise UserError(f"the checkpoint {checkpoint_path} belongs to another model")


def _trained_weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in model.state_dict().items() if not name.startswith("0.")}


class Interrupted(UserError):
    """Training was stopped by a signal; the message says how to go on."""


def train(
    corpus: str | Path | Iterable[str | Path] | Dataset,
    output: str | Path,
    *,
    vectors: WordVectors | str | Path | None = None,
    preset: str = "small",
    max_steps: int | None = None,
    epochs: float | None = None,
    minutes: float | None = None,
    eval_data: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    seed: int = 0,
    minutes_between_checkpoints: float = 5.0,
    gather_across_devices: bool = False,
    text_column: str | None = None,
    language: str | None = None,
    on_bad_line: str = "skip",
    max_vocab: int | None = None,
    **settings: Any,
) -> SentenceTransformer:
    """Train a model on ordered text and save it.

    Vectors are loaded, or trained on the corpus by fastText; a model is built and trained; the principal components
    that it removes at inference are estimated on a sample of the corpus; model, `training.json` and `training.png` go
    to `output`, which appears only when all is done. Until then everything is in `output` + ".run": checkpoints every
    few minutes and on Ctrl-C or SIGTERM, from which `resume=True` goes on and ends at the same weights.

    Args:
        corpus: Files, a folder or a dataset, see `load_corpus`.
        output: Folder of the model.
        vectors: Word vectors or their file, see `load_vectors`. Left out, they are trained on the corpus.
        preset: `"small"` (d = 256), `"base"` (d = 512) or `"paper"` (d = 1024, everything as in the paper).
        max_steps: Stop after this many batches.
        epochs: Passes over the corpus; 1 unless another limit is given.
        minutes: Stop after this time of training.
        eval_data: Folder with evaluation data; STS-B validation is then scored during training.
        resume: Go on with the interrupted run that would have written `output`.
        overwrite: Replace `output`, and forget an interrupted run.
        seed: Seed of weights and batch order.
        minutes_between_checkpoints: Time between checkpoints.
        gather_across_devices: With several processes, compare with the sentences of all of them.
        text_column: Column of documents in tables, see `load_corpus`.
        language: Language of documents that are split into sentences, see `load_corpus`.
        on_bad_line: What to do with undecodable lines, see `load_corpus`.
        max_vocab: Keep the most frequent words only.
        **settings: Any field of `mv_st.presets.Settings`, to depart from the preset.

    Returns:
        The trained model.

    Example:
        `train("books.txt", "my-model", minutes=20)`
    """
    chosen = settings_for(preset, **settings)
    limits = {"max_steps": max_steps, "epochs": epochs, "minutes": minutes}
    _check_limits(limits)
    run = _Run(Path(output), resume=resume, overwrite=overwrite)
    state = PartialState()
    if state.is_main_process:
        run.open({"preset": preset, "settings": chosen.to_dict(), "limits": limits, "seed": seed})
    started = time.monotonic()

    with state.main_process_first():
        # One process reads and builds; the others find the result on disk.
        sentences = corpus if _is_dataset(corpus) else load_corpus(
            corpus, text_column=text_column, language=language, on_bad_line=on_bad_line  # type: ignore[arg-type]
        )
        _check_size(sentences, chosen, state.num_processes)
        if state.is_main_process and not run.initial.exists():
            model = _build(sentences, vectors, chosen, seed, max_vocab)
            with whole_directory(run.initial) as directory:
                model.save_pretrained(str(directory), create_model_card=False)
        model = SentenceTransformer(str(run.initial))
    prepared = time.monotonic()

    history, steps = _run_trainer(
        model, sentences, chosen, run, limits, seed, eval_data, minutes_between_checkpoints, gather_across_devices
    )
    trained = time.monotonic()
    if state.is_main_process:
        sample = _sample_sentences(sentences, SENTENCES_FOR_COMPONENTS, seed)
        fit_components(model, sample, chosen.n_components, show_progress=True)
        record = {
            "preset": preset,
            "settings": chosen.to_dict(),
            "seed": seed,
            "limits": limits,
            "corpus": {
                "sources": "dataset" if _is_dataset(corpus) else _names(corpus),
                "sentences": len(sentences),
            },
            "vectors": _describe_vectors(vectors, model),
            "processes": state.num_processes,
            "threads": torch.get_num_threads(),
            "steps": steps,
            "sentences_seen": steps * chosen.batch_size * state.num_processes,
            "seconds": {"preparation": round(prepared - started, 1), "training": round(trained - prepared, 1)},
            "components_fitted_on": len(sample),
            "versions": versions(),
            "history": history,
        }
        with whole_directory(output, overwrite=overwrite) as directory:
            model.save_pretrained(str(directory))
            write_record(directory, record)
        run.close()
    state.wait_for_everyone()
    return model


def _run_trainer(
    model: SentenceTransformer,
    sentences: Dataset,
    settings: Settings,
    run: _Run,
    limits: dict[str, Any],
    seed: int,
    eval_data: str | Path | None,
    minutes_between_checkpoints: float,
    gather_across_devices: bool,
) -> tuple[list[dict[str, float]], int]:
    """Train a model in place; the log and the number of steps."""
    loss = MultiViewLoss(
        model,
        window=settings.window,
        agreement=settings.agreement,
        include_self=settings.include_self,
        gather_across_devices=gather_across_devices,
        blocks=settings.blocks,
    )
    arguments = training_arguments(
        str(run.folder),
        settings,
        seed=seed,
        max_steps=limits["max_steps"] or -1,
        # A time limit alone: enough passes for the clock to be what ends the run.
        num_train_epochs=limits["epochs"] or (1 if limits["minutes"] is None else 100_000),
        eval_strategy="no" if eval_data is None else "steps",
        eval_steps=STEPS_BETWEEN_EVALUATIONS,
    )
    evaluator = None if eval_data is None else _evaluator(eval_data, sentences, settings, seed)
    budget = None if limits["minutes"] is None else TimeBudget(limits["minutes"])
    interruption = Interruption()
    processes = PartialState().num_processes
    trainer = MultiViewTrainer(
        model=model,
        args=arguments,
        train_dataset=sentences,
        loss=loss,
        evaluator=evaluator,
        callbacks=[
            LossCurves(loss),
            TrainingProgress(settings.batch_size * processes, budget),
            CheckpointClock(minutes_between_checkpoints),
            interruption,
            *([budget] if budget is not None else []),
        ],
    )
    for callback in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(callback)
    inference_length = model.max_seq_length
    model.max_seq_length = settings.max_train_length
    with _quiet_truncation(), interruption:
        trainer.train(resume_from_checkpoint=run.last_checkpoint())
    model.max_seq_length = inference_length
    if interruption.happened:
        raise Interrupted(f"interrupted after {trainer.state.global_step} steps; go on with resume (--resume)")
    return trainer.state.log_history, trainer.state.global_step


def training_arguments(output_dir: str, settings: Settings, **changes: Any) -> SentenceTransformerTrainingArguments:
    """Arguments for `SentenceTransformerTrainer` under which the method learns.

    Args:
        output_dir: Where checkpoints go.
        settings: Batch size, blocks, learning rate and clipping are taken from here.
        **changes: Any other training argument.
    """
    arguments: dict[str, Any] = {
        "per_device_train_batch_size": settings.batch_size,
        "batch_sampler": ContiguousBatchSampler.with_blocks(settings.blocks),
        "learning_rate": settings.learning_rate,
        "lr_scheduler_type": "constant",
        "warmup_steps": 0,
        "weight_decay": 0.0,
        "max_grad_norm": settings.clip_norm,
        "logging_steps": STEPS_BETWEEN_LOGS,
        "save_strategy": "steps",
        "save_steps": 1_000_000_000,  # the clock decides, see CheckpointClock
        "save_total_limit": 2,
        "dataloader_pin_memory": False,
        "disable_tqdm": True,
        "report_to": "none",
    }
    return SentenceTransformerTrainingArguments(output_dir, **(arguments | changes))


class _Run:
    """The folder of a run that is not finished: `<output>.run`, beside the folder that the model will be in.

    Args:
        output: Folder of the model.
        resume: Whether to go on with an interrupted run.
        overwrite: Whether to replace the model and forget an interrupted run.
    """

    def __init__(self, output: Path, resume: bool, overwrite: bool) -> None:
        self.output, self.resume, self.overwrite = output, resume, overwrite
        self.folder = output.with_name(output.name + ".run")
        self.initial = self.folder / "initial"

    def open(self, description: dict[str, Any]) -> None:
        """Check that the run can start or go on, before any work is done."""
        check_new_directory(self.output, overwrite=self.overwrite)
        description = json.loads(json.dumps(description))
        file = self.folder / "run.json"
        if self.resume:
            if not file.exists():
                raise UserError(f"nothing to resume: there is no interrupted run in {self.folder}")
            if json.loads(file.read_text(encoding="utf-8")) != description:
                raise UserError(f"the interrupted run in {self.folder} has other settings; resume it with the same ones")
            return
        if file.exists() and not self.overwrite:
            raise UserError(f"an interrupted run is in {self.folder}; resume it (--resume) or remove that folder")
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        file.write_text(json.dumps(description, indent=2), encoding="utf-8")

    def last_checkpoint(self) -> str | None:
        """The newest checkpoint that was written to its end."""
        if not self.resume:
            return None
        # The state is the last file of a checkpoint: without it the run was killed while writing.
        whole = [path.parent for path in self.folder.glob("checkpoint-*/trainer_state.json") if path.stat().st_size]
        if not whole:
            return None
        return str(max(whole, key=lambda path: int(path.name.split("-")[1])))

    def close(self) -> None:
        """Remove the folder; the model is in its place."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _build(
    sentences: Dataset, vectors: WordVectors | str | Path | None, settings: Settings, seed: int, max_vocab: int | None
) -> SentenceTransformer:
    """An untrained model for a corpus."""
    from .vector_training import train_vectors
    from .vectors import load_vectors

    if vectors is None:
        print("training word vectors on the corpus (fastText)", file=sys.stderr, flush=True)
        vectors = train_vectors(sentences)
    elif isinstance(vectors, (str, Path)):
        vectors = load_vectors(vectors, max_vocab=max_vocab, subwords=True)
    words = FastTextEmbedding(vectors, oov="zero" if vectors.subwords is None else "subword", max_vocab=max_vocab)
    counts = _count_words(words, _sample_sentences(sentences, SENTENCES_FOR_COUNTS, seed, consecutive=True))
    known = counts[1:].sum() / max(counts.sum(), 1)
    if known == 0 and words.oov == "zero":
        raise UserError("the vectors have none of the words of the corpus; are they of another language?")
    logger.info("%.1f %% of the words of the corpus have a vector", 100 * known)
    return build_model(
        vectors,
        hidden_size=settings.hidden_size,
        views=settings.views,
        oov=words.oov,
        max_seq_length=settings.max_seq_length,
        max_vocab=max_vocab,
        train_on=settings.train_on,
        weighting=settings.weighting,
        word_counts=counts,
        n_components=settings.n_components,
        power_iterations=settings.power_iterations,
        temperature=settings.temperature,
        seed=seed,
    )


def _count_words(words: FastTextEmbedding, sentences: list[str]) -> np.ndarray:
    """How often each row of the table occurs."""
    counts = np.zeros(words.vocab_size)
    with _quiet_truncation():
        for start in range(0, len(sentences), 10_000):
            ids = words.preprocess(sentences[start : start + 10_000])["input_ids"].clamp(min=0).numpy()
            counts += np.bincount(ids, minlength=words.vocab_size)
    return counts


def _sample_sentences(sentences: Dataset, count: int, seed: int, consecutive: bool = False) -> list[str]:
    if len(sentences) <= count:
        return list(sentences["sentence"])
    if consecutive:
        return list(sentences.select(range(count))["sentence"])
    chosen = np.random.default_rng(seed).choice(len(sentences), count, replace=False)
    return list(sentences.select(np.sort(chosen))["sentence"])


def _evaluator(eval_data: str | Path, sentences: Dataset, settings: Settings, seed: int) -> Any:
    from .evaluation.training_evaluator import STSEvaluator

    sample = _sample_sentences(sentences, 2_000, seed)
    return STSEvaluator(eval_data, fit_sentences=sample, n_components=settings.n_components)


def _check_limits(limits: dict[str, Any]) -> None:
    for name, value in limits.items():
        if value is not None and value <= 0:
            raise UserError(f"{name} must be positive, not {value}")


def _check_size(sentences: Dataset, settings: Settings, processes: int) -> None:
    if settings.batch_size % settings.blocks:
        raise UserError(f"a batch of {settings.batch_size} cannot be divided into {settings.blocks} blocks")
    if len(sentences) < settings.batch_size * processes:
        raise UserError(
            f"the corpus has {len(sentences)} sentences, fewer than one batch of {settings.batch_size} "
            f"for each of {processes} processes; give more text or a smaller batch size"
        )


def _is_dataset(corpus: Any) -> bool:
    from datasets import Dataset

    return isinstance(corpus, Dataset)


def _names(corpus: Any) -> list[str]:
    sources = [corpus] if isinstance(corpus, (str, Path)) else list(corpus)
    return [os.path.basename(str(source)) for source in sources]


def _describe_vectors(vectors: Any, model: SentenceTransformer) -> dict[str, Any]:
    source = "trained on the corpus (fastText)" if vectors is None else "given"
    if isinstance(vectors, (str, Path)):
        source = os.path.basename(str(vectors))
    return {"source": source, "words": model[0].vocab_size - 1, "dimension": model[0].embedding_dimension}


class _quiet_truncation:  # noqa: N801 - used as a context manager
    """Training cuts long sentences as a matter of course: no warning about it."""

    def __enter__(self) -> None:
        logging.getLogger("mv_st.modules.fasttext_embedding").setLevel(logging.ERROR)

    def __exit__(self, *exc: object) -> None:
        logging.getLogger("mv_st.modules.fasttext_embedding").setLevel(logging.NOTSET)
