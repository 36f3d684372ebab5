"""The model that training begins with: word vectors as the settings want them, views, a head start."""

from __future__ import annotations

import logging
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import UserError
from .linear_first import train_linear_first
from .model import build_model
from .modules import FastTextEmbedding
from .quiet import errors_only
from .spelling import add_spelling
from .spelling_codes import add_spelling_codes
from .vector_training import train_vectors
from .vectors import load_vectors
from .whitened_words import whiten_words

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer

    from .presets import Settings
    from .vectors import WordVectors

logger = logging.getLogger(__name__)

SENTENCES_FOR_COMPONENTS = 20_000
SENTENCES_FOR_COUNTS = 1_000_000
SHARE_OF_LINEAR_FIRST = 0.5
"""Of the time for training, which the head start of the linear view may take in addition."""


def prepare_model(
    sentences: Dataset,
    vectors: WordVectors | str | Path | None,
    settings: Settings,
    seed: int,
    max_vocab: int | None,
    minutes: float | None,
) -> tuple[SentenceTransformer, int]:
    """Build the model for a corpus, as it is before its views are trained together.

    Args:
        sentences: The corpus, see `load_corpus`.
        vectors: Word vectors or their file; trained on the corpus if left out.
        settings: What decides how the model is made.
        seed: Seed of weights, codes and samples.
        max_vocab: Keep the most frequent words only.
        minutes: Time for the training that follows, which limits that of the head start.

    Returns:
        The model, and how many steps its linear view had alone.
    """
    if vectors is None:
        print("training word vectors on the corpus (fastText)", file=sys.stderr, flush=True)
        vectors = train_vectors(sentences)
    elif isinstance(vectors, (str, Path)):
        vectors = load_vectors(vectors, max_vocab=max_vocab, subwords=True)
    words = FastTextEmbedding(vectors, oov="zero" if vectors.subwords is None else "subword", max_vocab=max_vocab)
    counts = _count_words(words, sample_stretches(sentences, SENTENCES_FOR_COUNTS))
    known = counts[1:].sum() / max(counts.sum(), 1)
    if known == 0 and words.oov == "zero":
        raise UserError("the vectors have none of the words of the corpus; are they of another language?")
    logger.info("%.1f %% of the words of the corpus have a vector", 100 * known)
    if settings.spelling:
        vectors = add_spelling(vectors)
    if settings.spelling_codes and vectors.subwords is not None:
        vectors = add_spelling_codes(vectors, settings.spelling_codes, seed=seed)
    model = build_model(
        vectors,
        hidden_size=settings.hidden_size,
        views=settings.views,
        oov="zero" if vectors.subwords is None else "subword",
        max_seq_length=settings.max_seq_length,
        max_vocab=max_vocab,
        train_on=settings.train_on,
        fade_out=settings.fade_out,
        gentle_start=settings.gentle_start,
        weighting=settings.weighting,
        word_counts=counts,
        n_components=settings.n_components,
        whitening=settings.whitening,
        power_iterations=settings.power_iterations,
        temperature=settings.temperature,
        seed=seed,
    )
    module: Any = model[0]
    if settings.spelling and module.oov == "subword":
        module.scale_unknown_words()
    if settings.whiten_words:
        whiten_words(model, sample_sentences(sentences, SENTENCES_FOR_COMPONENTS, seed))
    steps = 0
    if set(settings.views) != {"linear"}:
        seconds = None if minutes is None else 60 * minutes * SHARE_OF_LINEAR_FIRST
        with quiet_truncation():
            steps = train_linear_first(model, sentences, settings, seed=seed, seconds=seconds)
    return model, steps


def _count_words(words: FastTextEmbedding, sentences: list[str]) -> np.ndarray:
    """How often each row of the table occurs."""
    counts = np.zeros(words.vocab_size)
    with quiet_truncation():
        for start in range(0, len(sentences), 10_000):
            ids = words.preprocess(sentences[start : start + 10_000])["input_ids"].clamp(min=0).numpy()
            counts += np.bincount(ids, minlength=words.vocab_size)
    return counts


def sample_stretches(sentences: Dataset, count: int, stretches: int = 100) -> list[str]:
    """About `count` sentences from all over the corpus, in runs, which are read faster than single ones."""
    if len(sentences) <= count:
        return list(sentences["sentence"])
    length = count // stretches
    starts = np.linspace(0, len(sentences) - length, stretches, dtype=int)
    return [sentence for start in starts for sentence in sentences[int(start) : int(start) + length]["sentence"]]


def sample_sentences(sentences: Dataset, count: int, seed: int) -> list[str]:
    """So many sentences at random, in their order."""
    if len(sentences) <= count:
        return list(sentences["sentence"])
    chosen = np.random.default_rng(seed).choice(len(sentences), count, replace=False)
    return list(sentences.select(np.sort(chosen))["sentence"])


def quiet_truncation() -> AbstractContextManager[None]:
    """Training cuts long sentences as a matter of course: no warning about it."""
    return errors_only("mv_st.modules.fasttext_embedding")
