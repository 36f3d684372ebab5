"""Word vectors as training wants to find them: averages of sentences vary alike in all directions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .components import BATCH_SIZE, top_components, whitening_matrix
from .errors import UserError
from .modules.pc_removal import remove_components

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from .modules import FastTextEmbedding
    from .modules.view import View

_ROWS_AT_ONCE = 100_000


@torch.no_grad()
def whiten_words(model: SentenceTransformer, sentences: Sequence[str]) -> SentenceTransformer:
    """Whiten the word vectors of an untrained model, in place.

    Averages of pretrained vectors vary a lot in a few directions and hardly at all in most others, and a short
    training does not get far from that. Here the vectors are mapped so that averages of these sentences, with the
    word weights of the views if they have any, lose what all of them share and vary alike in all directions. Training
    then only has to learn which directions count more. Known words and n-grams are mapped alike, and the mean length
    of the vectors stays as it is.

    Args:
        model: A model made by `build_model`, not yet trained.
        sentences: A sample of the corpus, some thousand sentences.

    Returns:
        The same model.

    Example:
        >>> import numpy as np
        >>> from mv_st import build_model
        >>> words = ["red", "green", "blue", "sky", "grass"]
        >>> model = build_model((words, np.random.default_rng(0).normal(size=(5, 3))), hidden_size=3, seed=0)
        >>> model = whiten_words(model, ["red sky", "green grass", "blue sky", "red grass"] * 20)
        >>> model[0].vectors.shape
        torch.Size([6, 3])
    """
    from .modules import FastTextEmbedding
    from .modules.view import View

    words = model[0]
    if not isinstance(words, FastTextEmbedding):
        raise UserError("only the word vectors of an mv_st model can be whitened")
    if len(sentences) == 0:
        raise UserError("no sentences given to whiten word vectors by")
    weighing = next((view for view in model if isinstance(view, View)), None)
    means = _sentence_means(words, weighing, sentences)
    component = top_components(means, 1)
    scaling = whitening_matrix(remove_components(means, component), 0.5).to(means)
    mapping = scaling - component.T @ (component @ scaling)  # remove the component, then scale
    length = _mean_length(words.vectors)
    tables = [words.vectors] if words.oov == "zero" else [words.vectors, words.subword_vectors]
    for table in tables:
        for rows in table.split(_ROWS_AT_ONCE):
            rows.copy_(rows.to(mapping) @ mapping)
    factor = length / _mean_length(words.vectors).clamp(min=1e-30)
    for table in tables:
        table.mul_(factor)
    return model


def _sentence_means(words: FastTextEmbedding, weighing: View | None, sentences: Sequence[str]) -> Tensor:
    means = []
    for start in range(0, len(sentences), BATCH_SIZE):
        features: dict[str, Any] = words.preprocess(list(sentences[start : start + BATCH_SIZE]))
        batch = words({key: value.to(words.vectors.device) for key, value in features.items()})["words"]
        batch.dtype = torch.float32
        means.append(batch.mean(None if weighing is None else weighing.weights_of(batch)))
    return torch.cat(means)


def _mean_length(table: Tensor) -> Tensor:
    return table[1:].float().norm(dim=1).mean()  # the first row is the unknown word
