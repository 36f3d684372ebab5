"""A model in a few megabytes: fewer words in the table, and their vectors saved as bytes."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch

from .errors import UserError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


@torch.no_grad()
def compact_model(
    model: SentenceTransformer, *, max_vocab: int = 16_000, n_buckets: int = 6_144
) -> SentenceTransformer:
    """Make a small copy of a model, to ship or to keep many of.

    Most of a model is its table of word vectors. The copy keeps the first words, spells the others (see
    `add_spelling`) with a table of character n-grams that is fitted to all words of the model, and saves both tables
    as bytes, all other weights in half precision. In memory they are float32.

    Args:
        model: An mv_st model; it is not changed.
        max_vocab: Words to keep, the first of the table, which are the most frequent ones in most files of vectors.
        n_buckets: Rows of the table of n-grams.

    Returns:
        The copy, which `save_pretrained` writes in few bytes. Loaded and saved once more, only the tables are.

    Example:
        >>> import numpy as np
        >>> from mv_st import build_model
        >>> words = ["red", "green", "blue", "reddish"]
        >>> model = build_model((words, np.random.default_rng(0).normal(size=(4, 8))), hidden_size=2, seed=0)
        >>> compact_model(model, max_vocab=3, n_buckets=16)[0]
        FastTextEmbedding({'oov': 'subword', 'max_seq_length': 512, 'vocab_size': 4, 'embedding_dimension': 8, \
'dtype': 'float32', 'subword_ngrams': [2, 4, 16], 'unknown_length': None, 'saved_as': 'int8'})
    """
    from .modules import FastTextEmbedding
    from .modules.view import View
    from .modules.weights import ModuleWithWeights
    from .modules.word_tokenizer import UNKNOWN_ID
    from .spelling import add_spelling
    from .vectors import WordVectors

    words = model[0]
    if not isinstance(words, FastTextEmbedding):
        raise UserError("only an mv_st model can be made compact")
    if max_vocab < 1:
        raise UserError(f"max_vocab must be at least 1, not {max_vocab}")
    vocabulary = words.tokenizer.get_vocab()
    in_order = sorted((row, word) for word, row in vocabulary.items() if row != UNKNOWN_ID)
    rows = [row for row, _ in in_order]
    whole = WordVectors([word for _, word in in_order], words.vectors[rows].float().cpu().numpy())
    spelled = add_spelling(whole, n_buckets=n_buckets)
    kept = WordVectors(whole.words[:max_vocab], whole.matrix[:max_vocab], spelled.subwords)

    small: Any = copy.deepcopy(model)
    small._model_card_text = None  # it describes the larger model
    small[0] = FastTextEmbedding(kept, oov="subword", max_seq_length=words.max_seq_length)
    small[0].save_in_bytes()
    if words.unknown_length is not None:
        small[0].scale_unknown_words()
    small[0].to(model.device)
    table_rows = torch.tensor([UNKNOWN_ID, *rows[:max_vocab]])
    for module in small:
        if isinstance(module, ModuleWithWeights):
            module.save_in_half()
        if isinstance(module, View) and module.word_weights is not None:
            module.word_weights.data = module.word_weights.data[table_rows.to(module.word_weights.device)]
            module.vocab_size = len(table_rows)
    return small
