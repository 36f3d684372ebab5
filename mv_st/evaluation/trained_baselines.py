"""Baselines that learn from the order of sentences, trained by our trainer on our batches.

| name | model | trained |
| --- | --- | --- |
| `quick-thought-rnn` | Logeswaran and Lee (2018), two bi-directional GRUs | the encoders; word vectors are frozen |
| `quick-thought-bow` | the same with two linear maps of the mean word vector | the encoders; word vectors are frozen |
| `siamese-cbow` | Kenter et al. (2016), mean word vector | the word vectors, from where they start |
| `fastsent` | Hill et al. (2016), sum of word vectors | the word vectors, from where they start |

All are plain SentenceTransformers that remove no components, neither in training nor, unless `fit_components` is
called, afterwards. The losses run in one process.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.trainer_callback import PrinterCallback, TrainerCallback

from mv_st.errors import UserError
from mv_st.loss import neighbours
from mv_st.modules import BiGRUView, FastTextEmbedding, LinearMeanView, PCRemoval
from mv_st.modules.view import View, unit_length
from mv_st.modules.words import Words, sentence_index
from mv_st.presets import Settings
from mv_st.training import MultiViewTrainer, training_arguments
from mv_st.training_callbacks import TimeBudget, TrainingProgress

from .baselines import Vectors, assemble, average, count_words, word_embedding
from .rng import preserved_rng_state

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer

SENTENCES_FOR_COUNTS = 1_000_000


def train_baseline(
    name: str,
    corpus: Dataset | str | Path | Iterable[str | Path],
    vectors: Vectors,
    hidden_size: int = 256,
    *,
    minutes: float | None = None,
    max_steps: int | None = None,
    seed: int = 0,
    batch_size: int = 512,
    learning_rate: float | None = None,
    callbacks: Sequence[TrainerCallback] = (),
) -> SentenceTransformer:
    """Train a baseline.

    Args:
        name: One of `TRAINED_BASELINES`.
        corpus: Ordered text: a dataset with the columns `sentence` and `label`, or what `load_corpus` reads.
        vectors: Word vectors; they are copied where they are trained.
        hidden_size: Units per direction of a Quick-thought encoder; not used by the others.
        minutes: Stop after this time.
        max_steps: Stop after this many batches. Without either limit, one pass over the corpus.
        seed: Seed of weights and batch order.
        batch_size: Consecutive sentences in a batch.
        learning_rate: Of Adam, constant; the one in `TRAINED_BASELINES` if not given.
        callbacks: Told about the training, for example to keep the loss.

    Returns:
        The trained model.

    Example:
        `train_baseline("quick-thought-bow", "books.txt", "glove.vec", minutes=5)`
    """
    if name not in TRAINED_BASELINES:
        raise UserError(f"no baseline {name!r}; choose one of {', '.join(TRAINED_BASELINES)}")
    sentences = _load(corpus)
    words = word_embedding(vectors)
    prepare, usual_rate = TRAINED_BASELINES[name]
    settings = Settings(batch_size=batch_size, learning_rate=learning_rate or usual_rate)
    with preserved_rng_state():  # the trainer seeds the global generators
        torch.manual_seed(seed)
        loss = prepare(words, sentences, hidden_size)
        _run_trainer(loss, sentences, settings, minutes, max_steps, seed, callbacks)
    freeze_word_vectors(loss.model)
    return loss.model.eval()


class QuickThoughtView(View):
    """Two encoders of the same kind, f for a sentence and g for its neighbours.

    As in the original, the vector of a sentence is the concatenation [f; g], which serves similarity and transfer. In
    training the two halves are compared with each other.

    Args:
        embedding_dimension: Width of the word vectors.
        hidden_size: Units per direction of a GRU, half the width of a linear map.
        encoder: `"rnn"`, the last states of a bi-directional GRU, or `"bow"`, a linear map of the mean word vector.
        name: How the view is asked for.
    """

    config_keys = ["embedding_dimension", "hidden_size", "encoder", "name"]

    def __init__(
        self,
        embedding_dimension: int,
        hidden_size: int,
        encoder: Literal["rnn", "bow"],
        name: str = "quick_thought",
    ) -> None:
        super().__init__(name)
        self.embedding_dimension = embedding_dimension
        self.hidden_size = hidden_size
        self.encoder = encoder
        self.f, self.g = (
            BiGRUView(embedding_dimension, hidden_size)
            if encoder == "rnn"
            else LinearMeanView(embedding_dimension, 2 * hidden_size)
            for _ in range(2)
        )

    @property
    def widths(self) -> dict[str, int]:
        """Width of the vector, the same in both representations."""
        return {"similarity": 4 * self.hidden_size, "transfer": 4 * self.hidden_size}

    def training_vector(self, words: Words) -> Tensor:
        """[f; g]."""
        return torch.cat([self.f.training_vector(words), self.g.training_vector(words)], dim=1)

    def similarity_vector(self, words: Words) -> Tensor:
        """[f; g], as in training."""
        return self.training_vector(words)

    def transfer_vector(self, words: Words) -> Tensor:
        """[f; g], as in training."""
        return self.training_vector(words)


class NeighbourLoss(nn.Module):
    """What the losses here have in common: sentences of a contiguous batch, and which of them are adjacent.

    Args:
        model: A model with one view, see `assemble`.
    """

    def __init__(self, model: SentenceTransformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        """Compute the loss of one column of consecutive sentences; labels are the documents they belong to."""
        (features,) = sentence_features
        vectors = self._vectors_as_trained(features)
        position = torch.arange(len(vectors), device=vectors.device)
        document = torch.zeros_like(position) if labels is None else labels.to(position)
        return self.batch_loss(vectors, neighbours(document, position, window=1, include_self=False), features)

    def batch_loss(self, vectors: Tensor, adjacent: Tensor, features: dict[str, Tensor]) -> Tensor:
        """The loss of sentence vectors (N, width), given which pairs are adjacent (N, N)."""
        raise NotImplementedError

    def _vectors_as_trained(self, features: dict[str, Tensor]) -> Tensor:
        """The vectors of the only view, before they are normalised."""
        for module in self.model:
            if isinstance(module, PCRemoval):
                break
            features = module(features)
        (vectors,) = features["views"].values()
        return vectors


class QuickThoughtLoss(NeighbourLoss):
    """Quick-thought: of all other sentences in the batch, find the two neighbours.

    With scores f_i . g_j, neither normalised nor with a temperature:

        p_ij = exp(f_i . g_j) / sum over n != i of exp(f_i . g_n)
        loss = - mean over i of the mean over its neighbours j of log p_ij
    """

    def batch_loss(self, vectors: Tensor, adjacent: Tensor, features: dict[str, Tensor]) -> Tensor:
        """The loss of [f; g]."""
        f, g = vectors.chunk(2, dim=1)
        others = ~torch.eye(len(vectors), dtype=torch.bool, device=vectors.device)
        return find_neighbours(f @ g.T, adjacent, others)


class SiameseCBOWLoss(NeighbourLoss):
    """Siamese CBOW: tell the neighbours of a sentence from a few random sentences.

    The same as Quick-thought's with the cosine of the two vectors as score, and with the neighbours and the random
    sentences as candidates. These are drawn from the rest of the batch.

    Args:
        model: A model of the mean word vector.
        n_random: Number of random sentences for each sentence.
    """

    def __init__(self, model: SentenceTransformer, n_random: int = 2) -> None:
        super().__init__(model)
        self.n_random = n_random

    def batch_loss(self, vectors: Tensor, adjacent: Tensor, features: dict[str, Tensor]) -> Tensor:
        """The loss of mean word vectors."""
        vectors = unit_length(vectors)
        return find_neighbours(vectors @ vectors.T, adjacent, adjacent | self.draw_random(adjacent))

    def draw_random(self, adjacent: Tensor) -> Tensor:
        """For each sentence some that are neither itself nor its neighbours, as a mask of shape (N, N)."""
        allowed = ~(adjacent | torch.eye(len(adjacent), dtype=torch.bool, device=adjacent.device))
        lots = torch.rand(adjacent.shape, device=adjacent.device).masked_fill(~allowed, -1.0)
        drawn = lots.topk(min(self.n_random, len(lots)), dim=1).indices
        # A small batch may hold fewer than were asked for.
        return torch.zeros_like(allowed).scatter(1, drawn, True) & allowed


class FastSentLoss(NeighbourLoss):
    """FastSent: the sum of the word vectors of a sentence predicts the words of the two adjacent sentences.

    Each word w has a second vector t_w as a target. The softmax over the vocabulary is replaced by negative sampling,
    with random words that the sentences of a batch share. For a sentence with the sum s and a word w next to it:

        - log sigmoid(s . t_w) - n_negatives x mean over random words r of log sigmoid(- s . t_r)

    The loss is the mean over all such pairs. Unknown words are neither predicted nor drawn.

    Args:
        model: A model of the mean word vector.
        word_counts: Occurrences of words, one per row of the table; random words are drawn in proportion to their
            power of 3/4, as in word2vec.
        n_negatives: Weight of the random words against one right word.
        n_drawn: Number of random words in a batch.
    """

    noise: Tensor

    def __init__(
        self, model: SentenceTransformer, word_counts: np.ndarray, n_negatives: int = 5, n_drawn: int = 1024
    ) -> None:
        super().__init__(model)
        self.n_negatives = n_negatives
        self.n_drawn = n_drawn
        words: Any = model[0]
        self.targets = nn.Parameter(torch.zeros(words.vectors.shape))
        noise = torch.as_tensor(word_counts, dtype=torch.float32) ** 0.75
        noise[0] = 0.0
        self.register_buffer("noise", noise)

    def batch_loss(self, vectors: Tensor, adjacent: Tensor, features: dict[str, Tensor]) -> Tensor:
        """The loss of mean word vectors, which the lengths of the sentences turn into sums."""
        lengths = features["sentence_lengths"]
        sums = vectors * lengths.unsqueeze(1)
        words = features["input_ids"].clamp(min=0)
        home = sentence_index(lengths)  # (T,) sentence of each word
        targets = F.embedding(words, self.targets)
        right = n_predicted = sums.new_zeros(())
        for step in (-1, 1):
            source = (home + step).clamp(0, len(sums) - 1)
            predicted = adjacent[source, home] & (words > 0)
            scores = (sums[source[predicted]] * targets[predicted]).sum(dim=1)
            right = right + F.logsigmoid(scores).sum()
            n_predicted = n_predicted + torch.bincount(source[predicted], minlength=len(sums))  # (N,)
        random_targets = F.embedding(self.draw_random(), self.targets)
        wrong = F.logsigmoid(-sums @ random_targets.T).mean(dim=1)  # (N,)
        total = right + self.n_negatives * (wrong * n_predicted).sum()
        return -total / n_predicted.sum().clamp(min=1)

    def draw_random(self) -> Tensor:
        """Random words, shape (n_drawn,)."""
        return torch.multinomial(self.noise, self.n_drawn, replacement=True)


def find_neighbours(scores: Tensor, adjacent: Tensor, candidates: Tensor) -> Tensor:
    """Mean cross-entropy of finding the neighbours of a sentence among candidates; without neighbours it counts not.

    Args:
        scores: Shape (N, N), row i for sentence i.
        adjacent: Mask of the neighbours.
        candidates: Mask of the sentences that the softmax runs over, neighbours included.
    """
    log_p = scores.masked_fill(~candidates, -torch.inf).log_softmax(dim=1)
    count = adjacent.sum(dim=1)
    by_sentence = -log_p.masked_fill(~adjacent, 0.0).sum(dim=1) / count.clamp(min=1)
    return by_sentence.sum() / (count > 0).sum().clamp(min=1)


def thaw_word_vectors(words: FastTextEmbedding) -> FastTextEmbedding:
    """A copy of the first module whose word vectors are trained. The unknown word stays zero, subwords stay frozen."""
    words = copy.deepcopy(words)
    table = nn.Parameter(words.vectors.float())
    table.register_post_accumulate_grad_hook(_forget_gradient_of_unknown_word)
    del words.vectors
    words.vectors = table
    return words


def freeze_word_vectors(model: SentenceTransformer) -> None:
    """Make the word vectors of a model a buffer again, in place."""
    words: Any = model[0]
    table = words.vectors.detach()
    del words.vectors
    words.register_buffer("vectors", table)


def _forget_gradient_of_unknown_word(table: Tensor) -> None:
    assert table.grad is not None
    table.grad[0].zero_()


def _quick_thought(encoder: Literal["rnn", "bow"]) -> Callable[..., NeighbourLoss]:
    def prepare(words: FastTextEmbedding, sentences: Dataset, hidden_size: int) -> NeighbourLoss:
        return QuickThoughtLoss(assemble(words, QuickThoughtView(words.embedding_dimension, hidden_size, encoder)))

    return prepare


def _siamese_cbow(words: FastTextEmbedding, sentences: Dataset, hidden_size: int) -> NeighbourLoss:
    return SiameseCBOWLoss(average(thaw_word_vectors(words)))


def _fastsent(words: FastTextEmbedding, sentences: Dataset, hidden_size: int) -> NeighbourLoss:
    sample = sentences.select(range(min(len(sentences), SENTENCES_FOR_COUNTS)))
    counts = count_words(words, sample["sentence"]).counts
    return FastSentLoss(average(thaw_word_vectors(words)), counts)


TRAINED_BASELINES: dict[str, tuple[Callable[..., NeighbourLoss], float]] = {
    "quick-thought-rnn": (_quick_thought("rnn"), 5e-4),
    "quick-thought-bow": (_quick_thought("bow"), 5e-4),
    "siamese-cbow": (_siamese_cbow, 5e-4),
    "fastsent": (_fastsent, 2e-3),
}
"""For each baseline what prepares its loss, which holds the model, and the learning rate."""


def _load(corpus: Dataset | str | Path | Iterable[str | Path]) -> Dataset:
    from datasets import Dataset

    from mv_st.corpus import load_corpus

    return corpus if isinstance(corpus, Dataset) else load_corpus(corpus)


def _run_trainer(
    loss: NeighbourLoss,
    sentences: Dataset,
    settings: Settings,
    minutes: float | None,
    max_steps: int | None,
    seed: int,
    callbacks: Sequence[TrainerCallback],
) -> None:
    budget = None if minutes is None else TimeBudget(minutes)
    model = loss.model
    with tempfile.TemporaryDirectory() as folder:
        arguments = training_arguments(
            folder,
            settings,
            seed=seed,
            max_steps=max_steps or -1,
            # A time limit alone: enough passes for the clock to be what ends the run.
            num_train_epochs=1 if minutes is None else 100_000,
            save_strategy="no",
        )
        trainer = MultiViewTrainer(
            model=model,
            args=arguments,
            train_dataset=sentences,
            loss=loss,
            callbacks=[TrainingProgress(settings.batch_size, budget), *([budget] if budget else []), *callbacks],
        )
        trainer.remove_callback(PrinterCallback)
        inference_length = model.max_seq_length
        model.max_seq_length = settings.max_train_length
        try:
            trainer.train()
        finally:
            model.max_seq_length = inference_length
