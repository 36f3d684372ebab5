"""Sentence embeddings trained on your own unlabelled text: two views of a sentence that learn from each other.

Importing this package makes its modules known to sentence-transformers, so that `SentenceTransformer("path")` loads
our models. The import itself is cheap: each name below is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._registration import register_modules
from ._waiting import wait_passively

if TYPE_CHECKING:
    from .compact import compact_model
    from .components import adapt_components, fit_components
    from .corpus import load_corpus, window_dataset
    from .hub import push_to_hub
    from .loss import MultiViewLoss
    from .model import build_model
    from .sampler import ContiguousBatchSampler
    from .self_contained import save_self_contained
    from .shipped_model import load_shipped_model
    from .spelling import add_spelling
    from .spelling_codes import add_spelling_codes
    from .static_export import export_static
    from .training import train
    from .vector_training import train_vectors
    from .vectors import load_vectors
    from .whitened_words import whiten_words

__version__ = "0.1.0"

_WHERE = {
    "ContiguousBatchSampler": "sampler",
    "MultiViewLoss": "loss",
    "adapt_components": "components",
    "add_spelling": "spelling",
    "add_spelling_codes": "spelling_codes",
    "build_model": "model",
    "compact_model": "compact",
    "export_static": "static_export",
    "fit_components": "components",
    "load_corpus": "corpus",
    "load_shipped_model": "shipped_model",
    "load_vectors": "vectors",
    "push_to_hub": "hub",
    "save_self_contained": "self_contained",
    "train": "training",
    "train_vectors": "vector_training",
    "whiten_words": "whitened_words",
    "window_dataset": "corpus",
}

__all__ = [
    "ContiguousBatchSampler",
    "MultiViewLoss",
    "__version__",
    "adapt_components",
    "add_spelling",
    "add_spelling_codes",
    "build_model",
    "compact_model",
    "export_static",
    "fit_components",
    "load_corpus",
    "load_shipped_model",
    "load_vectors",
    "push_to_hub",
    "save_self_contained",
    "train",
    "train_vectors",
    "whiten_words",
    "window_dataset",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_WHERE[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)


wait_passively()
register_modules()
