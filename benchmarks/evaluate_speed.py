"""How long the transfer tasks take with the widest features: an untrained model of the paper's size, 14,336 wide.

    python benchmarks/evaluate_speed.py --vectors glove.vec.gz --data-dir eval
    python benchmarks/evaluate_speed.py --vectors glove.vec.gz --data-dir eval --tasks sst2

Tasks that are not asked for keep the times that an earlier call has measured with as many threads. Processor time is
given beside time on the clock, because only the former is meaningful on a machine that others use.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from pathlib import Path
from typing import Any

import torch
from reporting import RESULTS, printed_command, write_results

import mv_st
from mv_st.evaluation import GROUPS, EvaluationEncoder, evaluate
from mv_st.evaluation.results import TransferScores
from mv_st.evaluation.tables import markdown_table, transfer_value

# Rows of tasks that may not be passed on here. Both are scored as MR is, so that their time follows from its own.
ROWS_OF_TASKS_LIKE_MR = {"cr": 3_771, "subj": 10_000}
ROWS_OF_MR = 10_662
SECONDS = ("encoding_seconds", "encoding_processor_seconds", "classifier_seconds", "classifier_processor_seconds")


class Stopwatch:
    """Clock and processor time of a function that is called several times."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.clock = self.processor = 0.0

    def __call__(self, *args: Any) -> Any:
        """Call the function and add to the times."""
        clock, processor = time.perf_counter(), time.process_time()
        result = self.function(*args)
        self.clock += time.perf_counter() - clock
        self.processor += time.process_time() - processor
        return result


def measure(model: Any, data_dir: Path, task: str) -> dict[str, Any] | None:
    """Times of one task, or None if there is no data for it."""
    encoding = Stopwatch(EvaluationEncoder.encode_groups)
    # A function, because only that is bound to the encoder it is called on.
    EvaluationEncoder.encode_groups = lambda self, *args: encoding(self, *args)  # type: ignore[method-assign]
    whole = Stopwatch(evaluate)
    try:
        results = whole({"untrained": model}, data_dir, [task])
    finally:
        EvaluationEncoder.encode_groups = encoding.function  # type: ignore[method-assign]
    scores = results.models[0].tasks.get(task)
    if not isinstance(scores, TransferScores):
        return None
    times = (
        encoding.clock,
        encoding.processor,
        whole.clock - encoding.clock,
        whole.processor - encoding.processor,
    )
    return {
        "width": scores.width,
        "score": transfer_value(scores),
        "regularization": scores.regularization,
        **{name: round(seconds, 1) for name, seconds in zip(SECONDS, times, strict=True)},
        "command": printed_command(),
    }


def extrapolated(tasks: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Times of the tasks that are not there, in proportion to their rows."""
    if "mr" not in tasks:
        return {}
    return {
        task: {name: round(tasks["mr"][name] * rows / ROWS_OF_MR, 1) for name in SECONDS}
        for task, rows in ROWS_OF_TASKS_LIKE_MR.items()
        if task not in tasks
    }


def report(tasks: dict[str, dict[str, Any]], missing: list[str], options: argparse.Namespace) -> None:
    """Write what is known so far, so that an interrupted run is not lost."""
    threads = torch.get_num_threads()
    tasks = {task: tasks[task] for task in GROUPS["transfer"] if task in tasks}
    estimates = extrapolated(tasks)
    total = {name: round(sum(row[name] for row in (*tasks.values(), *estimates.values())), 1) for name in SECONDS}
    minutes = (total["encoding_seconds"] + total["classifier_seconds"]) / 60
    of_processor = (total["encoding_processor_seconds"] + total["classifier_processor_seconds"]) / 60
    rows = [[task, row["width"], *(f"{row[name]:.0f}" for name in SECONDS)] for task, row in tasks.items()]
    rows += [[f"{task} (estimate)", "", *(f"{row[name]:.0f}" for name in SECONDS)] for task, row in estimates.items()]
    rows += [["all", "", *(f"{total[name]:.0f}" for name in SECONDS)]]
    unmeasured = [task for task in GROUPS["transfer"] if task not in tasks and task not in estimates]
    lines = [
        f"# Time of the transfer tasks, d = {options.hidden_size}",
        "",
        f"{threads} threads. Seconds on the clock, and of processor time (all threads together).",
        "",
        markdown_table(["task", "width", "encoding", "processor", "classifier", "processor"], rows),
        "",
        f"On the clock {minutes:.1f} minutes in all, beside whatever else the machine was doing; {of_processor:.1f} "
        f"minutes of processor time" + (f", without {', '.join(unmeasured)}." if unmeasured else "."),
    ]
    if estimates:
        lines += [
            "",
            "Estimates are in proportion to the number of rows, from MR, which is scored in the same way: "
            + ", ".join(f"{task} {rows:,}" for task, rows in ROWS_OF_TASKS_LIKE_MR.items() if task in estimates)
            + f" against {ROWS_OF_MR:,}.",
        ]
    result = {
        "command": printed_command(),
        "hidden_size": options.hidden_size,
        "threads": threads,
        "processor": platform.processor() or platform.machine(),
        "tasks": tasks,
        "estimates": estimates,
        "total": total,
        "missing": missing,
    }
    write_results("evaluate_speed", result, lines)


def earlier_times(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Times by task in the file of results, if they were measured in the same way."""
    file = RESULTS / "evaluate_speed.json"
    if not file.exists():
        return {}
    before = json.loads(file.read_text(encoding="utf-8"))
    same = before["hidden_size"] == options.hidden_size and before["threads"] == torch.get_num_threads()
    return before["tasks"] if same else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", required=True)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--hidden-size", type=int, default=1024)
    parser.add_argument("--tasks", nargs="+", choices=GROUPS["transfer"], default=GROUPS["transfer"])
    options = parser.parse_args()
    model = mv_st.build_model(options.vectors, hidden_size=options.hidden_size, seed=0)
    tasks = earlier_times(options)
    missing = []
    for task in options.tasks:
        times = measure(model, options.data_dir, task)
        if times is None:
            missing.append(task)
        else:
            tasks[task] = times
            report(tasks, missing, options)


if __name__ == "__main__":
    main()
