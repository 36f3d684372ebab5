"""The method as modules, in the order in which a sentence passes through them."""

from __future__ import annotations

# isort: off
from .fasttext_embedding import FastTextEmbedding
from .bigru_view import BiGRUView
from .linear_mean_view import LinearMeanView
from .pc_removal import PCRemoval
from .view_ensemble import ViewEnsemble

__all__ = ["BiGRUView", "FastTextEmbedding", "LinearMeanView", "PCRemoval", "ViewEnsemble"]
