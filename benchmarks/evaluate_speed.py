"""How long the transfer tasks take with the widest features: an untrained model of the paper's size, 14,336 wide.

    python benchmarks/evaluate_speed.py --vectors glove.vec.gz --data-dir eval

Processor time is printed beside time on the clock, because only the former is meaningful on a machine that others use.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from reporting import printed_command, write_results

import mv_st
from mv_st.evaluation import EvaluationEncoder, evaluate
from mv_st.evaluation.results import TransferScores


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", required=True)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--hidden-size", type=int, default=1024)
    parser.add_argument("--tasks", nargs="+", default=mv_st.evaluation.GROUPS["transfer"])
    options = parser.parse_args()
    model = mv_st.build_model(options.vectors, hidden_size=options.hidden_size, seed=0)

    rows = []
    missing: list[str] = []
    for task in options.tasks:
        encoding = Stopwatch(EvaluationEncoder.encode_groups)
        # A function, because only that is bound to the encoder it is called on.
        EvaluationEncoder.encode_groups = lambda self, *args, watch=encoding: watch(self, *args)  # type: ignore
        whole = Stopwatch(evaluate)
        results = whole({"untrained": model}, options.data_dir, [task])
        EvaluationEncoder.encode_groups = encoding.function  # type: ignore[method-assign]
        missing += results.problems()
        scores = results.models[0].tasks.get(task)
        if isinstance(scores, TransferScores):
            rows.append(
                {
                    "task": task,
                    "width": scores.width,
                    "encoding_seconds": round(encoding.clock, 1),
                    "encoding_processor_seconds": round(encoding.processor, 1),
                    "classifier_seconds": round(whole.clock - encoding.clock, 1),
                    "classifier_processor_seconds": round(whole.processor - encoding.processor, 1),
                }
            )
            report(rows, missing, options)


def report(rows: Sequence[dict[str, Any]], missing: list[str], options: argparse.Namespace) -> None:
    """Write what is known so far, so that an interrupted run is not lost."""
    threads = torch.get_num_threads()
    names = [name for name in rows[0] if name.endswith("seconds")]
    total = {name: round(sum(row[name] for row in rows), 1) for name in names}
    result = {
        "command": printed_command(),
        "hidden_size": options.hidden_size,
        "threads": threads,
        "processor": platform.processor() or platform.machine(),
        "tasks": list(rows),
        "total": total,
        "missing": missing,
    }
    minutes = (total["encoding_processor_seconds"] + total["classifier_processor_seconds"]) / 60
    lines = [
        f"# Time of the transfer tasks, d = {options.hidden_size}",
        "",
        f"{threads} threads. Seconds on the clock, and of processor time (all threads together).",
        "",
        "| task | width | encoding | processor | classifier | processor |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in [*rows, {"task": "all", "width": "", **total}]:
        cells = [row["task"], f"{row['width']}", *(f"{row[name]:.0f}" for name in names)]
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", f"Processor time {minutes:.1f} min, or {minutes / threads:.1f} min on {threads} cores of one's own."]
    lines += ["", *(f"Not there: {line}" for line in missing)]
    write_results("evaluate_speed", result, lines)


if __name__ == "__main__":
    main()
