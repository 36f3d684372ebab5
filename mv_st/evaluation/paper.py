"""Tables of Tang & de Sa (2018) with measured scores beside the printed ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from .results import ModelScores, TransferScores
from .scores import STSScores
from .tables import Cell, markdown_table, transfer_value

YEARS = ("sts12", "sts13", "sts14", "sts15", "sts16")
SYSTEMS = {
    "glove_avg": "GloVe average",
    "glove_tfidf": "GloVe tf-idf average",
    "glove_wr": "GloVe + WR (SIF)",
    "glove_proc": "GloVe + proc.",
    "word2vec_bow": "word2vec bag of words",
    "word2vec_proc": "word2vec + proc.",
    "skip_thought": "Skip-thought",
    "siamese_cbow": "Siamese CBOW",
    "infersent": "InferSent (labels)",
    "gran": "GRAN (labels)",
    "lstm_avg": "LSTM average (labels)",
    "mv_c1": "Multi-view, BookCorpus",
    "mv_c2": "Multi-view, UMBC News",
    "mv_c3": "Multi-view, Amazon Book Review",
}
# The paper's short names of datasets, and of the tasks of its supervised table.
DATASET_NAMES = {"SMTeuroparl": "SMTeuro", "surprise.OnWN": "OnWN", "surprise.SMTnews": "SMTnews"}
SUPERVISED_COLUMNS = {
    "SICK-R": "sickr-supervised",
    "SICK-E": "sicke",
    "MRPC": "mrpc",
    "TREC": "trec",
    "MR": "mr",
    "CR": "cr",
    "SUBJ": "subj",
    "MPQA": "mpqa",
    "SST": "sst2",
    "STS-B": "stsb-supervised",
}
LEGEND = "Measured numbers are upright, *quoted* ones (Tang & de Sa 2018, arXiv 1805.07443) in italics, – is missing."


@dataclass(frozen=True)
class Row:
    """A line of a table: a system and its numbers by column."""

    name: str
    cells: dict[str, Cell]
    components: str = ""
    group: str = ""


@dataclass(frozen=True)
class PaperTable:
    """A table in which measured, quoted and missing numbers are told apart."""

    title: str
    columns: list[str]
    rows: list[Row]
    notes: list[str] = field(default_factory=list)

    def to_markdown(self) -> str:
        """The table with its title and notes."""
        lines = []
        group = ""
        for row in self.rows:
            if row.group != group:
                group = row.group
                lines.append([f"**{group}**", "", *[""] * len(self.columns)])
            lines.append([row.name, row.components, *(str(row.cells.get(c, Cell(None))) for c in self.columns)])
        table = markdown_table(["", "components", *self.columns], lines)
        return "\n\n".join([self.title, table, LEGEND, *self.notes])

    def to_dict(self) -> dict[str, Any]:
        """Plain data; each cell says whether it is measured, quoted or missing."""
        return {
            "title": self.title,
            "columns": self.columns,
            "rows": [
                {
                    "name": row.name,
                    "components": row.components,
                    "group": row.group,
                    "cells": {column: _cell_to_dict(row.cells.get(column, Cell(None))) for column in self.columns},
                }
                for row in self.rows
            ],
            "notes": self.notes,
        }


@cache
def paper_results() -> dict[str, Any]:
    """The figures of the paper, as printed."""
    return json.loads(files("mv_st.evaluation").joinpath("paper_results.json").read_text(encoding="utf-8"))


def unsupervised_table(models: Sequence[ModelScores]) -> PaperTable:
    """Similarity by cosine: years of STS and SICK, as in the paper's table of unsupervised tasks."""
    printed = paper_results()["tables"]["unsupervised"]["rows"]
    columns = ["STS12", "STS13", "STS13 without SMT", "STS14", "STS15", "STS16", "STS12-16", "SICK14", "STS-B"]
    rows = []
    for key, name in SYSTEMS.items():
        cells = {task: Cell(values[key], quoted=True) for task, values in printed.items()}
        cells["STS13 without SMT"] = Cell(_paper_sts13_without_smt(key), quoted=True)
        cells["STS12-16"] = Cell(_mean([cells[year.upper()].value for year in YEARS]), quoted=True)
        rows.append(Row(name, cells, "transductive (1)" if key.startswith("mv_") else ""))
    rows += [Row(model.label, similarity_cells(model), model.components, "measured here") for model in models]
    return PaperTable(
        "Similarity by cosine. Pearson's r x 100, unweighted mean over the datasets of a year.",
        columns,
        rows,
        [
            "SMT of STS13 is only given out by the LDC: without it, compare the column that leaves it out. "
            "STS12-16 is the mean of the five years with SMT.",
            *_incomplete(models),
        ],
    )


