"""`mv-st evaluate` on input that is wrong in part: one clear line each, the rest is scored, the exit code tells."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from toy_tasks import sts_rows, write_rows

from mv_st.cli import main


@pytest.fixture
def model_dir(multi_view: SentenceTransformer, tmp_path: Path) -> str:
    multi_view.save_pretrained(str(tmp_path / "toy"))
    return str(tmp_path / "toy")


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, list[str]]:
    """Exit code, standard output, and the messages on standard error without those of progress."""
    code = main(["evaluate", *map(str, arguments)])
    shown = capsys.readouterr()
    return code, shown.out, [line for line in lines(shown.err) if line.startswith("mv-st: ")]


def test_all_at_once_in_a_process_of_its_own(model_dir: str, data_dir: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    (data_dir / "sts12" / "MSRpar.jsonl").write_text(
        '{"sentence1": "a", "sentence2": "b", "score": 1}\n{"sentence1"\n'
    )
    write_rows(data_dir / "sts13" / "FNWN.jsonl", [row | {"score": 2.0} for row in sts_rows(rng, 9)])
    (data_dir / "sst2" / "train.jsonl").write_text("")
    command = f"evaluate {model_dir} --data-dir {data_dir} --tasks sts12,sts13,sst2,cr,sts99,sickr"
    done = subprocess.run(
        [sys.executable, "-m", "mv_st", *command.split(), "--output", str(tmp_path / "results.json")],
        capture_output=True,
        text=True,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    messages = [line for line in lines(done.stderr) if line.startswith("mv-st: ")]
    expected = [
        "cr: not found, looked for all.jsonl[.gz] in data/cr",
        "no task 'sts99'; there are sts12, ",
        f"sts12/MSRpar: {data_dir}/sts12/MSRpar.jsonl, line 2: not valid JSON",
        "sts13/FNWN: no correlation: all 9 gold scores are equal (2)",
        f"sst2: {data_dir}/sst2/train.jsonl: the file has no rows",
    ]
    assert len(messages) == len(expected), done.stderr
    for message, text in zip(messages, expected, strict=True):
        assert text in message
    # What is not a message of ours is progress, not a warning of a library.
    assert all("encoding" in line for line in lines(done.stderr) if not line.startswith("mv-st: ")), done.stderr
    results = json.loads((tmp_path / "results.json").read_text())
    assert set(results["models"][0]["tasks"]) == {"sts12", "sts13", "sickr"}
    assert "| toy | stored |" in done.stdout


def test_a_folder_that_is_not_there(
    model_dir: str, tmp_path: Path, data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, messages = run(capsys, model_dir, "--data-dir", tmp_path / "nowhere")
    assert (code, out, len(messages)) == (1, "", 1)
    assert "nowhere does not exist; give the folder that holds" in messages[0]
    code, out, messages = run(capsys, model_dir, "--data-dir", data_dir / "sts12")
    assert (code, out, len(messages)) == (1, "", 1)
    assert "has none of the tasks" in messages[0]


def test_only_an_unknown_task(model_dir: str, data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, messages = run(capsys, model_dir, "--data-dir", data_dir, "--tasks", "sts99")
    assert (code, out, len(messages)) == (1, "", 1)
    assert messages[0].startswith("mv-st: no task 'sts99'; there are sts12, sts13, ")


def test_a_model_that_is_not_there_beside_one_that_is(
    model_dir: str, data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "no-model"
    code, out, messages = run(capsys, missing, model_dir, "--data-dir", data_dir, "--tasks", "sickr")
    assert code == 1
    assert len(messages) == 1
    assert "no-model" in messages[0]
    assert "| toy | stored |" in out
    code, out, messages = run(capsys, model_dir, "--data-dir", data_dir, "--tasks", "sickr", "--view", "tree")
    assert code == 1
    assert len(messages) == 1
    assert "no view 'tree'; its views are gru, linear" in messages[0]


def test_everything_scored_is_0(model_dir: str, data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, messages = run(capsys, model_dir, "--data-dir", data_dir, "--tasks", "stsb,sickr")
    assert (code, messages) == (0, [])
    assert "STS-B" in out
