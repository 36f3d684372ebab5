"""What happens around the steps of a training run: progress, checkpoints by the clock, a time budget, interruption.

Where training runs in several processes, all of them have to save and stop at the same step: what one process wants,
all do.
"""

from __future__ import annotations

import signal
import sys
import time
from types import FrameType
from typing import Any

import torch
from accelerate import PartialState
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState

SECONDS_BETWEEN_LINES = 15.0
SECONDS_OF_ONE_INTERRUPTION = 1.0


def any_process(flag: bool) -> bool:
    """Whether the flag is set in this or in another process; all processes have to ask at the same time."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return flag
    flags = torch.tensor(int(flag), device=PartialState().device)
    torch.distributed.all_reduce(flags, torch.distributed.ReduceOp.MAX)
    return bool(flags)


class TrainingProgress(TrainerCallback):
    """A bar on a terminal, a line now and then elsewhere, on standard error.

    Args:
        batch_size: Sentences per step, over all processes.
        time_budget: The time budget, if there is one, to show how much of it is used.
    """

    def __init__(self, batch_size: int, time_budget: TimeBudget | None = None) -> None:
        self.batch_size = batch_size
        self.time_budget = time_budget
        self._bar: Any = None
        self._numbers = ""

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Start the clock."""
        self._start, self._first_step, self._last_line = time.monotonic(), state.global_step, time.monotonic()
        if state.is_world_process_zero and sys.stderr.isatty():
            from tqdm import tqdm

            total = state.max_steps if self.time_budget is None else None
            self._bar = tqdm(total=total, initial=state.global_step, desc="training", unit=" steps", file=sys.stderr)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Move the bar, or write a line."""
        if not state.is_world_process_zero:
            return
        if self._bar is not None:
            self._bar.set_postfix_str(f"{self._speed(state):,.0f} sentences/s{self._numbers}", refresh=False)
            self._bar.update()
        elif time.monotonic() - self._last_line >= SECONDS_BETWEEN_LINES:
            self._last_line = time.monotonic()
            where = f"step {state.global_step:,}"
            where += f"/{state.max_steps:,}" if self.time_budget is None else f", {self.time_budget}"
            line = f"training: {where}, {self._speed(state):,.0f} sentences/s{self._numbers}"
            print(line, file=sys.stderr, flush=True)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        """Remember the newest numbers."""
        if logs and "loss" in logs:
            self._numbers = f", loss {logs['loss']:.3f}"
            if "temperature" in logs:
                self._numbers += f", temperature {logs['temperature']:.3f}"

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Close the bar."""
        if self._bar is not None:
            self._bar.close()

    def _speed(self, state: TrainerState) -> float:
        steps = state.global_step - self._first_step
        return steps * self.batch_size / max(time.monotonic() - self._start, 1e-9)


class CheckpointClock(TrainerCallback):
    """Saves a checkpoint every few minutes, however long a step takes.

    Args:
        minutes: Time between checkpoints.
    """

    def __init__(self, minutes: float) -> None:
        self.seconds = 60 * minutes

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Start the clock."""
        self._last = time.monotonic()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Ask for a checkpoint when it is time."""
        if any_process(time.monotonic() - self._last >= self.seconds):
            control.should_save = True
            self._last = time.monotonic()


class TimeBudget(TrainerCallback, ExportableState):
    """Ends training after some minutes, of which a resumed run has what was left. It knows how long training took.

    Args:
        minutes: The budget; None for no end.
    """

    def __init__(self, minutes: float | None) -> None:
        self.minutes = minutes
        self.used_before = 0.0
        self._start = time.monotonic()

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"args": {"minutes": self.minutes}, "attributes": {"used_before": self.used}}

    @property
    def used(self) -> float:
        """Minutes used so far."""
        return self.used_before + (time.monotonic() - self._start) / 60

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Start the clock."""
        self.used_before = self.used_until(state) if state.global_step else 0.0
        self._start = time.monotonic()

    @classmethod
    def used_until(cls, state: TrainerState) -> float:
        """Minutes used when a checkpoint was written, from the trainer's state in it."""
        saved: Any = state.stateful_callbacks or {}
        own = saved.get(cls.__name__)  # version 0.1 kept the time of runs with a budget only
        return 0.0 if own is None else own["attributes"]["used_before"]

    def is_used_up(self, minutes: float) -> bool:
        """Whether no more than these minutes were to be used."""
        return self.minutes is not None and minutes >= self.minutes

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Save and stop when the time is up."""
        if self.minutes is not None and any_process(self.is_used_up(self.used)):
            control.should_save = True
            control.should_training_stop = True

    def __str__(self) -> str:
        return f"{self.used:.1f} minutes" if self.minutes is None else f"{self.used:.1f} of {self.minutes:g} minutes"


class Interruption(TrainerCallback):
    """On Ctrl-C or SIGTERM, finishes the step, saves a checkpoint and stops. A later second one stops at once.

    Used as a context around the training, in which it handles the signals.

    Attributes:
        happened: Whether training was interrupted.
    """

    def __init__(self) -> None:
        self.happened = False
        self._since = 0.0
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Interruption:
        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._handle)
        except ValueError:
            pass  # not in the main thread: signals are not ours to handle
        return self

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.happened:
            # A process that was started by torchrun gets Ctrl-C twice: from the terminal and from torchrun.
            if time.monotonic() - self._since > SECONDS_OF_ONE_INTERRUPTION:
                raise KeyboardInterrupt
            return
        self._note()
        if PartialState().is_main_process:
            print("\ninterrupted: saving a checkpoint", file=sys.stderr, flush=True)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Save and stop, if asked to."""
        if any_process(self.happened):
            self._note()
            control.should_save = True
            control.should_training_stop = True

    def _note(self) -> None:
        self.happened, self._since = True, time.monotonic()


class SamplerEpoch(TrainerCallback):
    """Tells the batch sampler the epoch, so that a run resumed in a later epoch goes on with the batches of that one.

    The trainer does the same, but through two wrappers at most, and in a run of several processes there are three.
    """

    def on_epoch_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        train_dataloader: Any = None,
        **kwargs: Any,
    ) -> None:
        """Find the innermost batch sampler and set its epoch."""
        sampler = train_dataloader.batch_sampler
        while (inner := getattr(sampler, "batch_sampler", None)) is not None:
            sampler = inner
        sampler.set_epoch(int(state.epoch or 0))
