"""Every example runs, on little text and for a short time, and prints what its first lines promise."""

from __future__ import annotations

import csv
import json
import os
import re
import runpy
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from sentence_transformers import SentenceTransformer
from toy_corpus import quick_and_alone, start_ranks, wait_for  # noqa: F401 - fixture

from mv_st.encoding import read_lines

EXAMPLES = Path(__file__).parent.parent / "examples"
BOOKS = Path(__file__).parent.parent / "mv_st" / "data" / "books.txt.xz"
SHORT = ["--minutes", "0.001"]  # one batch


def run(name: str, *arguments: object) -> None:
    """Run an example as `python examples/NAME.py ARGUMENTS` would."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [f"{name}.py", *map(str, arguments)])
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")


@pytest.fixture(scope="module")
def excerpt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Text from the beginnings of two of the bundled books, enough for one batch of two processes."""
    lines = [line for line in islice(read_lines(BOOKS), 40_000) if line]
    path = tmp_path_factory.mktemp("text") / "excerpt.txt"
    path.write_text("\n".join([*lines[:400], "", *lines[-400:]]) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def trained(excerpt: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model that the first example makes, for those that only need a model."""
    folder = tmp_path_factory.mktemp("models") / "trained"
    run("train_on_your_documents", excerpt, "--output", folder, *SHORT, "--query", "He told himself a story.")
    return folder


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str]) -> Any:
    """What was printed since the test began."""
    return lambda: capsys.readouterr().out


def hits(text: str) -> list[float]:
    """The scores of the sentences that an example found."""
    return [float(score) for score in re.findall(r"^  (-?\d\.\d\d)  \S", text, re.MULTILINE)]


def test_every_example_is_run_here_and_listed() -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    table = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    for path in EXAMPLES.glob("*.py"):
        assert f'run("{path.stem}"' in source, path
        assert f"]({path.name})" in table, path


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_is_short_and_shows_its_command(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 85
    assert f"examples/{path.name}" in text.split('"""')[1]


def test_train_on_your_documents(trained: Path) -> None:
    assert SentenceTransformer(str(trained)).encode(["A story."]).shape == (1, 512)
    assert json.loads((trained / "training.json").read_text())["corpus"]["sources"] == ["excerpt.txt"]


def test_semantic_search(excerpt: Path, tmp_path: Path, shown: Any) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    lines = excerpt.read_text(encoding="utf-8").split("\n")
    for number in range(5):
        (folder / f"{number}.txt").write_text("\n".join(lines[number * 150 : number * 150 + 150]), encoding="utf-8")
    sentence = lines[3]
    run("semantic_search", folder, *SHORT, "--query", sentence, "--query", "a horse", "--top", 2)
    first = shown()
    scores = hits(first)
    assert len(scores) == 4
    assert scores[0] == pytest.approx(1, abs=0.01)
    assert f"0.txt: {sentence}" in first
    # The second time the model is there.
    run("semantic_search", folder, "--query", sentence, "--query", "a horse", "--top", 2)
    assert hits(shown()) == pytest.approx(scores, abs=0.011)
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["notes", "notes-model"]


def test_cluster_and_name_topics(excerpt: Path, trained: Path, tmp_path: Path, shown: Any) -> None:
    documents = tmp_path / "documents.txt"
    lines = [line for line in excerpt.read_text(encoding="utf-8").split("\n") if line]
    documents.write_text("\n\n".join("\n".join(lines[i : i + 40]) for i in range(0, 800, 40)), encoding="utf-8")
    run("cluster_and_name_topics", documents, "--model", trained, "--topics", 3)
    text = shown()
    sizes = [int(size) for size in re.findall(r"^(\d+) documents: (?:\w+, ){7}\w+$", text, re.MULTILINE)]
    assert len(sizes) == 3
    assert sum(sizes) == 20


def test_classifier(trained: Path, tmp_path: Path, shown: Any) -> None:
    run("classifier", "--model", trained, "--limit", 300)
    assert "300 examples" in shown()
    with (tmp_path / "mood.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        writer.writerows([[f"Horses number {i} are great.", "good"] for i in range(50)])
        writer.writerows([[f"He never saw ship number {i}, and it was late.", "bad"] for i in range(50)])
    run("classifier", "--model", trained, "--csv", "mood.csv")
    assert re.findall(r"(similarity|transfer) +(\d+) features +(\S+) right", shown()) == [
        ("similarity", "512", "100.0%"),
        ("transfer", "3584", "100.0%"),
    ]


def test_ablation_row(excerpt: Path, shown: Any) -> None:
    run("ablation_row", "--row", "within", "--corpus", excerpt, "--hidden-size", 4, *SHORT)
    rows = re.findall(r"^(gru|linear|all views) +(\S+)% +(\S+)% +(\S+)$", shown(), re.MULTILINE)
    assert [(name, float(paper)) for name, _, _, paper in rows] == [
        ("gru", 52.9),
        ("linear", 67.8),
        ("all views", 64.6),
    ]
    settings = json.loads(Path("ablation-within", "training.json").read_text())["settings"]
    assert (settings["agreement"], settings["whitening"]) == ("within", 0.0)


def test_the_rows_of_the_ablation_are_as_printed_in_the_paper() -> None:
    from mv_st.evaluation.paper import paper_results

    rows = runpy.run_path(str(EXAMPLES / "ablation_row.py"))["ROWS"]
    printed = {
        (row["variant"], row["representation"]): row["sts12_16_avg"]
        for row in paper_results()["tables"]["ablation_bookcorpus"]["rows"]
    }
    for name, variant in {"cross": "main", "all": "agree_all_four", "within": "agree_within_view"}.items():
        assert rows[name][1] == [printed[variant, kind] for kind in ("f", "g", "en(f,g)")]
    for name, kind in {"two-gru": "f", "two-linear": "g"}.items():
        same = "mv_same_type"
        assert rows[name][1] == [printed[same, f"{kind}1"], None, printed[same, f"en({kind}1,{kind}2)"]]
        assert rows[name.removeprefix("two-")][1] == [printed["single_view", kind]]


def test_train_with_model_fit(excerpt: Path, shown: Any) -> None:
    run("train_with_model_fit", excerpt, "--steps", 2, "--hidden-size", 4)
    assert re.findall(r"^(before|after) +training: the next sentence", shown(), re.MULTILINE) == ["before", "after"]
    assert SentenceTransformer("fit-model").encode(["A story."]).shape == (1, 8)


def one_of_two_processes(rank: int, environment: dict[str, str], corpus: str, folder: str) -> None:
    """What a launcher starts."""
    os.environ.update(environment)
    os.chdir(folder)
    sys.stdout = open(f"shown-{rank}", "w")  # noqa: SIM115
    sys.modules["matplotlib"] = None  # type: ignore[assignment]
    run("train_on_two_processes", corpus, "--batch-size", 64, *SHORT)
    sys.stdout.flush()


def test_train_on_two_processes(excerpt: Path, tmp_path: Path) -> None:
    assert wait_for(start_ranks(one_of_two_processes, str(excerpt), str(tmp_path))) == [0, 0]
    assert Path("shown-0").read_text().startswith("2 processes, 1 steps, ")
    assert Path("shown-1").read_text() == ""
    assert SentenceTransformer("two-process-model").encode(["A story."]).shape == (1, 512)


def test_vector_database(excerpt: Path, trained: Path, shown: Any) -> None:
    sentence = excerpt.read_text(encoding="utf-8").split("\n")[-3]
    run("vector_database", excerpt, "--model", trained, "--query", sentence)
    text = shown()
    assert "800 vectors are in books-database" in text
    assert len(hits(text)) == 6
    assert f"  1.00  document 1: {sentence}\n" in text


def test_another_language(tmp_path: Path, shown: Any) -> None:
    lines = list(read_lines(EXAMPLES / "data" / "german.txt.xz"))
    assert len(lines) > 5000
    (tmp_path / "german.txt").write_text("\n".join(lines[:500]) + "\n", encoding="utf-8")
    run("another_language", "german.txt", *SHORT)
    text = shown()
    assert len(hits(text)) == 9
    assert "Passwortprüfung   (not in the vocabulary: Passwortprüfung)" in text
