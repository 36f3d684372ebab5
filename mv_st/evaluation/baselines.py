"""Baselines without training: what word vectors give by themselves.

Each is a plain SentenceTransformer of the same modules as our models (word vectors, one view, removal of components,
ensemble), so that it has the same tokeniser, is saved and loaded alike, and takes stored and transductive components
alike.

| function | words are weighted by | removed |
| --- | --- | --- |
| `average` | 1 | nothing |
| `tfidf_average` | inverse document frequency, a sentence being a document | nothing |
| `sif` | a / (a + p), Arora et al. 2017 | the top components of sentences |
| `usif` | a / (a / 2 + p) with a computed from the corpus, Ethayarajh 2018 | a share of each of 5 components |
| `all_but_the_top` | 1 | mean and top components of *words*, Mu and Viswanath 2018 |
| `random_gru`, `random_projection` | an untrained view of our own model | nothing |

All take `n_components` and `fit_sentences`: so many components of sentences are estimated on these sentences and
stored in the model. Without sentences nothing is removed until `fit_components`, or a transductive evaluation, finds
the components.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from mv_st.components import fit_components, removal_module, top_components, view_vectors
from mv_st.errors import UserError
from mv_st.modules import BiGRUView, FastTextEmbedding, LinearMeanView, PCRemoval, ViewEnsemble
from mv_st.modules.pc_removal import remove_components
from mv_st.modules.view import REPRESENTATIONS
from mv_st.modules.words import sentence_index
from mv_st.progress import progress_bar
from mv_st.vectors import WordVectors, load_vectors

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from mv_st.modules.view import View

Vectors = WordVectors | str | Path | tuple[Sequence[str], np.ndarray] | FastTextEmbedding
"""Word vectors, their file, words and array, or a module that several baselines share to hold the table once."""

SENTENCES_FOR_COMPONENTS = 20_000
_SENTENCES_PER_CHUNK = 10_000


def average(
    vectors: Vectors, n_components: int = 0, fit_sentences: Sequence[str] | None = None
) -> SentenceTransformer:
    """The mean word vector.

    Args:
        vectors: Word vectors.
        n_components: Number of components of sentences to remove.
        fit_sentences: Sentences to estimate them on.

    Example:
        >>> model = average((["good", "morning"], np.eye(2)))
        >>> model.encode(["Good morning", "good good"])
        array([[0.707..., 0.707...], [1. , 0. ]], dtype=float32)
    """
    return _weighted_average(word_embedding(vectors), None, n_components, fit_sentences)


def tfidf_average(
    vectors: Vectors,
    corpus: Sequence[str] | WordStatistics,
    n_components: int = 0,
    fit_sentences: Sequence[str] | None = None,
) -> SentenceTransformer:
    """The mean word vector, each word times log((1 + N) / (1 + n)) if n of N sentences have it.

    A word that occurs twice in a sentence counts twice, which is the term frequency.

    Args:
        vectors: Word vectors.
        corpus: Sentences to count in, or the counts.
        n_components: Number of components of sentences to remove.
        fit_sentences: Sentences to estimate them on.
    """
    words = word_embedding(vectors)
    counted = corpus if isinstance(corpus, WordStatistics) else count_words(words, corpus)
    weights = np.log((1 + counted.n_sentences) / (1 + counted.sentences_with))
    return _weighted_average(words, weights, n_components, fit_sentences)


def sif(
    vectors: Vectors,
    word_counts: dict[str, int] | np.ndarray,
    n_components: int = 1,
    a: float = 1e-3,
    fit_sentences: Sequence[str] | None = None,
) -> SentenceTransformer:
    """Smooth inverse frequency, "WR" in Arora et al. (2017): weights a / (a + p), then components are removed.

    Args:
        vectors: Word vectors.
        word_counts: Occurrences of words in a corpus, from which the frequencies p come: by word, or one per row of
            the table as `count_words` gives them.
        n_components: Number of components of sentences to remove.
        a: The smaller, the less frequent words count.
        fit_sentences: Sentences to estimate components on.
    """
    words = word_embedding(vectors)
    return _weighted_average(words, words.word_weights(word_counts, a), n_components, fit_sentences)


def usif(
    vectors: Vectors,
    word_counts: dict[str, int] | np.ndarray,
    sentence_length: float = 11.0,
    n_components: int = 5,
    fit_sentences: Sequence[str] | None = None,
) -> SentenceTransformer:
    """Unsupervised smooth inverse frequency of Ethayarajh (2018): no parameter to tune.

    Weights are a / (a / 2 + p) with a = (1 - alpha) / (alpha V / 2), for V words of which the share alpha is so
    frequent that one expects them in a sentence of average length. Of component i the share lambda_i is removed, its
    part of the variance that the components have together.

    The share is in the *stored* components: their rows have the length sqrt(lambda_i). `fit_components` and
    transductive evaluation put whole components in their place, as for any model; only the weights are then uSIF's.
    Left out is a step of the author's program that is not in the model, the scaling of each dimension within a
    sentence.

    Args:
        vectors: Word vectors.
        word_counts: Occurrences of words in a corpus: by word, or one per row of the table.
        sentence_length: Mean number of words in a sentence.
        n_components: Number of components of sentences to remove in part.
        fit_sentences: Sentences to estimate components on; all of them are used.
    """
    words = word_embedding(vectors)
    model = _weighted_average(words, _usif_weights(words, word_counts, sentence_length), n_components, None)
    if fit_sentences is not None and n_components:
        _store_shares_of_components(model, fit_sentences, n_components)
    return model


def all_but_the_top(
    vectors: Vectors,
    n_word_components: int | None = None,
    n_components: int = 0,
    fit_sentences: Sequence[str] | None = None,
) -> SentenceTransformer:
    """The average of word vectors without their mean and top components, "proc." of Mu and Viswanath (2018).

    Args:
        vectors: Word vectors.
        n_word_components: Number of components of the word vectors to remove; a hundredth of their width if not given.
        n_components: Number of components of sentences to remove.
        fit_sentences: Sentences to estimate these on.
    """
    words = copy.deepcopy(word_embedding(vectors))
    table = words.vectors[1:].float()  # row 0, the unknown word, stays zero
    mean = table.mean(dim=0)
    if n_word_components is None:
        n_word_components = max(1, round(words.embedding_dimension / 100))
    top = top_components(table - mean, n_word_components)
    words.vectors[1:] = remove_components(table - mean, top)
    if words.oov == "subword":
        # A word is the mean of its subwords, so that what is done to them is done to the word.
        words.subword_vectors.copy_(remove_components(words.subword_vectors.float() - mean, top))
    return average(words, n_components, fit_sentences)


def random_gru(
    vectors: Vectors,
    hidden_size: int = 256,
    seed: int = 0,
    n_components: int = 0,
    fit_sentences: Sequence[str] | None = None,
) -> SentenceTransformer:
    """The sequential view of our model, untrained: the mean state of a random bi-directional GRU.

    Args:
        vectors: Word vectors.
        hidden_size: Units per direction.
        seed: Seed of the weights.
        n_components: Number of components of sentences to remove.
        fit_sentences: Sentences to estimate them on.
    """
    words = word_embedding(vectors)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        view = BiGRUView(words.embedding_dimension, hidden_size)
    return assemble(words, view, n_components, fit_sentences)


def random_projection(
    vectors: Vectors,
    hidden_size: int = 256,
    seed: int = 0,
    n_components: int = 0,
    fit_sentences: Sequence[str] | None = None,
) -> SentenceTransformer:
    """The linear view of our model, untrained: a random map of the mean word vector to twice `hidden_size`.

    Args:
        vectors: Word vectors.
        hidden_size: Half of the width.
        seed: Seed of the weights.
        n_components: Number of components of sentences to remove.
        fit_sentences: Sentences to estimate them on.
    """
    words = word_embedding(vectors)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        view = LinearMeanView(words.embedding_dimension, 2 * hidden_size)
    return assemble(words, view, n_components, fit_sentences)


def untrained_baselines(
    vectors: Vectors, corpus_sentences: Sequence[str], hidden_size: int = 256, seed: int = 0
) -> dict[str, SentenceTransformer]:
    """All baselines of this module on the same vectors, with components of a sample of the corpus stored in them.

    Args:
        vectors: Word vectors; all but one of the models share their table.
        corpus_sentences: Sentences to count words in and to fit components on, such as `load_corpus(...)["sentence"]`.
        hidden_size: Size of the random ones.
        seed: Seed of the sample and of the random ones.

    Returns:
        Models by name. A number at the end of a name tells how many components of sentences the model removes; a name
        without one removes none. The whitened ones also scale what remains, as our own models may.
    """
    words = word_embedding(vectors)
    counted = count_words(words, corpus_sentences)
    sample = _sample(corpus_sentences, seed)
    models = {
        "average": average(words),
        "average-1": average(words, 1, sample),
        "tf-idf": tfidf_average(words, counted),
        "tf-idf-1": tfidf_average(words, counted, 1, sample),
        "sif": sif(words, counted.counts, 0),
    }
    for n_components in (1, 5, 10):
        models[f"sif-{n_components}"] = sif(words, counted.counts, n_components, fit_sentences=sample)
    return models | {
        "average-whitened-1": fit_components(average(words), sample, 1, whitening=0.5),
        "sif-whitened-1": fit_components(sif(words, counted.counts), sample, 1, whitening=0.5),
        "usif": usif(words, counted.counts, counted.mean_length, 0),
        "usif-5": usif(words, counted.counts, counted.mean_length, 5, sample),
        "all-but-the-top": all_but_the_top(words),
        "random-projection": random_projection(words, hidden_size, seed),
        "random-projection-1": random_projection(words, hidden_size, seed, 1, sample),
        "random-gru": random_gru(words, hidden_size, seed),
        "random-gru-1": random_gru(words, hidden_size, seed, 1, sample),
    }


@dataclass(frozen=True)
class WordStatistics:
    """What a corpus says about the words of a table.

    Attributes:
        counts: Occurrences, one per row of the table; row 0 stands for all unknown words.
        sentences_with: Number of sentences in which each occurs.
        n_sentences: Number of sentences.
    """

    counts: np.ndarray
    sentences_with: np.ndarray
    n_sentences: int

    @property
    def mean_length(self) -> float:
        """Mean number of words in a sentence, unknown ones included."""
        return float(self.counts.sum() / max(self.n_sentences, 1))


def count_words(words: FastTextEmbedding, sentences: Sequence[str]) -> WordStatistics:
    """Count the words of a corpus.

    Example:
        >>> words = FastTextEmbedding((["good", "morning"], np.eye(2)))
        >>> counted = count_words(words, ["Good good morning", "Good evening"])
        >>> counted.counts.tolist(), counted.sentences_with.tolist()
        ([1, 3, 1], [1, 2, 1])
    """
    size = words.vocab_size
    counts, sentences_with = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    with progress_bar(total=len(sentences), desc="counting words", unit="sentences") as bar:
        for start in range(0, len(sentences), _SENTENCES_PER_CHUNK):
            chunk = sentences[start : start + _SENTENCES_PER_CHUNK]
            features = words.preprocess(chunk)
            ids = features["input_ids"].clamp(min=0)
            counts += np.bincount(ids.numpy(), minlength=size)
            in_sentence = torch.unique(sentence_index(features["sentence_lengths"]) * size + ids) % size
            sentences_with += np.bincount(in_sentence.numpy(), minlength=size)
            bar.update(len(chunk))
    return WordStatistics(counts, sentences_with, len(sentences))


def word_embedding(vectors: Vectors) -> FastTextEmbedding:
    """The first module for these vectors, with subwords for unknown words where the vectors have them."""
    if isinstance(vectors, FastTextEmbedding):
        return vectors
    if isinstance(vectors, (str, Path)):
        vectors = load_vectors(vectors)
    has_subwords = isinstance(vectors, WordVectors) and vectors.subwords is not None
    return FastTextEmbedding(vectors, oov="subword" if has_subwords else "zero")


def assemble(
    words: FastTextEmbedding, view: View, n_components: int = 0, fit_sentences: Sequence[str] | None = None
) -> SentenceTransformer:
    """Make a model of one view that removes nothing in training, and components at inference if they are given.

    Args:
        words: First module; models may share it.
        view: The view.
        n_components: Number of components of sentences to remove.
        fit_sentences: Sentences to estimate them on.
    """
    from sentence_transformers import SentenceTransformer

    removal = PCRemoval({view.name: view.widths}, n_components, iterations=0)
    ensemble = ViewEnsemble([view.name], view.widths["similarity"])
    model = SentenceTransformer(modules=[words, view, removal, ensemble], similarity_fn_name="cosine")
    if n_components and fit_sentences is not None:
        fit_components(model, fit_sentences, n_components, max_sentences=SENTENCES_FOR_COMPONENTS)
    return model


def _weighted_average(
    words: FastTextEmbedding, weights: np.ndarray | None, n_components: int, fit_sentences: Sequence[str] | None
) -> SentenceTransformer:
    """The linear view with W = 1 and, if they are given, fixed weights."""
    width = words.embedding_dimension
    if weights is None:
        view = LinearMeanView(width, width)
    else:
        # Row 0 counts all unknown words together. Where they have vectors, each of them is a rare word.
        weights = np.concatenate([weights[1:].max(keepdims=True), weights[1:]])
        view = LinearMeanView(width, width, "linear", "fixed", words.vocab_size, weights)
    torch.nn.init.eye_(view.linear.weight)
    view.linear.weight.requires_grad_(False)
    return assemble(words, view, n_components, fit_sentences)


def _usif_weights(
    words: FastTextEmbedding, word_counts: dict[str, int] | np.ndarray, sentence_length: float
) -> np.ndarray:
    frequency = 1 / words.word_weights(word_counts, a=1.0) - 1  # 1 / (1 + p) solved for p
    seen = frequency[1:][frequency[1:] > 0]
    if len(seen) == 0:
        raise UserError("uSIF needs word counts, and the corpus has none of the words of the table")
    expected_in_a_sentence = 1 - (1 - 1 / len(seen)) ** sentence_length
    share = (seen > expected_in_a_sentence).mean()
    if share == 0:  # a is infinite, as it may be in a few lines of text: all words weigh the same
        return np.full(words.vocab_size, 2.0)
    a = (1 - share) / (share * len(seen) / 2)
    # A word that does not occur is taken for as rare as the rarest that does.
    return a / (a / 2 + np.maximum(frequency, seen.min()))


def _store_shares_of_components(model: SentenceTransformer, sentences: Sequence[str], n_components: int) -> None:
    """Store rows of the length sqrt(lambda_i), of which v - (v C^T) C removes the share lambda_i."""
    fit_components(model, sentences, n_components, max_sentences=len(sentences))
    removal = removal_module(model)
    shares: dict[str, dict[str, torch.Tensor]] = {name: {} for name in removal.widths}
    for representation in REPRESENTATIONS:
        for name, vectors in view_vectors(model, sentences, representation).items():
            rows = removal.components(name, representation)  # (k, width)
            variance = (vectors @ rows.T).square().sum(dim=0)
            shares[name][representation] = rows * (variance / variance.sum()).sqrt().unsqueeze(1)
    removal.store(shares)


def _sample(sentences: Sequence[str], seed: int) -> list[str]:
    if len(sentences) <= SENTENCES_FOR_COMPONENTS:
        return list(sentences)
    chosen = np.random.default_rng(seed).choice(len(sentences), SENTENCES_FOR_COMPONENTS, replace=False)
    return [sentences[int(i)] for i in np.sort(chosen)]
