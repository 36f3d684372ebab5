"""Tiny task files and models for the tests of the evaluation."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

GOOD = ["good", "fine", "great", "lovely"]
BAD = ["bad", "poor", "awful", "dull"]
NEUTRAL = ["the", "film", "was", "a", "very", "story", "actor", "scene", "plot", "music"]
WORDS = [*GOOD, *BAD, *NEUTRAL]


def static_model(vectors: np.ndarray) -> SentenceTransformer:
    tokenizer = Tokenizer(WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="the"))
    tokenizer.pre_tokenizer = Whitespace()
    return SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=vectors)])


def sentence(rng: np.random.Generator, flavour: Sequence[str] = ()) -> str:
    words = [*rng.choice(NEUTRAL, size=int(rng.integers(2, 6))), *rng.choice(list(flavour), size=1 if flavour else 0)]
    return " ".join(rng.permutation(words))


def write_rows(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8")


def sts_rows(rng: np.random.Generator, n: int) -> list[dict[str, Any]]:
    """Pairs that share the more words the higher the score."""
    rows = []
    for _ in range(n):
        shared = int(rng.integers(0, 6))
        common = list(rng.choice(WORDS, size=shared))
        left, right = ([*common, *rng.choice(WORDS, size=6 - shared)] for _ in range(2))
        rows.append({"sentence1": " ".join(left), "sentence2": " ".join(right), "score": float(shared)})
    return rows


def label_rows(rng: np.random.Generator, n: int) -> list[dict[str, Any]]:
    return [{"text": sentence(rng, GOOD if i % 2 else BAD), "label": i % 2} for i in range(n)]


def pair_rows(rng: np.random.Generator, n: int) -> list[dict[str, Any]]:
    rows = []
    for i in range(n):
        left = sentence(rng, GOOD)
        same = i % 2
        right = sentence(rng, GOOD if same else BAD)
        rows.append(
            {
                "sentence1": left,
                "sentence2": right,
                "label": same,
                "score": 1.0 + 4.0 * same - 0.5 * float(rng.random()) * (2 * same - 1),
                "entailment": ["CONTRADICTION", "ENTAILMENT"][same],
            }
        )
    return rows
