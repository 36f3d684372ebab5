"""The settings of a training run, and the three presets."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

from .errors import UserError


@dataclass(frozen=True)
class Settings:
    """Everything that decides what a training run computes, apart from corpus, vectors and its length.

    The defaults are the paper's settings at their full size.

    Attributes:
        hidden_size: Units per direction of the GRU; vectors are twice as wide (d).
        views: Kinds of the views.
        agreement: Which pairs of views the loss compares.
        batch_size: Sentences per batch (N).
        window: How far apart neighbours may be (c).
        blocks: Number of runs of consecutive sentences in a batch.
        include_self: Whether a sentence is its own neighbour.
        train_on: State of the GRU that the loss sees: `"last"` or `"mean"`.
        weighting: Word weights of the linear view: `"none"`, `"fixed"` (SIF) or `"learned"`.
        temperature: Where the temperature starts.
        n_components: Principal components stored and removed at inference.
        power_iterations: Steps that estimate the component of a batch in training.
        learning_rate: Of Adam, constant.
        clip_norm: Largest norm of the gradient.
        max_train_length: Words after which a sentence is cut in training.
        max_seq_length: Words after which a text is cut at inference.
    """

    hidden_size: int = 1024
    views: tuple[str, ...] = ("gru", "linear")
    agreement: Literal["cross", "all", "within"] = "cross"
    batch_size: int = 512
    window: int = 3
    blocks: int = 1
    include_self: bool = True
    train_on: Literal["last", "mean"] = "last"
    weighting: Literal["none", "fixed", "learned"] = "none"
    temperature: float = 1.0
    n_components: int = 1
    power_iterations: int = 10
    learning_rate: float = 5e-4
    clip_norm: float = 5.0
    max_train_length: int = 40
    max_seq_length: int = 512

    def to_dict(self) -> dict[str, Any]:
        """The settings in a form that JSON holds."""
        return asdict(self) | {"views": list(self.views)}


_BEYOND_THE_PAPER: dict[str, Any] = {"train_on": "mean", "temperature": 0.2}

PRESETS = {
    "small": Settings(hidden_size=256, **_BEYOND_THE_PAPER),
    "base": Settings(hidden_size=512, **_BEYOND_THE_PAPER),
    "paper": Settings(),
}


def settings_for(preset: str, **changes: Any) -> Settings:
    """A preset with changes; a change of None means that of the preset.

    Example:
        >>> settings_for("small", window=5, blocks=None).window
        5
    """
    if preset not in PRESETS:
        raise UserError(f"no preset {preset!r}; choose one of {', '.join(PRESETS)}")
    known = {field.name for field in fields(Settings)}
    if unknown := set(changes) - known:
        raise UserError(f"no setting {sorted(unknown)[0]!r}; the settings are {', '.join(sorted(known))}")
    changes = {name: value for name, value in changes.items() if value is not None}
    if "views" in changes:
        changes["views"] = tuple(changes["views"])
    return replace(PRESETS[preset], **changes)
