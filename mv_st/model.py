"""An untrained model from word vectors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from .errors import UserError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from .modules.view import View
    from .vectors import WordVectors

VIEW_KINDS = ("gru", "linear")
WEIGHT_SMOOTHING = 3e-3
"""a in the SIF weight a / (a + p) of a word of frequency p: with this, "the" counts a tenth of a rare word."""


def build_model(
    vectors: WordVectors | str | Path | tuple[Sequence[str], np.ndarray],
    hidden_size: int = 256,
    views: Sequence[str] = ("gru", "linear"),
    *,
    oov: Literal["zero", "subword"] = "zero",
    max_seq_length: int | None = 512,
    max_vocab: int | None = None,
    dtype: Literal["float32", "float16"] | None = None,
    train_on: Literal["last", "mean"] = "last",
    fade_out: bool = False,
    gentle_start: bool = False,
    weighting: Literal["none", "fixed", "learned"] = "none",
    word_counts: dict[str, int] | np.ndarray | None = None,
    n_components: int = 1,
    whitening: float = 0.0,
    power_iterations: int = 10,
    temperature: float = 1.0,
    seed: int | None = None,
) -> SentenceTransformer:
    """Build an untrained model: word vectors, views, removal of components, ensemble.

    Args:
        vectors: Word vectors, a file that `load_vectors` reads, or a pair of words and array.
        hidden_size: Units per direction, d in the paper; vectors are 2 x d wide.
        views: Kinds of the views, in order: `"gru"` (sequential) and `"linear"` (parallel), any number of each. Two of
            a kind are named `gru_1`, `gru_2`.
        oov: What an unknown word is: `"zero"`, or `"subword"` with vectors that have subwords.
        max_seq_length: Number of words after which a text is cut, or None.
        max_vocab: Keep the first words only.
        dtype: How word vectors are stored, `"float32"` or `"float16"`.
        train_on: Train the GRU on its `"last"` state as the paper does, or on the `"mean"` state it is used with.
        fade_out: Count in the mean state of the GRU what follows the end of a sentence, see `BiGRUView`.
        gentle_start: Start the GRU with weak recurrence and the linear map as a rotation, see `View.start_gently`.
        weighting: Weights of words, in the mean of the linear view and in what the GRU reads: `"none"` as in the
            paper, `"fixed"` SIF weights, or `"learned"` ones that start there.
        word_counts: Occurrences of words in the corpus, for the weights: by word, or one per row of the table.
        n_components: Number of principal components stored and removed at inference, once fitted.
        whitening: Power of the variance by which the remaining components are scaled down at inference, once fitted; 0
            as in the paper, 0.5 for equal variance.
        power_iterations: Steps of the power iteration that estimates the component in training.
        temperature: Where the temperature of the loss starts.
        seed: Seed of the initial weights.

    Returns:
        A plain SentenceTransformer. Train it, then call `fit_components`.

    Example:
        >>> import numpy as np
        >>> model = build_model((["good", "morning"], np.eye(2, dtype=np.float32)), hidden_size=4, seed=0)
        >>> model.encode(["Good morning", "morning"]).shape
        (2, 8)
    """
    from sentence_transformers import SentenceTransformer

    from .modules import FastTextEmbedding, PCRemoval, ViewEnsemble

    views = (views,) if isinstance(views, str) else tuple(views)
    if not views or not set(views) <= set(VIEW_KINDS):
        raise UserError(f"views must be one or more of {', '.join(VIEW_KINDS)}; got {', '.join(views) or 'none'}")
    if weighting != "none" and word_counts is None:
        raise UserError(f'weighting="{weighting}" needs word_counts, the occurrences of words in the corpus')
    if hidden_size < 1 or n_components < 0:
        raise UserError(f"hidden_size must be at least 1 and n_components 0; got {hidden_size} and {n_components}")
    if seed is not None:
        torch.manual_seed(seed)
    words = FastTextEmbedding(vectors, oov=oov, max_seq_length=max_seq_length, max_vocab=max_vocab, dtype=dtype)
    weights = None if word_counts is None or weighting == "none" else words.word_weights(word_counts, WEIGHT_SMOOTHING)
    vocab_size = None if weights is None else words.vocab_size

    view_modules = [
        _build_view(
            kind, name, words.embedding_dimension, hidden_size, train_on, weighting, vocab_size, weights, fade_out
        )
        for kind, name in zip(views, view_names(views), strict=True)
    ]
    if gentle_start:
        for view in view_modules:
            view.start_gently()
    removal = PCRemoval({view.name: view.widths for view in view_modules}, n_components, power_iterations, whitening)
    ensemble = ViewEnsemble([view.name for view in view_modules], 2 * hidden_size, temperature)
    return SentenceTransformer(modules=[words, *view_modules, removal, ensemble], similarity_fn_name="cosine")


def view_names(kinds: Sequence[str]) -> list[str]:
    """Name the views of a model: by kind, numbered where a kind occurs more than once.

    Example:
        >>> view_names(["gru", "linear"]), view_names(["gru", "gru"])
        (['gru', 'linear'], ['gru_1', 'gru_2'])
    """
    counts = Counter(kinds)
    seen: Counter[str] = Counter()
    names = []
    for kind in kinds:
        seen[kind] += 1
        names.append(kind if counts[kind] == 1 else f"{kind}_{seen[kind]}")
    return names


def _build_view(
    kind: str,
    name: str,
    embedding_dimension: int,
    hidden_size: int,
    train_on: Literal["last", "mean"],
    weighting: Literal["none", "fixed", "learned"],
    vocab_size: int | None,
    weights: np.ndarray | None,
    fade_out: bool,
) -> View:
    from .modules import BiGRUView, LinearMeanView

    if kind == "gru":
        return BiGRUView(embedding_dimension, hidden_size, name, train_on, weighting, vocab_size, weights, fade_out)
    return LinearMeanView(embedding_dimension, 2 * hidden_size, name, weighting, vocab_size, weights)
