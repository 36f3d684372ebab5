"""Typed results of an evaluation, as JSON and as Markdown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mv_st.errors import UserError
from mv_st.files import whole_file

from .scores import STSScores

FORMAT = 1


@dataclass(frozen=True)
class TransferScores:
    """Scores of one supervised task on the vectors of a model.

    Attributes:
        protocol: How it was scored, in words.
        accuracy: Share of right answers on the test data; None for relatedness.
        f1: F1 of class 1, where the task reports it.
        pearson: Pearson's r of expected and gold scores; None for classification.
        spearman: Spearman's rho of the same.
        dev_score: Score that chose the regularisation (mean over folds, or on the validation split).
        regularization: Inverse strengths C that were chosen, one per outer fold.
        n_test: Number of test items.
        width: Width of the feature vectors.
    """

    protocol: str
    accuracy: float | None
    f1: float | None
    pearson: float | None
    spearman: float | None
    dev_score: float
    regularization: list[float]
    n_test: int
    width: int


TaskScores = STSScores | TransferScores


@dataclass(frozen=True)
class ModelScores:
    """Scores of one model.

    Attributes:
        name: The model.
        components: Which principal components were removed: `stored`, `transductive (1)`, ..., or `none`.
        view: The view, if only one of several was evaluated.
        tasks: Task name -> scores.
        seconds: Task name -> time taken, encoding included.
        training: How the model was trained (corpus, vectors, time, seed), if its folder says so.
    """

    name: str
    components: str
    view: str | None = None
    tasks: dict[str, TaskScores] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    training: dict[str, Any] | None = None

    @property
    def label(self) -> str:
        """The name, with the view if it is not the whole model."""
        return self.name if self.view is None else f"{self.name} [{self.view}]"


@dataclass(frozen=True)
class Failure:
    """Something that could not be scored, and why, in one line."""

    task: str
    message: str
    model: str | None = None

    def __str__(self) -> str:
        where = self.task if self.model is None else f"{self.model}, {self.task}"
        return f"{where}: {self.message}"


@dataclass(frozen=True)
class EvaluationResults:
    """Everything that `evaluate` found out.

    Attributes:
        models: Scores by model, in the order given.
        missing: Task name -> line that says what was looked for and not found.
        failed: What was found but could not be scored.
        settings: Component mode, seed, versions and so on: whatever is needed to repeat the run.
    """

    models: list[ModelScores]
    missing: dict[str, str]
    failed: list[Failure]
    settings: dict[str, Any]

    @property
    def complete(self) -> bool:
        """Whether every task that was asked for has been scored for every model."""
        return not self.missing and not self.failed

    def model(self, name: str) -> ModelScores:
        """The scores of the model of this name."""
        for scores in self.models:
            if name in (scores.name, scores.label):
                return scores
        raise KeyError(name)

    def problems(self) -> list[str]:
        """One line for each missing task and each failure."""
        return [*self.missing.values(), *(str(failure) for failure in self.failed)]

    def to_markdown(self) -> str:
        """Tables that say how they were scored and which components were removed."""
        from .tables import results_to_markdown

        return results_to_markdown(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold."""
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> EvaluationResults:
        """The inverse of `to_dict`."""
        models = [
            ModelScores(**{**model, "tasks": {name: _task_scores(scores) for name, scores in model["tasks"].items()}})
            for model in data["models"]
        ]
        failed = [Failure(**failure) for failure in data["failed"]]
        return cls(models, dict(data["missing"]), failed, dict(data["settings"]))

    def save(self, path: str | Path) -> None:
        """Write JSON; the file appears whole or not at all."""
        with whole_file(path) as partial:
            partial.write_text(json.dumps(self.to_dict(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> EvaluationResults:
        """Read what `save` wrote."""
        try:
            return cls.from_dict(json.loads(Path(path).read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path}: not a file of evaluation results ({type(error).__name__}: {error})") from error


def _task_scores(data: Mapping[str, Any]) -> TaskScores:
    return STSScores.from_dict(data) if "datasets" in data else TransferScores(**data)
