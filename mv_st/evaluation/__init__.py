"""Evaluation of sentence vectors: similarity (STS) and transfer (SentEval) tasks, run through mteb.

`evaluate` scores models on all tasks for which there is data. `STSTask`, `ClassificationTask` and `RelatednessTask`
are the classes from which further tasks are made. `STSEvaluator` scores a model while it is being trained.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .encoder import EvaluationEncoder, as_mteb_model
    from .registry import GROUPS, TASKS
    from .results import EvaluationResults
    from .run import evaluate
    from .senteval import ClassificationTask, RelatednessTask
    from .sts import STSTask
    from .training_evaluator import STSEvaluator

_WHERE = {
    "ClassificationTask": "senteval",
    "EvaluationEncoder": "encoder",
    "EvaluationResults": "results",
    "GROUPS": "registry",
    "RelatednessTask": "senteval",
    "STSEvaluator": "training_evaluator",
    "STSTask": "sts",
    "TASKS": "registry",
    "as_mteb_model": "encoder",
    "evaluate": "run",
}

__all__ = [
    "GROUPS",
    "TASKS",
    "ClassificationTask",
    "EvaluationEncoder",
    "EvaluationResults",
    "RelatednessTask",
    "STSEvaluator",
    "STSTask",
    "as_mteb_model",
    "evaluate",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = importlib.import_module(f".{_WHERE[name]}", __name__)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] not in {"mteb", "sklearn", "scipy"}:
            raise
        from mv_st.errors import UserError

        raise UserError(f"evaluation needs {error.name}: pip install 'mv-st[evaluation]'") from error
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)
