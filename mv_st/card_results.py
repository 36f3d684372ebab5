"""The results file of `mv-st evaluate` in the form that a model card holds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import UserError

if TYPE_CHECKING:
    from huggingface_hub import EvalResult

    from .evaluation.results import EvaluationResults, ModelScores, TransferScores
    from .evaluation.scores import STSScores


def read_card_results(path: str | Path, model_name: str | None = None) -> tuple[tuple[EvalResult, ...], str]:
    """Read a results file for the card of one model.

    Args:
        path: What `mv-st evaluate --output` wrote.
        model_name: Folder or id of the model, needed if the file holds results of several.

    Returns:
        Results for the metadata, between -1 and 1, and the tables for the text.
    """
    from .evaluation import EvaluationResults

    results = EvaluationResults.load(path)
    model = _choose(results, model_name, path)
    try:
        from .evaluation.registry import task_titles
    except ModuleNotFoundError as error:
        raise UserError(f"{path}: results need {error.name}: pip install 'mv-st[evaluation]'") from error
    titles = dict(zip(model.tasks, task_titles(list(model.tasks)), strict=True))
    entries = tuple(
        entry
        for task, scores in model.tasks.items()
        for entry in _entries(task, titles[task], scores, model.components)
    )
    shown = replace(results, models=[replace(model, name="this model")], missing={}, failed=[])
    return entries, shown.to_markdown().strip()


def _choose(results: EvaluationResults, model_name: str | None, path: str | Path) -> ModelScores:
    """The scores of a whole model, not of one view, by its name if there are several."""
    whole = [model for model in results.models if model.view is None]
    if len(whole) > 1 and model_name is not None:
        names = {model_name, Path(model_name).resolve().name}
        whole = [model for model in whole if model.name in names]
    if len(whole) != 1 or not whole[0].tasks:
        found = ", ".join(model.label for model in results.models) or "none"
        raise UserError(f"{path}: no results of {model_name or 'this model'} as a whole; it has results of {found}")
    return whole[0]


def _entries(task: str, title: str, scores: STSScores | TransferScores, components: str) -> list[EvalResult]:
    """The numbers of one task, each with the words that say how it was computed."""
    from .evaluation.scores import STSScores

    values: dict[str, tuple[str, float | None]]
    if isinstance(scores, STSScores):
        left_out = f", without {', '.join(scores.absent)}" if scores.absent else ""
        values = {
            "pearsonr": ("Pearson's r, unweighted mean over the datasets", scores.mean.pearson),
            "spearmanr": ("Spearman's rho over all pairs", scores.pooled.spearman),
        }
        kind, suffix = ("sentence-similarity", "Semantic Textual Similarity"), f"{left_out} ({components} components)"
    else:
        values = {
            "accuracy": ("Accuracy", scores.accuracy),
            "f1": ("F1", scores.f1),
            "pearsonr": ("Pearson's r", scores.pearson),
            "spearmanr": ("Spearman's rho", scores.spearman),
        }
        kind, suffix = ("text-classification", "Transfer to a classifier"), f" ({scores.protocol})"
    return [
        _entry(kind, task, title, metric, name + suffix, value)
        for metric, (name, value) in values.items()
        if value is not None
    ]


def _entry(kind: tuple[str, str], task: str, title: str, metric: str, name: str, value: float) -> EvalResult:
    from huggingface_hub import EvalResult

    return EvalResult(
        task_type=kind[0],
        task_name=kind[1],
        dataset_type=task,
        dataset_name=title,
        dataset_split="test",
        metric_type=metric,
        metric_name=name,
        metric_value=round(value, 4),
    )
