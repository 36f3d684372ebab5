"""The settings of a training run, and the presets."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

from .errors import UserError
from .model import VIEW_KINDS

_CHOICES = {
    "agreement": ("cross", "all", "within"),
    "train_on": ("last", "mean"),
    "weighting": ("none", "fixed", "learned"),
    "precision": ("float32", "bfloat16", "auto"),
}
_LEAST = {
    "hidden_size": 1,
    "batch_size": 2,
    "window": 0,
    "blocks": 1,
    "n_components": 0,
    "spelling_codes": 0,
    "linear_first": 0,
    "power_iterations": 0,
    "max_train_length": 1,
    "max_seq_length": 1,
}


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
        include_self: Whether a sentence is its own neighbour; if not, it is left out of the comparison.
        train_on: State of the GRU that the loss sees: `"last"` or `"mean"`.
        fade_out: Whether the mean state of the GRU counts the states after the end of a sentence, as they fade.
        gentle_start: Whether the GRU starts with weak recurrence, and the linear map as a rotation.
        weighting: Word weights, in the mean of g and in what f reads: `"none"`, `"fixed"` (SIF) or `"learned"`.
        temperature: Where the temperature starts.
        n_components: Principal components stored and removed at inference.
        spelling: Whether unknown words get vectors from their spelling, where the word vectors have no subwords, and
            as long as known words are.
        spelling_codes: Width of the codes of their spelling that words have beside their vectors, where there is a
            table of n-grams (`spelling`); 0 for none.
        whiten_words: Whether word vectors are whitened before training.
        whitening: Power of the variance by which remaining components are scaled down at inference, 0 to 0.5.
        power_iterations: Steps that estimate the component of a batch in training.
        linear_first: Batches from which the linear views learn by themselves, before all views learn together.
        learning_rate: Of Adam, constant.
        clip_norm: Largest norm of the gradient.
        precision: Of the products with recurrent weights of the GRU in training on a CPU: `"float32"`, `"bfloat16"`,
            or `"auto"`, which is bfloat16 where the processor is faster at it. Inference is not affected.
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
    fade_out: bool = False
    gentle_start: bool = False
    weighting: Literal["none", "fixed", "learned"] = "none"
    temperature: float = 1.0
    spelling: bool = False
    spelling_codes: int = 0
    whiten_words: bool = False
    n_components: int = 1
    whitening: float = 0.0
    power_iterations: int = 10
    linear_first: int = 0
    learning_rate: float = 5e-4
    clip_norm: float = 5.0
    precision: Literal["float32", "bfloat16", "auto"] = "float32"
    max_train_length: int = 40
    max_seq_length: int = 512

    def __post_init__(self) -> None:
        if not self.views or not set(self.views) <= set(VIEW_KINDS):
            raise UserError(f"views must be one or more of {', '.join(VIEW_KINDS)}, not {', '.join(self.views)!r}")
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise UserError(
                    f"{name} must be {', '.join(allowed[:-1])} or {allowed[-1]}, not {getattr(self, name)!r}"
                )
        for name, least in _LEAST.items():
            if getattr(self, name) < least:
                raise UserError(f"{name} must be at least {least}, not {getattr(self, name)}")
        for name in ("temperature", "learning_rate", "clip_norm"):
            if not getattr(self, name) > 0:
                raise UserError(f"{name} must be above 0, not {getattr(self, name)}")
        if not 0 <= self.whitening <= 0.5:
            raise UserError(f"whitening must be between 0 and 0.5, not {self.whitening}")
        if self.window == 0 and not self.include_self:
            raise UserError("window=0 leaves a sentence no neighbour but itself, which include_self=False excludes")
        if self.batch_size % self.blocks:
            raise UserError(f"a batch of {self.batch_size} sentences cannot be divided into {self.blocks} blocks")

    def to_dict(self) -> dict[str, Any]:
        """The settings in a form that JSON holds."""
        return asdict(self) | {"views": list(self.views)}


_BEYOND_THE_PAPER: dict[str, Any] = {
    "blocks": 32,
    "include_self": False,
    "train_on": "mean",
    "fade_out": True,
    "gentle_start": True,
    "weighting": "fixed",
    "temperature": 0.2,
    "spelling": True,
    "spelling_codes": 200,
    "whiten_words": True,
    "whitening": 0.25,
    "linear_first": 2_000,
    "precision": "auto",
}

PRESETS = {
    "small": Settings(hidden_size=256, **_BEYOND_THE_PAPER),
    "base": Settings(hidden_size=512, **(_BEYOND_THE_PAPER | {"spelling_codes": 400})),
    # What tells sentences apart is noise to a classifier, which learns its own scales.
    "features": Settings(
        hidden_size=512,
        **(_BEYOND_THE_PAPER | {"spelling_codes": 0, "whiten_words": False, "linear_first": 0}),
    ),
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
        views = changes["views"]
        changes["views"] = tuple(views.split(",") if isinstance(views, str) else views)
    if "batch_size" in changes and "blocks" not in changes:
        # Runs of sentences stay as long as they are in the preset, where a batch of this size can be divided so.
        run = PRESETS[preset].batch_size // PRESETS[preset].blocks
        blocks, rest = divmod(changes["batch_size"], run)
        changes["blocks"] = 1 if rest else max(blocks, 1)
    return replace(PRESETS[preset], **changes)