def supervised_table(models: Sequence[ModelScores]) -> PaperTable:
    """Transfer tasks, as in the paper's table of supervised tasks."""
    columns = ["hours", "SICK-R", "SICK-E", "MRPC", "F1", "TREC", "MR", "CR", "SUBJ", "MPQA", "SST", "STS-B"]
    rows = []
    for printed in paper_results()["tables"]["supervised"]["rows"]:
        cells = {column: Cell(printed.get(column), quoted=True) for column in columns if column != "MRPC"}
        cells["MRPC"], cells["F1"] = (Cell(printed["MRPC"][key], quoted=True) for key in ("acc", "f1"))
        cells["hours"] = Cell(printed["hrs"], quoted=True)
        rows.append(Row(printed["model"], cells, group=printed["group"]))
    rows += [Row(model.label, _transfer_cells(model), model.components, "measured here") for model in models]
    return PaperTable(
        "Transfer: logistic regression on frozen vectors, SentEval's protocol. Accuracy x 100 (MRPC also F1); "
        "SICK-R and STS-B: Pearson's r x 100 of a supervised regression. Hours of training.",
        columns,
        rows,
    )


def detailed_table(models: Sequence[ModelScores]) -> PaperTable:
    """Every dataset of every year, as in the paper's detailed table; systems are columns, because there are fewer."""
    from .registry import TASKS
    from .sts import STSTask

    years = paper_results()["tables"]["sts_detailed"]["years"]
    columns = [*SYSTEMS.values(), *(f"{model.label} ({model.components})" for model in models)]
    rows = []
    for year in YEARS:
        task = TASKS[year]
        assert issubclass(task, STSTask)
        for dataset in [*task.datasets, *task.licensed_datasets]:
            printed = years[task.title]["datasets"][DATASET_NAMES.get(dataset, dataset)]
            cells = {name: Cell(printed[key], quoted=True) for key, name in SYSTEMS.items()}
            for column, model in zip(columns[len(SYSTEMS) :], models, strict=True):
                scores = model.tasks.get(year)
                known = isinstance(scores, STSScores) and dataset in scores.datasets
                cells[column] = Cell(100 * scores.datasets[dataset].pearson if known else None)  # type: ignore[union-attr]
            rows.append(Row(f"{task.title} {dataset}", cells, group=task.title))
    return PaperTable("Similarity by cosine on each dataset. Pearson's r x 100.", columns, rows)


def similarity_cells(model: ModelScores) -> dict[str, Cell]:
    """Years of STS, STS-B and SICK of a model by the name of their column, Pearson's r x 100."""
    cells = {}
    for task, scores in model.tasks.items():
        if not isinstance(scores, STSScores):
            continue
        value = 100 * scores.mean.pearson
        other = [dataset for dataset in scores.absent if dataset != "SMT"]
        if task == "sts13":
            without = [score.pearson for name, score in scores.datasets.items() if name != "SMT"]
            cells["STS13 without SMT"] = Cell(100 * float(np.mean(without)), incomplete=bool(other))
            if "SMT" in scores.absent:
                continue
        column = {"sickr": "SICK14", "stsb": "STS-B"}.get(task, task.upper())
        cells[column] = Cell(value, incomplete=bool(other))
    if all(year.upper() in cells for year in YEARS):
        cells["STS12-16"] = Cell(_mean([cells[year.upper()].value for year in YEARS]))
    return cells


TABLES = {"unsupervised": unsupervised_table, "supervised": supervised_table, "detailed": detailed_table}


def _transfer_cells(model: ModelScores) -> dict[str, Cell]:
    cells = {}
    for column, task in SUPERVISED_COLUMNS.items():
        scores = model.tasks.get(task)
        if isinstance(scores, TransferScores):
            cells[column] = Cell(transfer_value(scores))
            if scores.f1 is not None:
                cells["F1"] = Cell(100 * scores.f1)
    if model.training is not None and "seconds" in model.training:
        cells["hours"] = Cell(model.training["seconds"]["training"] / 3600)
    return cells


def _paper_sts13_without_smt(system: str) -> float | None:
    datasets = paper_results()["tables"]["sts_detailed"]["years"]["STS13"]["datasets"]
    return _mean([values[system] for name, values in datasets.items() if name != "SMT"])


def _incomplete(models: Sequence[ModelScores]) -> list[str]:
    notes = []
    for model in models:
        for task, scores in model.tasks.items():
            other = [name for name in getattr(scores, "absent", []) if name != "SMT"]
            if other:
                notes.append(f"† {model.label}, {task}: without {', '.join(other)}.")
    return notes


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known and len(known) == len(values) else None


def _cell_to_dict(cell: Cell) -> dict[str, Any]:
    kind = "missing" if cell.value is None else "quoted" if cell.quoted else "measured"
    return {"value": cell.value, "kind": kind, **({"incomplete": True} if cell.incomplete else {})}
