from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mv_st.evaluation.paper import detailed_table, paper_results, supervised_table, unsupervised_table
from mv_st.evaluation.results import EvaluationResults, ModelScores, TransferScores
from mv_st.evaluation.scores import Correlation, STSScores
from mv_st.evaluation.tables import Cell

ROOT = Path(__file__).parents[2]


def score(value: float) -> Correlation:
    return Correlation(value, value, 10)


def years(*, with_smt: bool = False) -> STSScores:
    datasets = {"FNWN": score(0.3), "headlines": score(0.6), "OnWN": score(0.9)}
    if with_smt:
        datasets["SMT"] = score(0.2)
    mean = score(sum(d.pearson for d in datasets.values()) / len(datasets))
    return STSScores(datasets, mean, mean, mean, [] if with_smt else ["SMT"])


def model(**tasks: STSScores | TransferScores) -> ModelScores:
    training = {
        "seconds": {"training": 1800.0},
        "corpus": {"sources": ["books.txt"], "sentences": 1000},
        "vectors": {"source": "glove.vec"},
        "steps": 7,
        "threads": 2,
        "seed": 3,
    }
    named = {name.replace("_", "-"): scores for name, scores in tasks.items()}
    return ModelScores("ours", "stored", tasks=named, training=training)


def transfer(accuracy: float | None = None, f1: float | None = None, pearson: float | None = None) -> TransferScores:
    return TransferScores("protocol", accuracy, f1, pearson, None, 0.5, [1.0], 10, 4)


def test_the_printed_numbers_agree_with_themselves() -> None:
    """Year scores of the paper's own model are means over its datasets, apart from the known misprints."""
    tables = paper_results()["tables"]
    for year, printed in tables["sts_detailed"]["years"].items():
        if not printed["datasets"]:
            continue
        for column in ("mv_c1", "mv_c2", "mv_c3"):
            values = [dataset[column] for dataset in printed["datasets"].values()]
            assert sum(values) / len(values) == pytest.approx(tables["unsupervised"]["rows"][year][column], abs=0.11)


def test_sts13_is_compared_without_smt() -> None:
    table = unsupervised_table([model(sts13=years(), sts12=years(with_smt=True), sickr=years(with_smt=True))])
    rows = {row.name: row.cells for row in table.rows}
    assert rows["Multi-view, BookCorpus"]["STS13"].value == 60.1
    assert rows["Multi-view, BookCorpus"]["STS13 without SMT"].value == pytest.approx(66.5, abs=0.05)
    assert "STS13" not in rows["ours"]
    assert rows["ours"]["STS13 without SMT"] == Cell(pytest.approx(60.0))
    assert rows["ours"]["SICK14"] == Cell(pytest.approx(50.0))
    complete = unsupervised_table([model(sts13=years(with_smt=True))]).rows[-1].cells
    assert complete["STS13"] == Cell(pytest.approx(50.0))
    assert complete["STS13 without SMT"] == Cell(pytest.approx(60.0))


def test_measured_quoted_and_missing_cells_differ() -> None:
    text = unsupervised_table([model(sts13=years())]).to_markdown()
    (line,) = (line for line in text.splitlines() if line.startswith("| ours |"))
    assert line == "| ours | stored | – | – | 60.0 | – | – | – | – | – | – |"
    (quoted,) = (line for line in text.splitlines() if line.startswith("| Multi-view, UMBC News |"))
    assert quoted.startswith("| Multi-view, UMBC News | transductive (1) | *64.0* | *61.7* | *68.4* | *73.7* |")
    cells = unsupervised_table([model(sts13=years())]).to_dict()["rows"][-1]["cells"]
    assert cells["STS12"] == {"value": None, "kind": "missing"}
    assert cells["STS13 without SMT"]["kind"] == "measured"


def test_supervised_table() -> None:
    scores = {"mrpc": transfer(0.75, 0.82), "sickr_supervised": transfer(pearson=0.84), "sst2": transfer(0.8)}
    table = supervised_table([model(**scores)])
    ours = table.rows[-1].cells
    assert {column: round(cell.value, 1) for column, cell in ours.items() if cell.value} == {
        "MRPC": 75.0,
        "F1": 82.0,
        "SICK-R": 84.0,
        "SST": 80.0,
        "hours": 0.5,
    }
    skip_thought = next(row for row in table.rows if row.name == "ST")
    assert skip_thought.cells["TREC"] == Cell(92.2, quoted=True)
    assert skip_thought.cells["F1"] == Cell(82.0, quoted=True)
    assert "**Unsupervised training with ordered sentences**" in table.to_markdown()


def test_detailed_table_matches_datasets_by_their_names() -> None:
    datasets = {"surprise.OnWN": score(0.7), "MSRpar": score(0.4)}
    scores = STSScores(datasets, score(0.5), score(0.5), score(0.5), ["MSRvid"])
    table = detailed_table([model(sts12=scores)])
    rows = {row.name: row.cells for row in table.rows}
    printed = paper_results()["tables"]["sts_detailed"]["years"]["STS12"]["datasets"]
    assert rows["STS12 surprise.OnWN"]["Multi-view, BookCorpus"].value == printed["OnWN"]["mv_c1"]
    assert rows["STS12 surprise.OnWN"]["ours (stored)"] == Cell(pytest.approx(70.0))
    assert rows["STS12 MSRvid"]["ours (stored)"].value is None
    assert len(rows) == 5 + 4 + 6 + 5 + 5


def test_script_writes_tables_from_files_of_results(tmp_path: Path) -> None:
    settings = {"versions": {"python": "3"}, "seed": 1111}
    EvaluationResults([model(sts13=years())], {"cr": "cr: not found"}, [], settings).save(tmp_path / "a.json")
    # A copy, so that the results of the repository are not touched.
    for name in ("tables.py", "reporting.py"):
        (tmp_path / name).write_text((ROOT / "benchmarks" / name).read_text())
    done = subprocess.run(
        [sys.executable, "tables.py", "unsupervised", "a.json"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "cr: not found" in done.stderr
    text = (tmp_path / "results" / "table_unsupervised.md").read_text()
    assert "books.txt (1,000 sentences), vectors glove.vec, 7 steps, 30 min on 2 threads, seed 3" in text
    assert "python benchmarks/tables.py unsupervised a.json" in text
    data = json.loads((tmp_path / "results" / "table_unsupervised.json").read_text())
    assert data["evaluations"][0]["models"][0]["name"] == "ours"
    failed = subprocess.run([sys.executable, "tables.py", "detailed"], cwd=tmp_path, capture_output=True, text=True)
    assert failed.returncode == 1
    assert failed.stderr.strip() == "nothing to show: give files of results, or --models and --data-dir"
