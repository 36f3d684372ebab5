"""The script of the ablation on a toy corpus: lines of one run, of two runs together, and nothing done twice."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from benchmark_scripts import run_benchmark
from toy_tasks import WORDS, sentence

NAMES = ["single_view f", "single_view g", "single_view en(f,g)"]


@pytest.fixture
def folder(tmp_path: Path, data_dir: Path, word_vectors: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    rng = np.random.default_rng(0)
    lines = [sentence(rng) + ("\n" if i % 50 == 49 else "") for i in range(1100)]
    (tmp_path / "books.txt").write_text("\n".join(lines) + "\n")
    rows = [f"{word} {' '.join(map(str, vector))}" for word, vector in zip(WORDS, word_vectors, strict=True)]
    (tmp_path / "toy.vec").write_text(f"{len(WORDS)} 16\n" + "\n".join(rows) + "\n")
    return tmp_path


def ablation(folder: Path, *arguments: str) -> tuple[int, str]:
    command = "books.txt --vectors toy.vec --data-dir data --models-dir runs --hidden-size 4 --max-steps 2"
    return run_benchmark(folder, "ablation.py", *command.split(), "--tasks", "sts13", "sickr", *arguments)


def test_runs_lines_and_going_on(folder: Path) -> None:
    code, errors = ablation(folder, "--runs", "gru")
    assert code == 0, errors
    lines = json.loads((folder / "benchmarks" / "results" / "ablation.json").read_text())["lines"]
    assert [(line["representation"], line["components"]) for line in lines] == [("f", "stored"), ("f", "transductive")]

    code, errors = ablation(folder, "--runs", "gru", "linear")
    assert code == 0, errors
    assert "training linear" in errors
    assert "training gru" not in errors
    result = json.loads((folder / "benchmarks" / "results" / "ablation.json").read_text())
    scored = [(f"{line['variant']} {line['representation']}", line["components"]) for line in result["lines"]]
    assert sorted(scored) == sorted((name, mode) for name in NAMES for mode in ("stored", "transductive"))
    assert result["lines"][:2] == lines, "a line was scored again"
    joint = next(line for line in result["lines"] if line["representation"] == "en(f,g)")
    assert joint["runs"] == ["gru", "linear"]
    seconds = [result["runs"][run]["seconds"]["training"] for run in joint["runs"]]
    assert joint["hours"] == pytest.approx(sum(seconds) / 3600)
    assert result["runs"]["linear"]["settings"]["views"] == ["linear"]

    text = (folder / "benchmarks" / "results" / "ablation.md").read_text()
    assert "| en(f,g), ours | stored, whitened |" in text
    assert "| en(f,g), ours | transductive (1) |" in text
    assert "run gru: views gru, agreement cross, d = 4; books.txt (1,100 sentences), vectors toy.vec, 2 steps" in text

    code, errors = ablation(folder, "--runs", "gru", "--seed", "7")
    assert (code, len(errors.strip().splitlines())) == (1, 1)
    assert "has lines with another seed" in errors
    code, errors = ablation(folder, "--runs", "gru", "--seed", "7", "--name", "again")
    assert code == 1
    assert "was trained with another seed: 0, not 7" in errors
