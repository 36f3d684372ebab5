"""Markdown tables of results. Every table says how it was scored and which components were removed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .scores import STSScores

if TYPE_CHECKING:
    from .results import EvaluationResults, ModelScores, TransferScores

MISSING = "–"
SCORINGS: Mapping[str, tuple[str, Callable[[STSScores], float]]] = {
    "mean": ("Pearson's r x 100, unweighted mean over the datasets of a year", lambda s: s.mean.pearson),
    "weighted": ("Pearson's r x 100, mean over datasets weighted by size", lambda s: s.weighted_mean.pearson),
    "pooled": ("Spearman's rho x 100 over all pairs of a year joined", lambda s: s.pooled.spearman),
    "mean-spearman": ("Spearman's rho x 100, unweighted mean over the datasets of a year", lambda s: s.mean.spearman),
}
INCOMPLETE = "†"


@dataclass(frozen=True)
class Cell:
    """One number of a table.

    Attributes:
        value: The number, or None for a cell that nobody has filled.
        quoted: Taken from a publication, not measured here.
        incomplete: Measured on fewer datasets than belong to the task.
    """

    value: float | None
    quoted: bool = False
    incomplete: bool = False

    def __str__(self) -> str:
        if self.value is None:
            return MISSING
        number = f"{self.value:.1f}" + (INCOMPLETE if self.incomplete else "")
        return f"*{number}*" if self.quoted else number


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table; the first column is text, the others are numbers.

    Example:
        >>> print(markdown_table(["", "STS12"], [["average", Cell(51.23)], ["paper", Cell(60.9, quoted=True)]]))
        |  | STS12 |
        | --- | ---: |
        | average | 51.2 |
        | paper | *60.9* |
    """
    lines = [_line(head), _line(["---", *["---:"] * (len(head) - 1)])]
    return "\n".join([*lines, *(_line([str(cell) for cell in row]) for row in rows)])


def results_to_markdown(results: EvaluationResults) -> str:
    """All tables of one evaluation, and what is missing from it."""
    parts = []
    if any(_with_scores(results, STSScores)):
        parts += [sts_table(results, scoring) for scoring in ("mean", "pooled")]
    if any(_with_scores(results, None)):
        parts.append(transfer_table(results))
    if results.problems():
        parts.append("Not scored:\n\n" + "\n".join(f"- {line}" for line in results.problems()))
    return "\n\n".join(parts) + "\n"


def sts_table(results: EvaluationResults, scoring: str = "mean") -> str:
    """One row per model, one column per similarity task."""
    from .registry import TASKS

    title, score = SCORINGS[scoring]
    tasks = _task_names(results, STSScores)
    absent: dict[str, list[str]] = {}
    rows = []
    for model in results.models:
        cells = []
        for task in tasks:
            scores = model.tasks.get(task)
            if isinstance(scores, STSScores):
                cells.append(Cell(100 * score(scores), incomplete=bool(scores.absent)))
                absent.setdefault(task, scores.absent)
            else:
                cells.append(Cell(None))
        rows.append([model.label, model.components, *cells])
    head = ["model", "components", *(TASKS[task].title if task in TASKS else task for task in tasks)]
    notes = [f"{task} without {', '.join(names)}" for task, names in absent.items() if names]
    note = f"\n\n{INCOMPLETE} not all datasets: {'; '.join(notes)}." if notes else ""
    return f"Similarity by cosine. {title}.\n\n{markdown_table(head, rows)}{note}"


def transfer_table(results: EvaluationResults) -> str:
    """One row per model, one column per supervised task."""
    from .registry import TASKS

    tasks = _task_names(results, None)
    rows = []
    for model in results.models:
        cells = [_transfer_cell(model, task) for task in tasks]
        rows.append([model.label, model.components, *cells])
    head = ["model", "components", *(TASKS[task].title if task in TASKS else task for task in tasks)]
    title = (
        "Transfer: logistic regression on frozen vectors, SentEval's protocol. "
        "Accuracy x 100 (MRPC: accuracy / F1); SICK-R and STS-B: Pearson's r x 100 of a supervised regression."
    )
    return f"{title}\n\n{markdown_table(head, rows)}"


def transfer_value(scores: TransferScores) -> float | None:
    """The number by which a supervised task is reported, x 100."""
    value = scores.accuracy if scores.accuracy is not None else scores.pearson
    return None if value is None else 100 * value


def _transfer_cell(model: ModelScores, task: str) -> str:
    scores = model.tasks.get(task)
    if scores is None or isinstance(scores, STSScores):
        return MISSING
    value = str(Cell(transfer_value(scores)))
    return value if scores.f1 is None else f"{value} / {Cell(100 * scores.f1)}"


def _with_scores(results: EvaluationResults, kind: type | None) -> list[str]:
    return [
        task
        for model in results.models
        for task, scores in model.tasks.items()
        if isinstance(scores, STSScores) == (kind is STSScores)
    ]


def _task_names(results: EvaluationResults, kind: type | None) -> list[str]:
    """Names of the tasks of a kind that any model has, in the usual order, others behind."""
    from .registry import TASKS

    found = dict.fromkeys(_with_scores(results, kind))
    return [*(task for task in TASKS if task in found), *(task for task in found if task not in TASKS)]


def _line(cells: Sequence[object]) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"
