"""The tasks by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mv_st.errors import UserError

from .senteval import TRANSFER_TASKS
from .sts import STS_TASKS
from .task import FileTask

TASKS: dict[str, type[FileTask]] = {task.task_name: task for task in (*STS_TASKS, *TRANSFER_TASKS)}
"""All tasks of the suite, in the order of the tables."""

GROUPS: dict[str, list[str]] = {
    "sts": [task.task_name for task in STS_TASKS],
    "transfer": [task.task_name for task in TRANSFER_TASKS],
    "all": list(TASKS),
}


def select_tasks(tasks: Iterable[str | type[FileTask]] | None) -> list[type[FileTask]]:
    """Task classes for names, groups of names (`sts`, `transfer`, `all`) and classes; all tasks for None.

    Example:
        >>> [task.title for task in select_tasks(["sts12", "trec"])]
        ['STS12', 'TREC']
    """
    chosen: dict[str, type[FileTask]] = {}
    for item in ["all"] if tasks is None else tasks:
        if isinstance(item, type):
            chosen[item.task_name] = item
            continue
        for name in GROUPS.get(item.lower(), [item.lower()]):
            if name not in TASKS:
                raise UserError(f"no task {item!r}; there are {', '.join([*TASKS, *GROUPS])}")
            chosen[name] = TASKS[name]
    if not chosen:
        raise UserError("no tasks to evaluate")
    return list(chosen.values())


def task_titles(tasks: Sequence[str]) -> list[str]:
    """Names of tasks as tables print them."""
    return [TASKS[task].title if task in TASKS else task for task in tasks]
