from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmark_scripts import run_benchmark

from mv_st.evaluation.paper import detailed_table, paper_results, supervised_table, unsupervised_table
from mv_st.evaluation.paper_ablation import CORPORA, ROWS, RUNS, VARIANTS, Measured, ablation_table
from mv_st.evaluation.results import EvaluationResults, ModelScores, TransferScores
from mv_st.evaluation.scores import Correlation, STSScores
from mv_st.evaluation.tables import Cell
from mv_st.model import view_names


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
    code, errors = run_benchmark(tmp_path, "tables.py", "unsupervised", "a.json")
    assert code == 0, errors
    assert "cr: not found" in errors
    text = (tmp_path / "benchmarks" / "results" / "table_unsupervised.md").read_text()
    assert "books.txt (1,000 sentences), vectors glove.vec, 7 steps, 30 min on 2 threads, seed 3" in text
    assert "python benchmarks/tables.py unsupervised a.json" in text
    data = json.loads((tmp_path / "benchmarks" / "results" / "table_unsupervised.json").read_text())
    assert data["evaluations"][0]["models"][0]["name"] == "ours"
    code, errors = run_benchmark(tmp_path, "tables.py", "detailed")
    assert code == 1
    assert errors.strip() == "nothing to show: give files of results, or --models and --data-dir"


def test_ablation_lines_are_those_of_the_paper() -> None:
    tables = paper_results()["tables"]
    for name in CORPORA:
        printed = {(row["variant"], row["representation"]) for row in tables[name]["rows"]}
        assert printed == {(row.variant, row.representation) for row in ROWS}
    for row in ROWS:
        for run, view in row.parts:
            assert view is None or view in view_names(RUNS[run]["views"])


def test_ablation_table_sets_our_lines_beside_the_printed_ones() -> None:
    def line(variant: str, representation: str, pearson: float, accuracy: float) -> Measured:
        year = STSScores({"a": score(pearson)}, score(pearson), score(pearson), score(pearson), [])
        sts13 = STSScores({"FNWN": score(pearson)}, score(pearson), score(pearson), score(pearson), ["SMT"])
        scores = model(sts12=year, sts13=sts13, sts14=year, mr=transfer(accuracy), mrpc=transfer(0.7, 0.8))
        (row,) = (row for row in ROWS if (row.variant, row.representation) == (variant, representation))
        return Measured(row, scores, 0.5)

    table = ablation_table([line("single_view", "f", 0.6, 0.7), line("main", "f", 0.65, 0.8)])
    rows = {(row.group, row.name): row.cells for row in table.rows}
    single, main = VARIANTS["single_view"], VARIANTS["main"]
    ours = rows[single, "f, ours"]
    assert ours["STS12-14"] == Cell(pytest.approx(60.0))
    assert ours["Δ STS12-14"] == Cell(pytest.approx(-5.0))
    assert ours["binary"] == Cell(pytest.approx(70.0), incomplete=True)
    assert ours["Δ binary"] == Cell(pytest.approx(-10.0), incomplete=True)
    assert (ours["MRPC"], ours["F1"], ours["hours"]) == (Cell(70.0), Cell(80.0), Cell(0.5))
    assert "STS12-16" not in ours
    assert "Δ STS12-14" not in rows[main, "f, ours"]
    quoted = rows[single, "f, paper, BookCorpus"]
    assert (quoted["STS12-16"], quoted["Δ STS12-16"]) == (Cell(60.9, quoted=True), Cell(-3.5, quoted=True))
    # The mean of the years without SMT follows from the detailed table, for the main model only.
    first_years = rows[main, "en(f,g), paper, BookCorpus"]["STS12-14"]
    assert first_years.value == pytest.approx((60.9 + 66.5 + 71.1) / 3, abs=0.6)
    assert first_years.quoted
    text = table.to_markdown()
    assert "† binary: without cr, subj, mpqa, sst2." in text
    assert len(table.rows) == 2 * len(ROWS) + 2


def test_figure_is_drawn_from_the_records_of_two_runs(tmp_path: Path) -> None:
    for agreement in ("cross", "all"):
        history = [
            {
                "step": step,
                "loss": 6.0,
                "temperature": 1.0 / step,
                "agreement_gru_gru": 0.1 * step,
                "agreement_gru_linear": 0.2 * step,
                "agreement_linear_linear": 0.3 * step,
            }
            for step in (20, 40, 60)
        ]
        record = {
            "settings": {"agreement": agreement},
            "corpus": {"sources": ["books.txt"], "sentences": 1000},
            "vectors": {"source": "glove.vec"},
            "steps": 60,
            "seconds": {"training": 60.0},
            "threads": 2,
            "seed": 3,
            "versions": {"python": "3"},
            "history": [*history, {"train_runtime": 1.0, "step": 60}],
        }
        (tmp_path / agreement).mkdir()
        (tmp_path / agreement / "training.json").write_text(json.dumps(record))
    code, errors = run_benchmark(tmp_path, "figure.py", "cross", "all/training.json")
    assert code == 0, errors
    results = tmp_path / "benchmarks" / "results"
    assert (results / "figure.png").stat().st_size > 10_000
    data = json.loads((results / "figure.json").read_text())
    assert [run["agreement"] for run in data["runs"]] == ["cross", "all"]
    assert data["runs"][0]["curves"]["f-g"] == pytest.approx([4.0, 8.0, 12.0])
    text = (results / "figure.md").read_text()
    assert "| all four agreements | last (60) | 0.017 | 6.000 | 18.000 | 12.000 |" in text
    assert "books.txt (1,000 sentences), vectors glove.vec, 60 steps, 1 min on 2 threads, seed 3" in text
    code, errors = run_benchmark(tmp_path, "figure.py", "nowhere")
    assert (code, len(errors.splitlines())) == (1, 1)
    assert "not the record of a training run" in errors
