"""Training in two processes on a CPU: the same weights in both, and the same step at which they save and stop."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from toy_corpus import (  # noqa: F401 - fixtures
    TINY,
    TINY_OPTIONS,
    quick_and_alone,
    start_ranks,
    toy_files,
    toy_vectors,
    wait_for,
)

from mv_st import MultiViewLoss, build_model, load_corpus
from mv_st.presets import settings_for
from mv_st.training import MultiViewTrainer, training_arguments

STEPS = 40
STEPS_PER_EPOCH = 3  # 200 sentences are 6 batches of 32, 3 for each process


def one_rank(rank: int, environment: dict[str, str], folder: str, corpus: str, vectors: str) -> None:
    """Several runs one after the other, as a launcher would start each of them."""
    os.environ.update(environment)
    os.dup2(os.open(f"{folder}/messages-{rank}", os.O_WRONLY | os.O_CREAT), 2)
    torch.set_num_threads(1)
    sys.modules["matplotlib"] = None  # type: ignore[assignment]
    from mv_st.cli import main

    def run(name: str, *options: str) -> int:
        output = ["--output", f"{folder}/{name}", "--vectors", vectors]
        return main(["train", corpus, *output, *TINY_OPTIONS, *options])

    limit = ["--max-steps", str(STEPS)]
    codes = {"whole": run("whole", *limit)}
    if rank == 1:
        # Only this process gets the signal, in the third epoch or later.
        def interrupt() -> None:
            while not any(int(path.name.split("-")[1]) > 7 for path in Path(folder).glob("stopped.run/checkpoint-*")):
                time.sleep(0.005)
            os.kill(os.getpid(), signal.SIGTERM)

        threading.Thread(target=interrupt, daemon=True).start()
    codes["stopped"] = run("stopped", *limit, "--checkpoint-minutes", "1e-9")
    last = max(int(path.name.split("-")[1]) for path in Path(folder).glob("stopped.run/checkpoint-*"))
    torch.distributed.barrier()
    if rank == 0 and last % STEPS_PER_EPOCH == 0:
        # To resume in the middle of an epoch is what can go wrong.
        shutil.rmtree(f"{folder}/stopped.run/checkpoint-{last}")
    codes["resumed"] = run("stopped", *limit, "--resume")
    codes["minutes"] = run("minutes", "--minutes", "0.01")

    model = build_model(toy_vectors(), hidden_size=4, seed=rank)  # to be made equal by the trainer
    trainer = MultiViewTrainer(
        model,
        training_arguments(f"{folder}/direct", settings_for("paper", **TINY), max_steps=10, save_strategy="no"),
        train_dataset=load_corpus(corpus),
        loss=MultiViewLoss(model, gather_across_devices=True),
    )
    trainer.train()
    torch.save(model.state_dict(), f"{folder}/direct-{rank}.pt")
    found = {"codes": codes, "stopped": last, "broadcast": trainer.model_wrapped.broadcast_buffers}
    Path(folder, f"{rank}.json").write_text(json.dumps(found))


@pytest.fixture(scope="module")
def ranks(toy_files: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Any:  # noqa: F811
    """The folder with everything, and what each process noted."""
    folder = tmp_path_factory.mktemp("ranks")
    codes = wait_for(start_ranks(one_rank, str(folder), *map(str, toy_files)))
    messages = [(folder / f"messages-{rank}").read_text() for rank in range(2)]
    assert codes == [0, 0], "\n".join(messages)
    return folder, [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)], messages


def record(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "training.json").read_text())


def test_exit_codes_and_messages(ranks: Any) -> None:
    folder, found, messages = ranks
    for rank in range(2):
        assert found[rank]["codes"] == {"whole": 0, "stopped": 1, "resumed": 0, "minutes": 0}
        assert "Traceback" not in messages[rank]
    assert messages[0].count("the model is in") == 3
    assert "the model is in" not in messages[1]
    assert not list(folder.glob("*.run"))


def test_the_record_counts_the_sentences_of_both(ranks: Any) -> None:
    folder, _, _ = ranks
    whole = record(folder / "whole")
    assert (whole["processes"], whole["steps"]) == (2, STEPS)
    assert whole["sentences_seen"] == STEPS * 32 * 2
    curve = [entry["loss"] for entry in whole["history"] if "loss" in entry]
    assert curve[-1] < curve[0]


def test_a_signal_to_one_process_stops_both_and_resuming_gives_the_same_weights(ranks: Any) -> None:
    folder, found, messages = ranks
    steps = found[0]["stopped"]
    assert 7 < steps < STEPS
    for rank in range(2):
        # When a process ends, the checkpoint is already there.
        assert found[rank]["stopped"] == steps
        assert f"mv-st: interrupted after {steps} steps" in messages[rank]
    whole, resumed = (SentenceTransformer(str(folder / name)).state_dict() for name in ("whole", "stopped"))
    for name, tensor in whole.items():
        torch.testing.assert_close(resumed[name], tensor, rtol=0, atol=0)


def test_a_time_budget_ends_both(ranks: Any) -> None:
    folder, _, _ = ranks
    assert record(folder / "minutes")["steps"] > 0


def test_weights_and_temperature_are_equal_in_both(ranks: Any) -> None:
    folder, found, _ = ranks
    first, second = (torch.load(folder / f"direct-{rank}.pt") for rank in range(2))
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name
    assert first["4.temperature"] != 1.0
    # The word vectors would be sent from process to process at every step.
    assert found[0]["broadcast"] is False


def test_accelerate_launch(toy_files: tuple[Path, Path], tmp_path: Path) -> None:  # noqa: F811
    corpus, vectors = map(str, toy_files)
    # Without --multi_gpu accelerate starts one process on a CPU, whatever --num_processes says.
    launcher = ["accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--main_process_port", "0"]
    output = ["--output", str(tmp_path / "model"), "--vectors", vectors]
    done = subprocess.run(
        [sys.executable, "-m", *launcher, "-m", "mv_st", "train", corpus, *output, "--max-steps", "3", *TINY_OPTIONS],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert (record(tmp_path / "model")["processes"], record(tmp_path / "model")["steps"]) == (2, 3)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert SentenceTransformer(str(tmp_path / "model")).encode(["ban ben"]).shape == (1, 8)
