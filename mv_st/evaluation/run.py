"""Evaluate models on similarity and transfer tasks: what `mv-st evaluate` and the benchmarks call."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mv_st.errors import UserError
from mv_st.quiet import errors_only
from mv_st.training_record import versions

from .data import check_data_dir
from .encoder import Components, EvaluationEncoder
from .registry import select_tasks
from .results import EvaluationResults, Failure, ModelScores
from .rng import preserved_rng_state
from .task import FileTask, TaskNotFoundError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

logger = logging.getLogger(__name__)


def evaluate(
    models: Any,
    data_dir: str | Path | None = None,
    tasks: Iterable[str | type[FileTask]] | None = None,
    components: Components = "stored",
    n_components: int | None = None,
    view: str | None = None,
    seed: int = 1111,
    batch_size: int = 128,
) -> EvaluationResults:
    """Score one or more models.

    Tasks that are not known, or whose data is not there, are named in `missing`, what cannot be scored in `failed`;
    all others run.

    Args:
        models: A SentenceTransformer, a path or hub id, a list of these, or a mapping from names to these.
        data_dir: Folder with one folder per task; None takes the public datasets from the hub.
        tasks: Names (`"sts12"`), groups (`"sts"`, `"transfer"`), or task classes of your own; all if not given.
        components: Principal components that mv_st models remove: `"stored"` in the model, or fitted on the sentences
            that are scored: `"transductive"` on each side of each dataset or split apart, as the paper's evaluation
            does, `"transductive-joint"` on all of a task at once; or stored and then `"adapted"` to these sentences,
            each side apart, as `adapt_components` does.
        n_components: How many to fit in the transductive modes; as many as the model stores if not given.
        view: Evaluate one view of an mv_st model alone.
        seed: Seed of the folds; SentEval's if not given.
        batch_size: Sentences per forward pass.

    Returns:
        The results: `to_markdown()`, `save("results.json")`.

    Example:
        ```python
        from mv_st.evaluation import evaluate

        results = evaluate("my-model", "data/eval", tasks=["sts12", "mr"])
        print(results.to_markdown())
        ```
    """
    if n_components is not None and components in ("stored", "adapted"):
        raise UserError("n_components applies to transductive components; stored ones are in the model")
    folder = None if data_dir is None else check_data_dir(data_dir)
    with preserved_rng_state():  # mteb seeds the global generators
        wanted, unknown = select_tasks(tasks)
        found, missing = _find_tasks(wanted, folder, seed)
        failed: list[Failure] = []
        scores = []
        for name, model in _named(models).items():
            try:
                encoder = EvaluationEncoder(_load(model, name), name, components, n_components, view, batch_size)
            except UserError as error:
                failed.append(Failure("all tasks", str(error), name))
                logger.info("%s", failed[-1])
                continue
            tasks_of_model = [task(folder, seed=seed) for task in found]
            scores.append(_evaluate_model(encoder, tasks_of_model, _training_record(model), failed))
    settings = {
        "components": components,
        "n_components": n_components,
        "seed": seed,
        "tasks": [task.task_name for task in found],
        "versions": {**versions(), **{name: version(name) for name in ("mteb", "scikit-learn")}},
    }
    return EvaluationResults(scores, {**missing, **unknown}, failed, settings)


def _find_tasks(
    wanted: Sequence[type[FileTask]], folder: Path | None, seed: int
) -> tuple[list[type[FileTask]], dict[str, str]]:
    found, missing = [], {}
    for task in wanted:
        try:
            task(folder, seed=seed)
        except TaskNotFoundError as error:
            missing[task.task_name] = str(error)
            logger.info("%s", error)
        else:
            found.append(task)
    if len(missing) > 1 and not found:
        raise UserError(
            f"{folder} has none of the tasks {', '.join(missing)}; give the folder that holds their folders"
        )
    return found, missing


def _evaluate_model(
    encoder: EvaluationEncoder, tasks: Sequence[FileTask], training: dict[str, Any] | None, failed: list[Failure]
) -> ModelScores:
    import mteb

    result = ModelScores(encoder.name, encoder.component_mode, encoder.view, training=training)
    for task in tasks:
        logger.info("%s: %s", encoder.name, task.task_name)
        started = time.perf_counter()
        try:
            task.load_data(skip_broken=True)
            with errors_only("mteb"):  # it logs every step; we say what matters ourselves
                # No cache: it could return the scores of another model, data set or version.
                outcome = mteb.evaluate(encoder, task, cache=None, show_progress_bar=False, co2_tracker=False)
            result.tasks[task.task_name] = task.collect(outcome.task_results[0])
        except UserError as error:
            if not task.failed:
                task.failed[""] = str(error)
        result.seconds[task.task_name] = round(time.perf_counter() - started, 2)
        for part, message in task.failed.items():
            failed.append(Failure(f"{task.task_name}/{part}" if part else task.task_name, message, encoder.name))
            logger.info("%s", failed[-1])
        if task.data_loaded:
            task.unload_data()
    return result


def _named(models: Any) -> dict[str, Any]:
    """Give every model a name of its own."""
    if isinstance(models, Mapping):
        return dict(models)
    named: dict[str, Any] = {}
    for model in models if isinstance(models, list | tuple) else [models]:
        base = name = _default_name(model)
        number = 1
        while name in named:
            number += 1
            name = f"{base} ({number})"
        named[name] = model
    if not named:
        raise UserError("no models to evaluate")
    return named


def _default_name(model: Any) -> str:
    if isinstance(model, str | Path):
        # A folder is called by its last two parts at most, a hub id as it is.
        path = Path(model)
        return path.resolve().name if path.exists() else str(model)
    card = getattr(model, "model_card_data", None)
    return getattr(card, "model_name", None) or getattr(card, "model_id", None) or "model"


def _load(model: Any, name: str) -> SentenceTransformer:
    if not isinstance(model, str | Path):
        return model
    from sentence_transformers import SentenceTransformer

    import mv_st  # noqa: F401  makes our modules known to sentence-transformers

    try:
        return SentenceTransformer(str(model))
    except Exception as error:  # whatever a broken folder or an unreachable hub may raise
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"cannot load model {model}: {reason}") from error


def _training_record(model: Any) -> dict[str, Any] | None:
    """What `training.json` in a model's folder says, without the curves."""
    if not isinstance(model, str | Path):
        return None
    try:
        record = json.loads((Path(model) / "training.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return {key: value for key, value in record.items() if key != "history"}
