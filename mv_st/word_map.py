"""The head start: a linear view learns by itself, and its map becomes part of the word vectors."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from .errors import UserError
from .loss import MultiViewLoss
from .modules import FastTextEmbedding, LinearMeanView
from .progress import progress_bar
from .sampler import ContiguousBatchSampler

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer

    from .presets import Settings

LEARNING_RATE = 5e-4
MOST_EPOCHS = 4
"""Passes over a small corpus in the head start, however many steps it may have."""


def learn_word_map(
    model: SentenceTransformer,
    sentences: Dataset,
    settings: Settings,
    *,
    seed: int = 0,
    seconds: float | None = None,
) -> int:
    """Train a model of one linear view, and replace its word vectors, in place, by what its map makes of them.

    A step takes a tenth of the time of a step with a GRU. After a thousand or two the view is nearly as good as it
    gets. Views that start with a rotation of the new vectors are as good before they have seen a sentence, and what is
    left for the training of all views together is what the order of words tells. The map may be narrower than what it
    reads: words that are described by many numbers, see `add_spelling_codes`, take no more room and time than others.

    A plain loop: this happens while a model is built, in one process, and the stock trainer would wait for the others.

    Args:
        model: A model made by `build_model` with one linear view. The new vectors are as wide as its vectors; the view
            is of no use afterwards.
        sentences: The corpus, see `load_corpus`.
        settings: Those of the training that follows; `linear_first` is the number of steps.
        seed: Seed of the order of batches.
        seconds: Stop after this time.

    Returns:
        The number of steps.
    """
    words, view = model[0], model[1]
    if not isinstance(words, FastTextEmbedding) or not isinstance(view, LinearMeanView):
        raise UserError("a map of words is learnt by a model with one linear view")
    steps = min(settings.linear_first, MOST_EPOCHS * (len(sentences) // settings.batch_size))
    loss = MultiViewLoss(model, window=settings.window, include_self=settings.include_self, blocks=settings.blocks)
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.Adam(weights, lr=LEARNING_RATE)
    end = None if seconds is None else time.monotonic() + seconds
    done = 0
    batches = itertools.islice(_batches(sentences, settings, seed), steps)
    model.train()
    for batch in progress_bar(batches, desc="word map", unit="steps", total=steps):
        features: dict[str, Any] = words.preprocess(batch["sentence"], max_length=settings.max_train_length)
        features = {name: tensor.to(model.device) for name, tensor in features.items()}
        optimizer.zero_grad()
        labels = torch.tensor(batch["label"]) if "label" in batch else None
        loss([features], labels).backward()
        torch.nn.utils.clip_grad_norm_(weights, settings.clip_norm)
        optimizer.step()
        done += 1
        if end is not None and time.monotonic() > end:
            break
    words.map_vectors(view.linear.weight.detach().T)
    return done


def _batches(sentences: Dataset, settings: Settings, seed: int) -> Iterator[dict[str, list[Any]]]:
    """Batches without end, in another order in each epoch."""
    sampler = ContiguousBatchSampler(sentences, settings.batch_size, seed=seed, blocks=settings.blocks)
    for epoch in itertools.count():
        sampler.set_epoch(epoch)
        for rows in sampler:
            yield sentences[rows]
