"""Sentence embeddings trained on your own unlabelled text: two views of a sentence that learn from each other."""

from __future__ import annotations

__version__ = "0.1.0"
