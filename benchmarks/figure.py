"""The figure of the paper: how much adjacent sentences agree in each pair of views, over the course of training.

    python benchmarks/figure.py runs/cross runs/all

Takes two trained models, one with agreement across views and one with all agreements (benchmarks/ablation.py trains
both), and reads the curves in their `training.json`. Writes `results/figure.png`, `.json` (complete) and `.md`.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from reporting import RESULTS, printed_command, write_results
from tables import training_in_words

from mv_st.errors import UserError
from mv_st.evaluation.tables import markdown_table

PAIRS = {"f-f": "agreement_gru_gru", "g-g": "agreement_linear_linear", "f-g": "agreement_gru_linear"}
TITLES = {"cross": "agreement across views (the paper's)", "all": "all four agreements", "within": "within each view"}
PAPER = (
    "The paper's figure has no numbers to quote. Its caption: with all four agreements, f-f and g-g come to dominate "
    "while f-g is down-weighted; with agreement across views, f and g keep learning from each other."
)


def read_run(path: Path) -> dict[str, Any]:
    """The record of a training run, with its curves by pair of views."""
    file = path / "training.json" if path.is_dir() else path
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
        history = [entry for entry in record.pop("history") if "temperature" in entry]
        agreement = record["settings"]["agreement"]
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{file}: not the record of a training run ({type(error).__name__})") from error
    if not history or not all(name in history[0] for name in PAIRS.values()):
        raise UserError(f"{file}: has no curves of a GRU and a linear view")
    curves = {pair: [entry[name] for entry in history] for pair, name in PAIRS.items()}
    steps = [entry["step"] for entry in history]
    temperature = [entry["temperature"] for entry in history]
    return {"agreement": agreement, "steps": steps, "temperature": temperature, "curves": curves, "training": record}


def draw(runs: list[dict[str, Any]], path: Path) -> None:
    """One panel per run, with the same scale."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5 * len(runs), 3.8), layout="constrained")
    panels = figure.subplots(1, len(runs), sharey=True, squeeze=False)[0]
    for panel, run in zip(panels, runs, strict=True):
        for pair, values in run["curves"].items():
            panel.plot(run["steps"], values, label=pair)
        panel.set_title(TITLES[run["agreement"]], fontsize=10)
        panel.set_xlabel("steps")
        panel.grid(alpha=0.3)
        panel.legend()
    panels[0].set_ylabel("cosine of adjacent sentences / temperature")
    figure.savefig(path, dpi=130)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="MODEL", help="folder of a model, or its training.json")
    parser.add_argument("--name", default="figure", help="name of the output files")
    options = parser.parse_args()
    try:
        runs = [read_run(path) for path in options.runs]
    except UserError as error:
        print(error, file=sys.stderr)
        return 1
    RESULTS.mkdir(exist_ok=True)
    draw(runs, RESULTS / f"{options.name}.png")
    rows = []
    for run in runs:
        for when, index in (("first", 0), ("last", -1)):
            values = [run["temperature"][index], *(curve[index] for curve in run["curves"].values())]
            place = f"{when} ({run['steps'][index]:,})"
            rows.append([TITLES[run["agreement"]], place, *(f"{value:.3f}" for value in values)])
    lines = [
        "# Agreement of adjacent sentences during training",
        "",
        f"![curves]({options.name}.png)",
        "",
        "Mean cosine of adjacent sentences divided by the temperature, for each pair of views (f the GRU, g the "
        f"linear map), as in the figure of Tang & de Sa (2018, arXiv 1805.07443). {PAPER}",
        "",
        markdown_table(["trained with", "steps", "temperature", *PAIRS], rows),
        "",
        *(f"- {TITLES[run['agreement']]}: {training_in_words(run['training'])}" for run in runs),
    ]
    for versions in {tuple(run["training"]["versions"].items()): None for run in runs}:
        lines.append("- trained with " + ", ".join(f"{name} {number}" for name, number in versions))
    write_results(options.name, {"command": printed_command(), "paper": PAPER, "runs": runs}, lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
