"""Last module: the views of a sentence become one vector."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UserError
from .view import unit_length
from .weights import ModuleWithWeights

SMALLEST_TEMPERATURE = 0.01


class ViewEnsemble(ModuleWithWeights):
    """Normalises each view, then adds them (similarity) or puts them side by side (transfer).

    Any number of views of any kind. It also holds the temperature of the loss, so that it is saved and resumed with
    the model and equal on all processes; the loss reads it from the features.

    Args:
        views: Names of the views.
        width: Width of the similarity vector.
        temperature: Where the temperature starts.
    """

    config_keys = ["views", "width"]
    forward_kwargs: set[str] = {"view", "representation"}

    def __init__(self, views: list[str], width: int, temperature: float = 1.0) -> None:
        super().__init__()
        self.views = list(views)
        self.width = width
        self.temperature = nn.Parameter(torch.tensor(float(temperature)))

    def get_embedding_dimension(self) -> int:
        """Width of `model.encode(sentences)`."""
        return self.width

    def forward(
        self, features: dict[str, Any], view: str | None = None, representation: str = "similarity", **kwargs: Any
    ) -> dict[str, Any]:
        """Add `sentence_embedding`; with all views at hand also `view_embeddings` (N, views, width) for the loss."""
        if view is not None and view not in self.views:
            raise UserError(f"this model has no view {view!r}; its views are {', '.join(self.views)}")
        computed: dict[str, Tensor] = features.pop("views")
        features.pop("words", None)
        normalized = [unit_length(computed[name]) for name in self.views if name in computed]
        if representation == "transfer" and not self.training:
            features["sentence_embedding"] = torch.cat(normalized, dim=1)
            return features
        features["sentence_embedding"] = torch.stack(normalized).sum(dim=0) if len(normalized) > 1 else normalized[0]
        if view is None:
            features["view_embeddings"] = torch.stack(normalized, dim=1)
            # A copy per sentence: reading the parameter itself in the loss would upset distributed training.
            temperature = self.temperature.clamp(min=SMALLEST_TEMPERATURE)
            features["temperature"] = temperature.expand(len(normalized[0])).clone()
        return features
