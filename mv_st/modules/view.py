"""What the views of a sentence have in common."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Literal

from sentence_transformers.base.modules import Module
from torch import Tensor

from .words import Words

Representation = Literal["similarity", "transfer"]
REPRESENTATIONS: tuple[Representation, Representation] = ("similarity", "transfer")


class View(Module):
    """One way of reading a sentence. Subclass it to add another.

    A view gives three vectors of the same sentence: one to train on, one to compare sentences with ("similarity", of
    the same width in all views of a model, since they are added), and one to put a classifier on ("transfer").

    Args:
        name: How the view is asked for in `model.encode(sentences, view=name)`.
    """

    config_keys: list[str] = ["name"]
    forward_kwargs: set[str] = {"view", "representation"}

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    @property
    @abstractmethod
    def widths(self) -> dict[str, int]:
        """Width of the vector of each representation."""

    @abstractmethod
    def training_vector(self, words: Words) -> Tensor:
        """The vector that the loss sees, shape (N, widths["similarity"])."""

    @abstractmethod
    def similarity_vector(self, words: Words) -> Tensor:
        """The vector for comparing sentences, shape (N, widths["similarity"])."""

    @abstractmethod
    def transfer_vector(self, words: Words) -> Tensor:
        """The features for a classifier, shape (N, widths["transfer"])."""

    def forward(
        self, features: dict[str, Any], view: str | None = None, representation: str = "similarity"
    ) -> dict[str, Any]:
        """Add this view's vector to `features["views"]`, unless another view alone was asked for."""
        views = features.setdefault("views", {})
        if view is not None and view != self.name:
            return features
        words: Words = features["words"]
        words.dtype = next(self.parameters()).dtype
        if self.training:
            views[self.name] = self.training_vector(words)
        elif representation == "transfer":
            views[self.name] = self.transfer_vector(words)
        else:
            views[self.name] = self.similarity_vector(words)
        return features

    def save(self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any) -> None:
        """Write configuration and weights."""
        self.save_config(output_path)
        self.save_torch_weights(output_path, safe_serialization=safe_serialization)

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **kwargs: Any) -> View:
        """Load configuration and weights."""
        return load_with_weights(cls, model_name_or_path, subfolder, **kwargs)


def load_with_weights(cls: type[Module], model_name_or_path: str, subfolder: str = "", **kwargs: Any) -> Any:
    """Build a module from its configuration and fill in its weights; the host's `load` stops at the former."""
    names = ("token", "cache_folder", "revision", "local_files_only")
    hub = {"subfolder": subfolder} | {name: kwargs[name] for name in names if name in kwargs}
    module = cls(**cls.load_config(model_name_or_path, **hub))
    return cls.load_torch_weights(model_name_or_path, **hub, model=module)
