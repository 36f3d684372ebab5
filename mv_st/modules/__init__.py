"""The method as modules, in the order in which a sentence passes through them."""

from __future__ import annotations

from .fasttext_embedding import FastTextEmbedding
from .bigru_view import BiGRUView  # isort: skip
from .linear_mean_view import LinearMeanView  # isort: skip
from .pc_removal import PCRemoval  # isort: skip
from .view_ensemble import ViewEnsemble  # isort: skip

__all__ = ["BiGRUView", "FastTextEmbedding", "LinearMeanView", "PCRemoval", "ViewEnsemble"]
