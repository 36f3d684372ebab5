"""The ablation of Tang & de Sa (2018): what it trains, what it scores, and the table with our numbers beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .paper import YEARS, PaperTable, Row, paper_results, similarity_cells
from .results import ModelScores, TransferScores
from .scores import STSScores
from .tables import Cell, transfer_value

RUNS: dict[str, dict[str, Any]] = {
    "cross": {"views": ("gru", "linear"), "agreement": "cross"},
    "two-gru": {"views": ("gru", "gru"), "agreement": "cross"},
    "two-linear": {"views": ("linear", "linear"), "agreement": "cross"},
    "gru": {"views": ("gru",), "agreement": "cross"},
    "linear": {"views": ("linear",), "agreement": "cross"},
    "all": {"views": ("gru", "linear"), "agreement": "all"},
    "within": {"views": ("gru", "linear"), "agreement": "within"},
}
"""The training runs, with what each changes in the settings."""

VARIANTS = {
    "main": "f and g, agreement across views",
    "mv_same_type": "two encoders of one kind, agreement across views",
    "single_view": "one encoder, trained alone",
    "agree_all_four": "f and g, all four agreements",
    "agree_within_view": "f and g, agreement within each view",
}
CORPORA = {"ablation_bookcorpus": ("paper, BookCorpus", "mv_c1"), "ablation_umbc": ("paper, UMBC News", "mv_c2")}
COLUMNS = [
    "hours",
    "STS12-16",
    "Δ STS12-16",
    "STS12-14",
    "Δ STS12-14",
    "STS-B",
    "SICK14",
    "SICK-R, STS-B",
    "Δ SICK-R, STS-B",
    "binary",
    "Δ binary",
    "MRPC",
    "F1",
]
BINARY_TASKS = ("mr", "cr", "subj", "mpqa", "sst2")


@dataclass(frozen=True)
class AblationRow:
    """A line of the paper's ablation tables.

    Attributes:
        variant: Key of `VARIANTS`.
        representation: As the paper calls it: f, g1, en(f,g), ...
        parts: Run and view of each encoder whose vectors are added; a whole run has one part without a view.
    """

    variant: str
    representation: str
    parts: tuple[tuple[str, str | None], ...]


ROWS: tuple[AblationRow, ...] = (
    AblationRow("main", "f", (("cross", "gru"),)),
    AblationRow("main", "g", (("cross", "linear"),)),
    AblationRow("main", "en(f,g)", (("cross", None),)),
    AblationRow("mv_same_type", "f1", (("two-gru", "gru_1"),)),
    AblationRow("mv_same_type", "en(f1,f2)", (("two-gru", None),)),
    AblationRow("mv_same_type", "g1", (("two-linear", "linear_1"),)),
    AblationRow("mv_same_type", "en(g1,g2)", (("two-linear", None),)),
    AblationRow("mv_same_type", "en(f1,g1)", (("two-gru", "gru_1"), ("two-linear", "linear_1"))),
    AblationRow("single_view", "f", (("gru", None),)),
    AblationRow("single_view", "g", (("linear", None),)),
    AblationRow("single_view", "en(f,g)", (("gru", "gru"), ("linear", "linear"))),
    AblationRow("agree_all_four", "f", (("all", "gru"),)),
    AblationRow("agree_all_four", "g", (("all", "linear"),)),
    AblationRow("agree_all_four", "en(f,g)", (("all", None),)),
    AblationRow("agree_within_view", "f", (("within", "gru"),)),
    AblationRow("agree_within_view", "g", (("within", "linear"),)),
    AblationRow("agree_within_view", "en(f,g)", (("within", None),)),
)


@dataclass(frozen=True)
class Measured:
    """The scores of a line.

    Attributes:
        row: The line.
        scores: Scores in one mode of components.
        hours: Time of all training runs that the line needs.
    """

    row: AblationRow
    scores: ModelScores
    hours: float


def ablation_table(measured: Sequence[Measured]) -> PaperTable:
    """The two ablation tables of the paper in one, each of its lines followed by ours."""
    rows = []
    cells_of = {_key(m.row, m.scores.components): _cells(m) for m in measured}
    for row in ROWS:
        group = VARIANTS[row.variant]
        for table, (name, column) in CORPORA.items():
            rows.append(Row(f"{row.representation}, {name}", _printed(table, column, row), group=group))
        for (variant, representation, components), cells in cells_of.items():
            if (variant, representation) != (row.variant, row.representation):
                continue
            main = cells_of.get(("main", _like(representation), components), {})
            changes = {} if row.variant == "main" else _differences(cells, main)
            rows.append(Row(f"{representation}, ours", cells | changes, components, group))
    return PaperTable(
        "Ablation. STS and SICK14: similarity by cosine, Pearson's r x 100, unweighted mean over the datasets of a "
        "year. SICK-R, STS-B: mean of the two supervised regressions, Pearson's r x 100. Binary: mean accuracy x 100 "
        "of MR, CR, SUBJ, MPQA and SST. Δ: difference from the same representation of the first group.",
        COLUMNS,
        rows,
        [
            "STS12-14 is the mean of the first three years with STS13 without SMT, which only the LDC gives out; "
            "STS12-16 is the mean of all five years with SMT. f is the GRU, g the linear map, en() adds encoders.",
            "Quoted as printed. MRPC of g with all four agreements, UMBC News, is likely printed the wrong way round "
            "(73.6 / 81.4); MRPC of en(f,g) within views, BookCorpus, equals the main model's and may be copied.",
            *_notes(measured),
        ],
    )


def _cells(measured: Measured) -> dict[str, Cell]:
    scores = measured.scores
    similarity = similarity_cells(scores)
    cells: dict[str, Cell] = {name: similarity[name] for name in ("STS12-16", "STS-B", "SICK14") if name in similarity}
    first_years = [similarity.get(name) for name in ("STS12", "STS13 without SMT", "STS14")]
    if all(cell is not None and not cell.incomplete for cell in first_years):
        cells["STS12-14"] = Cell(_mean([cell.value for cell in first_years if cell is not None]))
    relatedness = _transfer(scores, ("sickr-supervised", "stsb-supervised"))
    if len(relatedness) == 2:
        cells["SICK-R, STS-B"] = Cell(_mean(relatedness))
    if binary := _transfer(scores, BINARY_TASKS):
        cells["binary"] = Cell(_mean(binary), incomplete=len(binary) < len(BINARY_TASKS))
    mrpc = scores.tasks.get("mrpc")
    if isinstance(mrpc, TransferScores) and mrpc.f1 is not None:
        cells |= {"MRPC": Cell(transfer_value(mrpc)), "F1": Cell(100 * mrpc.f1)}
    return cells | {"hours": Cell(measured.hours)}


def _printed(table: str, column: str, row: AblationRow) -> dict[str, Cell]:
    (printed,) = (
        line
        for line in paper_results()["tables"][table]["rows"]
        if (line["variant"], line["representation"]) == (row.variant, row.representation)
    )
    change = printed.get("delta", {})
    values = {
        "hours": printed["hrs"],
        "STS12-16": printed["sts12_16_avg"],
        "Δ STS12-16": change.get("sts12_16_avg"),
        "SICK-R, STS-B": printed["sickr_stsb_avg"],
        "Δ SICK-R, STS-B": change.get("sickr_stsb_avg"),
        "binary": printed["binary_cls_avg"],
        "Δ binary": change.get("binary_cls_avg"),
        "MRPC": printed["MRPC"]["acc"],
        "F1": printed["MRPC"]["f1"],
    }
    if (row.variant, row.representation) == ("main", "en(f,g)"):
        values["STS12-14"] = _printed_first_years(column)
        values["SICK14"] = paper_results()["tables"]["unsupervised"]["rows"]["SICK14"][column]
    return {name: Cell(value, quoted=True) for name, value in values.items()}


def _printed_first_years(column: str) -> float:
    years = paper_results()["tables"]["sts_detailed"]["years"]
    return _mean(
        [
            _mean([values[column] for name, values in years[year.upper()]["datasets"].items() if name != "SMT"])
            for year in YEARS[:3]
        ]
    )


def _differences(cells: dict[str, Cell], main: dict[str, Cell]) -> dict[str, Cell]:
    changes = {}
    for name in ("STS12-16", "STS12-14", "SICK-R, STS-B", "binary"):
        ours, theirs = cells.get(name), main.get(name)
        if ours and theirs and ours.value is not None and theirs.value is not None:
            changes[f"Δ {name}"] = Cell(ours.value - theirs.value, incomplete=ours.incomplete or theirs.incomplete)
    return changes


def _like(representation: str) -> str:
    """The representation of the main model that another is compared with."""
    return "en(f,g)" if representation.startswith("en") else representation[0]


def _key(row: AblationRow, components: str) -> tuple[str, str, str]:
    return row.variant, row.representation, components


def _transfer(scores: ModelScores, tasks: Sequence[str]) -> list[float]:
    values = [transfer_value(task) for name in tasks if isinstance(task := scores.tasks.get(name), TransferScores)]
    return [value for value in values if value is not None]


def _mean(values: Sequence[float | None]) -> float:
    return float(np.mean([value for value in values if value is not None]))


def _notes(measured: Sequence[Measured]) -> list[str]:
    scored = {name for m in measured for name, task in m.scores.tasks.items() if not isinstance(task, STSScores)}
    absent = [task for task in BINARY_TASKS if task not in scored]
    return [f"† binary: without {', '.join(absent)}."] if scored and absent else []
