"""A handful of words of several languages and scripts, with random vectors."""

from __future__ import annotations

from typing import Any

import numpy as np

from mv_st.vectors import WordVectors

WORDS = (  # noqa: SIM905
    "the a cat dog bird sat ran flew on under over mat tree house and it was very happy sad today yesterday "
    "sky is blue red . , ! ? do does n't 's not can straße naïve café привет мир नमस्ते 猫 で す"
).split()

CASED_WORDS = [*WORDS, "Paris", "US", "us", "May", "may", "N.B."]


def word_vectors(words: list[str], dim: int = 6, dtype: Any = np.float32) -> WordVectors:
    """Random vectors; the shift gives all sentences a common direction, as real vectors have."""
    return WordVectors(list(words), (np.random.default_rng(0).normal(size=(len(words), dim)) + 0.5).astype(dtype))
