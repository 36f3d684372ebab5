"""From raw ordered text to a trained model in one call."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from accelerate import PartialState
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainingArguments
from transformers.trainer_callback import PrinterCallback, ProgressCallback

from .components import fit_components
from .corpus import load_corpus
from .errors import UserError
from .files import whole_directory
from .loss import LossCurves, MultiViewLoss
from .modules import BiGRUView
from .modules.gru_kernel import has_fast_bfloat16
from .preparation import SENTENCES_FOR_COMPONENTS, prepare_model, quiet_truncation, sample_sentences
from .presets import Settings, settings_for
from .sampler import ContiguousBatchSampler
from .training_callbacks import CheckpointClock, Interruption, SamplerEpoch, TimeBudget, TrainingProgress
from .training_record import versions, write_record
from .training_run import MultiViewTrainer, TrainingRun, checkpoint_state

if TYPE_CHECKING:
    from datasets import Dataset

    from .vectors import WordVectors

__all__ = ["Interrupted", "MultiViewTrainer", "train", "training_arguments"]

STEPS_BETWEEN_LOGS = 20
STEPS_BETWEEN_EVALUATIONS = 500


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

    Several processes, also on a CPU, each with batches of its own:

        torchrun --nproc-per-node 2 -m mv_st train books.txt --output my-model
        accelerate launch --multi_gpu --num_processes 2 -m mv_st train books.txt --output my-model

    (Without `--multi_gpu`, accelerate starts a single process on a machine that has no GPUs.)

    Args:
        corpus: Files, a folder or a dataset, see `load_corpus`.
        output: Folder of the model.
        vectors: Word vectors or their file, see `load_vectors`. Left out, they are trained on the corpus.
        preset: `"small"` (d = 256), `"base"` (d = 512), `"features"` (d = 512, for a classifier on the transfer
            representation) or `"paper"` (d = 1024, everything as in the paper).
        max_steps: Stop after this many batches.
        epochs: Passes over the corpus; 1 unless another limit is given.
        minutes: Stop after this time of training; preparation, with the head start of the linear view, comes before.
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
    # The others wait while one process prepares everything, which may take longer than the usual half hour.
    state = PartialState(cpu=_no_gpu(), timeout=timedelta(days=7))
    run = TrainingRun(output)
    if state.is_main_process:
        run.check(resume=resume, overwrite=overwrite)
    started = time.monotonic()

    description: dict[str, Any] = {
        "preset": preset,
        "settings": chosen.to_dict(),
        "seed": seed,
        "limits": limits,
        "vectors": _describe_vectors(vectors, max_vocab),
        "processes": state.num_processes,
        "gather_across_devices": gather_across_devices,
    }
    with state.main_process_first():
        # One process reads and builds; the others find the result on disk.
        sentences = _load_sentences(corpus, text_column, language, on_bad_line)
        description["corpus"] = {"sources": _names(corpus), "sentences": len(sentences)}
        _check_size(sentences, chosen, state.num_processes)
        evaluator = None if eval_data is None else _evaluator(eval_data, sentences, chosen, seed)
        if state.is_main_process:
            if resume:
                prepared_with = run.reopen(description)
            else:
                untrained, head_start = prepare_model(sentences, vectors, chosen, seed, max_vocab, minutes)
                prepared_with = {
                    "linear_first_steps": head_start,
                    "seconds": {"preparation": round(time.monotonic() - started, 1)},
                }
                run.begin(untrained, description, prepared_with)
        model = SentenceTransformer(str(run.untrained))

    history, steps, seconds = _run_trainer(
        model,
        sentences,
        chosen,
        run,
        limits,
        seed,
        evaluator,
        minutes_between_checkpoints,
        gather_across_devices,
        run.last_checkpoint() if resume else None,
    )
    if state.is_main_process:
        sample = sample_sentences(sentences, SENTENCES_FOR_COMPONENTS, seed)
        fit_components(model, sample, chosen.n_components, whitening=chosen.whitening, show_progress=True)
        words: Any = model[0]
        description["vectors"] |= {"words": words.vocab_size - 1, "dimension": words.embedding_dimension}
        record = description | {
            "threads": torch.get_num_threads(),
            "products": "bfloat16" if _in_bfloat16(chosen) else "float32",
            **prepared_with,
            "seconds": prepared_with.get("seconds", {}) | {"training": round(seconds, 1)},
            "steps": steps,
            "sentences_seen": steps * chosen.batch_size * state.num_processes,
            "components_fitted_on": len(sample),
            "versions": versions(),
            "history": history,
        }
        with whole_directory(output, overwrite=overwrite) as directory:
            write_record(directory, record)  # first, because the model card tells what it says
            model.save_pretrained(str(directory))
        run.close()
    state.wait_for_everyone()
    return model if state.is_main_process else SentenceTransformer(str(output))


def _run_trainer(
    model: SentenceTransformer,
    sentences: Dataset,
    settings: Settings,
    run: TrainingRun,
    limits: dict[str, Any],
    seed: int,
    evaluator: Any,
    minutes_between_checkpoints: float,
    gather_across_devices: bool,
    checkpoint: Path | None,
) -> tuple[list[dict[str, float]], int, float]:
    """Train a model in place; the log, the number of steps and the seconds that all of them took."""
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
        eval_strategy="no" if evaluator is None else "steps",
        eval_steps=STEPS_BETWEEN_EVALUATIONS,
    )
    budget = TimeBudget(limits["minutes"])
    interruption = Interruption()
    trainer = MultiViewTrainer(
        model=model,
        args=arguments,
        train_dataset=sentences,
        loss=loss,
        evaluator=evaluator,
        callbacks=[
            LossCurves(loss),
            SamplerEpoch(),
            TrainingProgress(
                settings.batch_size * PartialState().num_processes, None if budget.minutes is None else budget
            ),
            CheckpointClock(minutes_between_checkpoints),
            interruption,
            budget,
        ],
    )
    for callback in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(callback)
    saved = None if checkpoint is None else checkpoint_state(checkpoint)
    if saved is not None and (saved.global_step >= saved.max_steps or budget.is_used_up(budget.used_until(saved))):
        # Interrupted after the last step: the trainer would add one more.
        trainer._load_from_checkpoint(str(checkpoint))
        return saved.log_history, saved.global_step, 60 * budget.used_until(saved)
    inference_length = model.max_seq_length
    model.max_seq_length = settings.max_train_length
    _train_in_bfloat16(model, _in_bfloat16(settings))
    with quiet_truncation(), interruption:
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    seconds = 60 * budget.used
    _train_in_bfloat16(model, False)
    model.max_seq_length = inference_length
    if interruption.happened:
        PartialState().wait_for_everyone()  # a launcher ends all processes as soon as one of them has failed
        raise Interrupted(f"interrupted after {trainer.state.global_step} steps; go on with resume (--resume)")
    return trainer.state.log_history, trainer.state.global_step, seconds


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
        "use_cpu": _no_gpu(),  # several processes on a CPU find each other only if told that it is one
        "ddp_broadcast_buffers": False,  # the word vectors are the same everywhere and never change
        "ddp_find_unused_parameters": False,
        "dataloader_pin_memory": False,
        "disable_tqdm": True,
        "report_to": "none",
    }
    return SentenceTransformerTrainingArguments(output_dir, **(arguments | changes))


def _evaluator(eval_data: str | Path, sentences: Dataset, settings: Settings, seed: int) -> Any:
    from .evaluation.training_evaluator import STSEvaluator

    sample = sample_sentences(sentences, 2_000, seed)
    return STSEvaluator(eval_data, fit_sentences=sample, n_components=settings.n_components)


def _check_limits(limits: dict[str, Any]) -> None:
    for name, value in limits.items():
        if value is not None and not value > 0:
            raise UserError(f"{name} must be above 0, not {value}")
    if limits["max_steps"] is not None and limits["epochs"] is not None:
        raise UserError("give max_steps or epochs, not both")


def _check_size(sentences: Dataset, settings: Settings, processes: int) -> None:
    if len(sentences) < settings.batch_size * processes:
        each = f" for each of {processes} processes" if processes > 1 else ""
        raise UserError(
            f"the corpus has {len(sentences)} sentences, too few for one batch of {settings.batch_size}{each}: "
            "give more text, or choose a smaller batch size"
        )


def _load_sentences(corpus: Any, text_column: str | None, language: str | None, on_bad_line: Any) -> Dataset:
    if _is_dataset(corpus):
        return corpus
    return load_corpus(corpus, text_column=text_column, language=language, on_bad_line=on_bad_line)


def _is_dataset(corpus: Any) -> bool:
    from datasets import Dataset

    return isinstance(corpus, Dataset)


def _names(corpus: Any) -> list[str]:
    if _is_dataset(corpus):
        return ["dataset"]
    sources = [corpus] if isinstance(corpus, (str, Path)) else list(corpus)
    return [os.path.basename(os.path.normpath(source)) for source in sources]


def _describe_vectors(vectors: WordVectors | str | Path | None, max_vocab: int | None) -> dict[str, Any]:
    if vectors is None:
        return {"source": "trained on the corpus (fastText)", "max_vocab": max_vocab}
    if not isinstance(vectors, (str, Path)):
        return {"source": f"{len(vectors)} x {vectors.dim} in memory", "max_vocab": max_vocab}
    path = Path(vectors)
    if not path.is_file():
        raise UserError(f"{path}: {'a folder, not a file of word vectors' if path.is_dir() else 'no such file'}")
    return {"source": path.name, "bytes": path.stat().st_size, "max_vocab": max_vocab}


def _in_bfloat16(settings: Settings) -> bool:
    """Whether products in the GRU are computed in bfloat16 on this machine."""
    if settings.precision == "auto":
        return _no_gpu() and has_fast_bfloat16()
    return settings.precision == "bfloat16"


def _train_in_bfloat16(model: SentenceTransformer, wanted: bool) -> None:
    for module in model:
        if isinstance(module, BiGRUView):
            module.train_in_bfloat16 = wanted


def _no_gpu() -> bool:
    return not torch.cuda.is_available()
