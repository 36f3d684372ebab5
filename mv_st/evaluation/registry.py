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


def select_tasks(tasks: Iterable[str | type[FileTask]] | None) -> tuple[list[type[FileTask]], dict[str, str]]:
    """Task classes for names, groups of names (`sts`, `transfer`, `all`) and classes; all tasks for None.

    Returns:
        The tasks, and for each name that is not one a line that says so.

    Example:
        >>> known, unknown = select_tasks(["sts12", "trec", "tsr12"])
        >>> [task.title for task in known], list(unknown)
        (['STS12', 'TREC'], ['tsr12'])
    """
    chosen: dict[str, type[FileTask]] = {}
    unknown: dict[str, str] = {}
    for item in ["all"] if tasks is None else tasks:
        if isinstance(item, type):
            chosen[item.task_name] = item
            continue
        for name in GROUPS.get(item.lower(), [item.lower()]):
            if name in TASKS:
                chosen[name] = TASKS[name]
            else:
                unknown[item] = f"no task {item!r}; there are {', '.join([*TASKS, *GROUPS])}"
    if not chosen:
        raise UserError(next(iter(unknown.values()), "no tasks to evaluate"))
    return list(chosen.values()), unknown


def task_titles(tasks: Sequence[str]) -> list[str]:
    """Names of tasks as tables print them."""
    return [TASKS[task].title if task in TASKS else task for task in tasks]
