from __future__ import annotations

import io
import signal
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from accelerate.data_loader import BatchSamplerShard, SkipBatchSampler
from datasets import Dataset
from transformers import TrainerControl, TrainerState

from mv_st import training_callbacks
from mv_st.sampler import ContiguousBatchSampler
from mv_st.training_callbacks import (
    CheckpointClock,
    Interruption,
    SamplerEpoch,
    TimeBudget,
    TrainingProgress,
    any_process,
)


class Clock:
    """Stands in for the module `time`."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(training_callbacks, "time", clock)
    return clock


def end_of_step(callback: Any, step: int = 1) -> TrainerControl:
    control = TrainerControl()
    callback.on_step_end(None, TrainerState(global_step=step, max_steps=100), control)
    return control


def begin(callback: Any, state: TrainerState | None = None) -> None:
    callback.on_train_begin(None, state or TrainerState(max_steps=100), TrainerControl())


def test_in_one_process_a_flag_is_a_flag() -> None:
    assert any_process(True)
    assert not any_process(False)


def test_checkpoints_come_by_the_clock(clock: Clock) -> None:
    callback = CheckpointClock(minutes=2)
    clock.now += 1000  # time before training does not count
    begin(callback)
    clock.now += 119
    assert not end_of_step(callback).should_save
    clock.now += 1
    assert end_of_step(callback).should_save
    assert not end_of_step(callback).should_save
    clock.now += 120
    assert end_of_step(callback).should_save


def test_a_time_budget_saves_and_stops(clock: Clock) -> None:
    budget = TimeBudget(minutes=10)
    clock.now += 5000
    begin(budget)
    clock.now += 599
    control = end_of_step(budget)
    assert not control.should_training_stop
    assert not control.should_save
    assert str(budget) == "10.0 of 10 minutes"
    clock.now += 1
    control = end_of_step(budget)
    assert control.should_training_stop
    assert control.should_save


def test_without_a_budget_the_time_is_kept(clock: Clock) -> None:
    watch = TimeBudget(minutes=None)
    begin(watch)
    clock.now += 60 * 1e6
    control = end_of_step(watch)
    assert not control.should_training_stop
    state = TrainerState(global_step=7, max_steps=100, stateful_callbacks={"TimeBudget": watch.state()})
    assert TimeBudget.used_until(state) == pytest.approx(1e6)
    assert TimeBudget.used_until(TrainerState(global_step=7, max_steps=100)) == 0, "of an earlier version"


def test_a_time_budget_goes_on_with_what_was_left(clock: Clock) -> None:
    budget = TimeBudget(minutes=10)
    begin(budget)
    clock.now += 240
    state = TrainerState(global_step=7, max_steps=100, stateful_callbacks={"TimeBudget": budget.state()})
    assert TimeBudget.used_until(state) == pytest.approx(4)

    clock.now += 86_400  # the night between the two runs
    resumed = TimeBudget(minutes=10)
    begin(resumed, state)
    assert resumed.used == pytest.approx(4)
    clock.now += 359
    assert not end_of_step(resumed).should_training_stop
    clock.now += 1
    assert end_of_step(resumed).should_training_stop


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_asks_for_a_checkpoint_and_the_end(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(number)
    interruption = Interruption()
    with interruption:
        assert not end_of_step(interruption).should_training_stop
        signal.raise_signal(number)
        control = end_of_step(interruption)
    assert interruption.happened
    assert control.should_save
    assert control.should_training_stop
    assert signal.getsignal(number) is before
    assert capsys.readouterr().err.strip() == "interrupted: saving a checkpoint"


def test_a_second_signal_stops_at_once_but_not_the_echo_of_the_first(clock: Clock) -> None:
    with Interruption():
        signal.raise_signal(signal.SIGINT)
        clock.now += 0.5
        signal.raise_signal(signal.SIGINT)
        clock.now += 1
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def batch_sampler() -> ContiguousBatchSampler:
    return ContiguousBatchSampler(Dataset.from_dict({"sentence": list("abcdefghijkl")}), batch_size=2)


@pytest.mark.parametrize("epoch", [None, 0.0, 1.0, 2.75])
def test_the_epoch_reaches_the_sampler_through_all_wrappers(epoch: float | None) -> None:
    inner = batch_sampler()
    wrapped = SkipBatchSampler(BatchSamplerShard(inner, num_processes=2, process_index=1), skip_batches=1)
    inner.set_epoch(77)
    loader = SimpleNamespace(batch_sampler=wrapped)
    SamplerEpoch().on_epoch_begin(None, TrainerState(epoch=epoch), TrainerControl(), train_dataloader=loader)
    assert inner.epoch == int(epoch or 0)
    expected = batch_sampler()
    expected.set_epoch(int(epoch or 0))
    assert list(wrapped) == list(expected)[1::2][1:]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def progress() -> TrainingProgress:
    return TrainingProgress(batch_size=512)


def log(callback: TrainingProgress) -> None:
    callback.on_log(None, TrainerState(), TrainerControl(), logs={"loss": 2.5, "temperature": 0.25})


def test_lines_now_and_then_where_there_is_no_terminal(
    progress: TrainingProgress, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    begin(progress)
    clock.now += 10
    end_of_step(progress, 10)
    log(progress)
    clock.now += 10
    end_of_step(progress, 20)
    end_of_step(progress, 21)
    progress.on_train_end(None, TrainerState(), TrainerControl())
    assert capsys.readouterr().err == "training: step 20/100, 512 sentences/s, loss 2.500, temperature 0.250\n"


def test_a_time_budget_is_shown_instead_of_the_number_of_steps(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    budget = TimeBudget(minutes=10)
    progress = TrainingProgress(512, budget)
    for callback in (budget, progress):
        begin(callback)
    clock.now += 60
    end_of_step(progress, 60)
    assert capsys.readouterr().err == "training: step 60, 1.0 of 10 minutes, 512 sentences/s\n"


def test_a_bar_on_a_terminal(progress: TrainingProgress, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    begin(progress)
    log(progress)
    for step in range(1, 101):
        end_of_step(progress, step)
    progress.on_train_end(None, TrainerState(), TrainerControl())
    text = terminal.getvalue()
    assert "100/100" in text
    assert "loss 2.500" in text


def test_only_the_main_process_shows_progress(
    progress: TrainingProgress, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    state = TrainerState(global_step=5, max_steps=100, is_world_process_zero=False)
    begin(progress, state)
    clock.now += 100
    progress.on_step_end(None, state, TrainerControl())
    assert capsys.readouterr().err == ""
