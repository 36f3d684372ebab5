"""From a text file to a model: what is written, what is learnt, and what an interrupted run comes back to."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from torch.utils.data import DataLoader
from toy_corpus import (  # noqa: F401 - fixtures
    DOCUMENT_LENGTH,
    TINY,
    TINY_OPTIONS,
    TOPICS,
    WORDS,
    quick_and_alone,
    start_command,
    start_ranks,
    toy_corpus,
    toy_documents,
    toy_files,
    toy_vectors,
    wait_for,
)

from mv_st import MultiViewLoss, build_model, fit_components, train, window_dataset
from mv_st.errors import UserError
from mv_st.loss import LossCurves
from mv_st.presets import settings_for
from mv_st.training import Interrupted, MultiViewTrainer, training_arguments
from mv_st.training_callbacks import TimeBudget
from mv_st.training_run import checkpoint_state

SENTENCES = [sentence for document in toy_documents() for sentence in document]


def same_topic(model: SentenceTransformer) -> float:
    """How often the nearest other word is of the same topic; 4 of 49 are."""
    vectors = model.encode(WORDS, normalize_embeddings=True)
    similarity = vectors @ vectors.T
    np.fill_diagonal(similarity, -np.inf)
    topics = np.arange(len(WORDS)) // (len(WORDS) // TOPICS)
    return float(np.mean(topics[similarity.argmax(axis=1)] == topics))


def losses(history: list[dict[str, float]]) -> list[float]:
    return [entry["loss"] for entry in history if "loss" in entry]


def weights(model: str | Path | SentenceTransformer) -> dict[str, torch.Tensor]:
    return (model if isinstance(model, SentenceTransformer) else SentenceTransformer(str(model))).state_dict()


def assert_same_weights(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> None:
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name


def wait_until(condition: Callable[[], Any], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.005)


# --- one run from text to model ---


@pytest.fixture(scope="module")
def trained(toy_files: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Any:  # noqa: F811
    """Model, folder and record of a run, and what it wrote to standard error."""
    output = tmp_path_factory.mktemp("trained") / "model"
    corpus, vectors = toy_files
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(sys.modules, "matplotlib", raising=False)
        model = train(corpus, output, vectors=vectors, preset="paper", max_steps=80, seed=3, **TINY)
    return model, output, json.loads((output / "training.json").read_text())


def test_output_is_a_whole_model_and_nothing_else(trained: Any) -> None:
    model, output, _ = trained
    assert [path.name for path in output.parent.iterdir()] == ["model"]
    loaded = SentenceTransformer(str(output))
    np.testing.assert_array_equal(loaded.encode(SENTENCES), model.encode(SENTENCES))
    assert loaded.max_seq_length == 512
    assert (output / "training.png").read_bytes().startswith(b"\x89PNG")
    assert "MultiViewLoss" in (output / "README.md").read_text()


def test_record_says_how_the_model_was_made(trained: Any) -> None:
    _, _, record = trained
    assert record["preset"] == "paper"
    assert record["settings"] == settings_for("paper", **TINY).to_dict()
    assert record["corpus"] == {"sources": ["toy.txt"], "sentences": 200}
    assert record["vectors"]["source"] == "toy.vec"
    assert (record["vectors"]["words"], record["vectors"]["dimension"]) == (50, 8)
    assert (record["steps"], record["sentences_seen"], record["seed"]) == (80, 80 * 32, 3)
    assert record["linear_first_steps"] == 0
    assert record["components_fitted_on"] == 200
    assert {"torch", "sentence-transformers", "mv-st", "python"} <= record["versions"].keys()
    logged = [entry for entry in record["history"] if "loss" in entry]
    assert [entry["step"] for entry in logged] == [20, 40, 60, 80]
    curves = {"temperature", "agreement_gru_gru", "agreement_gru_linear", "agreement_linear_linear"}
    assert all(curves <= entry.keys() for entry in logged)


def test_the_card_says_it_too(trained: Any) -> None:
    _, output, record = trained
    card = (output / "README.md").read_text(encoding="utf-8")
    assert f"{record['steps']:,} steps, {record['sentences_seen']:,} sentences read" in card
    assert "![Loss, temperature and agreement of the views during training](training.png)" in card


def test_loss_and_temperature_fall(trained: Any) -> None:
    model, output, record = trained
    curve = losses(record["history"])
    assert curve[-1] < curve[0] - 0.3
    temperatures = [entry["temperature"] for entry in record["history"] if "loss" in entry]
    assert 0 < temperatures[-1] < 0.8
    saved = SentenceTransformer(str(output))[-1].temperature.item()
    assert saved == model[-1].temperature.item()
    assert saved == pytest.approx(temperatures[-1], abs=0.2)


def test_words_of_a_topic_have_come_together(trained: Any) -> None:
    model, _, _ = trained
    untrained = fit_components(build_model(toy_vectors(), hidden_size=4, seed=3), SENTENCES)
    assert same_topic(model) > same_topic(untrained) + 0.3


def test_vectors_are_frozen(trained: Any) -> None:
    _, output, _ = trained
    stored = SentenceTransformer(str(output))[0].vectors
    np.testing.assert_allclose(stored[1:].numpy(), toy_vectors().matrix, rtol=1e-6)
    assert not stored[0].any()


def test_components_were_fitted(trained: Any) -> None:
    model, _, _ = trained
    components = model[-2].components("gru", "transfer")
    torch.testing.assert_close(components.norm(dim=1), torch.ones(1))


def test_same_seed_same_weights(tmp_path: Path) -> None:
    def run(name: str, seed: int) -> dict[str, torch.Tensor]:
        return weights(train(toy_corpus(), tmp_path / name, vectors=toy_vectors(), max_steps=5, seed=seed, **TINY))

    first = run("first", 1)
    assert_same_weights(first, run("again", 1))
    assert not torch.equal(first["2.linear.weight"], run("other", 2)["2.linear.weight"])


@pytest.mark.parametrize("fast", [False, True])
def test_products_in_bfloat16_where_the_processor_is_fast_at_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fast: bool
) -> None:
    monkeypatch.setattr("mv_st.training.has_fast_bfloat16", lambda: fast)

    def run(precision: str) -> SentenceTransformer:
        return train(
            toy_corpus(), tmp_path / precision, vectors=toy_vectors(), max_steps=5, precision=precision, **TINY
        )

    exact, rounded, chosen = weights(run("float32")), weights(run("bfloat16")), run("auto")
    assert_same_weights(weights(chosen), rounded if fast else exact)
    assert not torch.equal(rounded["1.gru.weight_hh_l0"], exact["1.gru.weight_hh_l0"])
    for name, tensor in exact.items():
        torch.testing.assert_close(rounded[name], tensor, atol=0.02, rtol=0.02, msg=name)
    record = json.loads((tmp_path / "auto" / "training.json").read_text(encoding="utf-8"))
    assert record["products"] == ("bfloat16" if fast else "float32")
    assert not chosen[1].train_in_bfloat16, "what belongs to the run is taken back"


def test_without_vectors_they_are_trained_on_the_corpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = train(toy_corpus(), tmp_path / "model", max_steps=2, **TINY)
    record = json.loads((tmp_path / "model" / "training.json").read_text())
    assert record["vectors"]["source"] == "trained on the corpus (fastText)"
    assert (record["vectors"]["words"], record["vectors"]["dimension"]) == (50, 300 + 200)
    assert model[0].oov == "subword"
    assert (model[0].vectors[1:].norm(dim=1) > 0).all()
    assert "fastText" in capsys.readouterr().err


def test_without_matplotlib_there_is_no_picture_but_a_hint(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    train(toy_corpus(), tmp_path / "model", vectors=toy_vectors(), epochs=0.5, **TINY)
    assert not (tmp_path / "model" / "training.png").exists()
    assert "mv-st[plot]" in caplog.text
    assert json.loads((tmp_path / "model" / "training.json").read_text())["steps"] == 3


def test_the_optimizer_is_adam_as_in_the_paper(tmp_path: Path) -> None:
    model = build_model(toy_vectors(), hidden_size=4, seed=0)
    arguments = training_arguments(str(tmp_path), settings_for("paper", batch_size=16))
    trainer = MultiViewTrainer(model, arguments, train_dataset=toy_corpus(), loss=MultiViewLoss(model))
    trainer.create_optimizer_and_scheduler(100)
    optimizer = trainer.optimizer
    assert isinstance(optimizer, (torch.optim.Adam, torch.optim.AdamW))
    groups = optimizer.param_groups
    assert all(group["lr"] == 5e-4 and group["betas"] == (0.9, 0.999) for group in groups)
    assert all(group["weight_decay"] == 0 for group in groups)
    optimised = {id(parameter) for group in groups for parameter in group["params"]}
    assert optimised == {id(parameter) for parameter in model.parameters()}
    assert id(model[-1].temperature) in optimised
    assert [trainer.lr_scheduler.lr_lambdas[0](step) for step in (0, 50, 100)] == [1, 1, 1]
    assert arguments.max_grad_norm == 5


def test_similarity_is_scored_during_training(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "stsbenchmark"
    folder.mkdir(parents=True)
    rows = [
        {"sentence1": left, "sentence2": right, "score": float(number % 6)}
        for number, (left, right) in enumerate(zip(SENTENCES[:30], SENTENCES[30:60], strict=True))
    ]
    (folder / "validation.jsonl").write_text("\n".join(map(json.dumps, rows)))
    options = TINY | {"vectors": toy_vectors(), "max_steps": 3}
    scored = train(toy_corpus(), tmp_path / "scored", eval_data=tmp_path / "data", **options)
    history = json.loads((tmp_path / "scored" / "training.json").read_text())["history"]
    scores = [entry["eval_stsb-validation_pearson"] for entry in history if "eval_stsb-validation_pearson" in entry]
    assert len(scores) == 1
    assert -1 <= scores[0] <= 1
    # Looking on changes nothing.
    assert_same_weights(weights(scored), weights(train(toy_corpus(), tmp_path / "alone", **options)))


# --- the host library's own ways to train ---


def test_stock_trainer(tmp_path: Path) -> None:
    model = build_model(toy_vectors(), hidden_size=4, seed=0)
    loss = MultiViewLoss(model)
    trainer = SentenceTransformerTrainer(
        model,
        training_arguments(str(tmp_path), settings_for("paper", **TINY), max_steps=60, save_strategy="no"),
        train_dataset=toy_corpus(),
        loss=loss,
        callbacks=[LossCurves(loss)],
    )
    trainer.train()
    curve = losses(trainer.state.log_history)
    assert len(curve) == 3
    assert curve[-1] < curve[0] - 0.3
    assert model[-1].temperature < 0.8
    assert "agreement_gru_linear" in trainer.state.log_history[0]


def test_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # `fit` writes a folder of checkpoints
    model = build_model(toy_vectors(), hidden_size=4, seed=0)
    loss = MultiViewLoss(model)
    loader = DataLoader(window_dataset(toy_corpus(), window=4), batch_size=4, shuffle=True)
    before = same_topic(fit_components(model, SENTENCES))
    curve = []
    for _ in range(2):
        model.fit(
            [(loader, loss)],
            epochs=4,
            scheduler="constantlr",
            warmup_steps=0,
            optimizer_params={"lr": 0.05},
            max_grad_norm=5,
            show_progress_bar=False,
        )
        curve.append(loss.pop_curves()["loss"])
    assert curve[1] < curve[0] - 0.05
    assert same_topic(fit_components(model, SENTENCES)) > before + 0.2


# --- interruption ---

STEPS = 120  # 6 in an epoch


@pytest.fixture(scope="module")
def uninterrupted(toy_files: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:  # noqa: F811
    corpus, vectors = toy_files
    output = tmp_path_factory.mktemp("uninterrupted") / "model"
    return weights(train([corpus], output, vectors=vectors, max_steps=STEPS, **TINY))


def command(toy_files: tuple[Path, Path], output: Path, *more: str) -> list[str]:  # noqa: F811
    corpus, vectors = map(str, toy_files)
    options = ["--vectors", vectors, "--output", str(output), "--max-steps", str(STEPS), *TINY_OPTIONS]
    return ["train", corpus, *options, *more]


def interrupted_run(
    toy_files: tuple[Path, Path],  # noqa: F811
    folder: Path,
    number: int,
    minutes_between_checkpoints: float,
) -> tuple[int, str]:
    """Send a signal to a run in its second or a later epoch; exit code and messages."""
    run = folder / "model.run"
    options = ["--checkpoint-minutes", str(minutes_between_checkpoints)]
    process = start_command(command(toy_files, folder / "model", *options), folder / "messages")
    wait_until(lambda: any(checkpoint_number(path) > 12 for path in run.glob("checkpoint-*")))
    os.kill(process.pid, number)
    code = wait_for([process])[0]
    return code, (folder / "messages").read_text()


def checkpoint_number(path: Path) -> int:
    return int(path.name.split("-")[1])


def resume(toy_files: tuple[Path, Path], folder: Path, **changes: Any) -> SentenceTransformer:  # noqa: F811
    corpus, vectors = toy_files
    options = {"vectors": vectors, "max_steps": STEPS} | TINY | changes
    return train([corpus], folder / "model", resume=True, **options)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_run_goes_on_to_the_same_weights(
    toy_files: tuple[Path, Path],  # noqa: F811
    tmp_path: Path,
    uninterrupted: dict[str, torch.Tensor],
    number: int,
) -> None:
    code, messages = interrupted_run(toy_files, tmp_path, number, 0.05 / 60)
    assert code == 1
    assert "Traceback" not in messages
    last_line = messages.splitlines()[-1]
    assert last_line.startswith("mv-st: interrupted after ")
    assert "--resume" in last_line
    steps = int(last_line.split()[3])
    assert 12 < steps < STEPS
    checkpoint = tmp_path / "model.run" / f"checkpoint-{steps}"
    state = checkpoint_state(checkpoint)
    assert state is not None
    seconds_before = 60 * TimeBudget.used_until(state)
    prepared = json.loads((tmp_path / "model.run" / "run.json").read_text())["prepared"]
    assert not (tmp_path / "model").exists()

    with safe_open(checkpoint / "model.safetensors", "pt") as file:
        assert {name.split(".")[0] for name in file.keys()} == {"1", "2", "3", "4"}  # noqa: SIM118
    assert sum(path.stat().st_size for path in checkpoint.rglob("*")) < 200_000

    if number == signal.SIGTERM:
        for change, name in [
            ({"window": 2}, "window"),
            ({"max_steps": STEPS + 1}, "max_steps"),
            ({"seed": 1}, "seed"),
            ({"vectors": toy_vectors()}, "vectors"),
        ]:
            with pytest.raises(UserError, match=f"was started with another {name}"):
                resume(toy_files, tmp_path, **change)
        with pytest.raises(UserError, match="was started with another corpus"):
            train(toy_corpus(), tmp_path / "model", resume=True, vectors=toy_files[1], max_steps=STEPS, **TINY)
        with pytest.raises(UserError, match=r"an interrupted run is in .*model\.run; resume it"):
            train(toy_files[0], tmp_path / "model", vectors=toy_files[1], max_steps=STEPS, **TINY)

    assert_same_weights(weights(resume(toy_files, tmp_path)), uninterrupted)
    assert_same_weights(weights(tmp_path / "model"), uninterrupted)
    assert not (tmp_path / "model.run").exists()
    record = json.loads((tmp_path / "model" / "training.json").read_text())
    assert 0 < seconds_before < record["seconds"]["training"], "the time before the interruption counts"
    assert record["seconds"]["preparation"] == prepared["seconds"]["preparation"]
    assert [entry["step"] for entry in record["history"] if "loss" in entry] == list(range(20, STEPS + 1, 20))


def test_a_killed_run_goes_on_from_its_last_whole_checkpoint(
    toy_files: tuple[Path, Path],  # noqa: F811
    tmp_path: Path,
    uninterrupted: dict[str, torch.Tensor],
) -> None:
    code, messages = interrupted_run(toy_files, tmp_path, signal.SIGKILL, 1e-9)
    assert code == -signal.SIGKILL
    assert "Traceback" not in messages
    run = tmp_path / "model.run"
    whole = max((path for path in run.glob("checkpoint-*") if checkpoint_state(path)), key=checkpoint_number)
    for number, state in [(1, None), (2, ""), (3, (whole / "trainer_state.json").read_text()[:-20])]:
        # Killed while writing: before the state, at its beginning, near its end.
        half = run / f"checkpoint-{checkpoint_number(whole) + number}"
        shutil.copytree(whole, half, dirs_exist_ok=True)
        (half / "trainer_state.json").unlink()
        if state is not None:
            (half / "trainer_state.json").write_text(state)
        (half / "optimizer.pt").write_bytes(b"half")
    assert_same_weights(weights(resume(toy_files, tmp_path)), uninterrupted)


@pytest.mark.parametrize("limit", [{"max_steps": 15}, {"minutes": 0.002}])
def test_a_run_that_fails_after_its_last_step_trains_no_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: dict[str, Any]
) -> None:
    def run(**options: Any) -> SentenceTransformer:
        return train(toy_corpus(), tmp_path / "model", vectors=toy_vectors(), **limit, **TINY, **options)

    def no_space(*args: Any, **kwargs: Any) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("mv_st.training.write_record", no_space)
        with pytest.raises(OSError, match="no space"):
            run()
    assert [path.name for path in tmp_path.iterdir()] == ["model.run"]
    last = max(tmp_path.glob("model.run/checkpoint-*"), key=checkpoint_number)
    with safe_open(last / "model.safetensors", "pt") as file:
        expected = {name: file.get_tensor(name) for name in file.keys() if not name.startswith("3.")}  # noqa: SIM118
    found = weights(run(resume=True))
    assert_same_weights({name: found[name] for name in expected}, expected)
    record = json.loads((tmp_path / "model" / "training.json").read_text())
    assert record["steps"] == checkpoint_number(last)
    # Four passes over 200 sentences, however little time there is for more than the first step.
    assert 1 <= record["linear_first_steps"] <= 24
    assert record["linear_first_steps"] == 24 or "minutes" in limit


def test_a_resumed_time_budget_has_the_minutes_that_were_left(tmp_path: Path) -> None:
    budget = 4.0
    limit = {"minutes": budget / 60, "minutes_between_checkpoints": 1.5 / 60}

    def run(**options: Any) -> SentenceTransformer:
        return train(toy_corpus(), tmp_path / "model", vectors=toy_vectors(), **limit, **TINY, **options)

    def interrupt() -> None:
        wait_until(lambda: list(tmp_path.glob("model.run/checkpoint-*/trainer_state.json")))
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(Interrupted):
        run()
    thread.join()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    last = max(tmp_path.glob("model.run/checkpoint-*"), key=checkpoint_number)
    state = checkpoint_state(last)
    assert state is not None
    used = 60 * state.stateful_callbacks["TimeBudget"]["attributes"]["used_before"]
    assert 1.5 <= used < budget

    started = time.monotonic()
    run(resume=True)
    record = json.loads((tmp_path / "model" / "training.json").read_text())
    assert record["steps"] > checkpoint_number(last)
    assert budget <= record["seconds"]["training"] + 0.1 <= used + time.monotonic() - started
    # Without what was used before, the second run alone would have taken the whole budget.
    at_end = [entry for entry in record["history"] if "train_runtime" in entry][-1]
    assert at_end["train_runtime"] < budget - used + 1.0


# --- mistakes ---


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 256}, "the corpus has 200 sentences, too few for one batch of 256: give more text"),
        ({"batch_size": 16, "blocks": 3}, "a batch of 16 sentences cannot be divided into 3 blocks"),
        ({"views": "gru,tree"}, "views must be one or more of gru, linear"),
        ({"agreement": "sideways"}, "agreement must be cross, all or within"),
        ({"max_steps": 0}, "max_steps must be above 0"),
        ({"max_steps": 5, "epochs": 1}, "max_steps or epochs, not both"),
        ({"resume": True}, "nothing to resume"),
        ({"hiden_size": 3}, "no setting 'hiden_size'"),
    ],
)
def test_mistakes_are_found_before_anything_is_written(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        train(toy_corpus(), tmp_path / "model", vectors=toy_vectors(), **(TINY | options))
    assert list(tmp_path.iterdir()) == []


def test_overwrite_replaces_a_model_and_forgets_an_interrupted_run(tmp_path: Path) -> None:
    for folder in ("model", "model.run"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "run.json").write_text("{}")
    options = TINY | {"vectors": toy_vectors(), "max_steps": 1}
    with pytest.raises(UserError, match="exists and is not empty"):
        train(toy_corpus(), tmp_path / "model", **options)
    train(toy_corpus(), tmp_path / "model", overwrite=True, **options)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert not (tmp_path / "model" / "run.json").exists()
