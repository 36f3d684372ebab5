"""The linear view as one table of word vectors that plain sentence-transformers and model2vec load."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from .errors import UserError
from .files import whole_directory

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from tokenizers import Tokenizer

    from .modules import FastTextEmbedding, LinearMeanView


@torch.inference_mode(False)
@torch.no_grad()
def export_static(
    model: SentenceTransformer, path: str | Path, *, view: str | None = None, overwrite: bool = False
) -> SentenceTransformer:
    """Fold the linear view into a model of stock sentence-transformers modules.

    The mean of W x with stored components removed is the mean of a vector per word, so the whole view becomes one
    table. Anyone loads it with `SentenceTransformer(path)` or with model2vec's `StaticModel.from_pretrained(path)`,
    without mv_st. Its vectors equal `model.encode(sentences, view="linear")` up to rounding, with these exceptions:

    * unknown words: a table cannot compose vectors from subwords; such words are zero vectors in it;
    * odd capitals: where the vocabulary distinguishes case, lower-case words are added as `Word` and `WORD`, but a
      `wOrD` stays unknown;
    * very long text: the table reads all of it, the model stops at `max_seq_length` words.

    Args:
        model: A model with a linear view.
        path: Directory to write.
        view: Name of the view, if there is more than one linear view.
        overwrite: Replace the directory.

    Returns:
        The exported model.
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Normalize
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    from .components import removal_module

    words, linear = _words_and_linear_view(model, view)
    removal = removal_module(model)
    table = linear.linear(words.vectors.to(linear.linear.weight.dtype))
    if linear.word_weights is not None:
        table = table * linear.word_weights.unsqueeze(1)
    table = removal.clean(table, linear.name).float().cpu()
    tokenizer, rows = _with_capitals(words.tokenizer)
    if rows is not None:
        table = table[rows]

    static = SentenceTransformer(
        modules=[StaticEmbedding(tokenizer, embedding_weights=table.clone()), Normalize()],
        similarity_fn_name="cosine",
        device="cpu",
    )
    with whole_directory(path, overwrite=overwrite) as directory:
        static.save_pretrained(str(directory))
        _add_settings_of_model2vec(directory)
    return static


def _add_settings_of_model2vec(directory: Path) -> None:
    """Tell model2vec, which reads this folder but not its list of modules, to normalise and not to cut text."""
    path = directory / "config_sentence_transformers.json"
    config = json.loads(path.read_text(encoding="utf-8")) | {"normalize": True, "max_length": None}
    path.write_text(json.dumps(config, indent=2, sort_keys=True), encoding="utf-8")


def _words_and_linear_view(model: SentenceTransformer, view: str | None) -> tuple[FastTextEmbedding, LinearMeanView]:
    from .modules import FastTextEmbedding, LinearMeanView

    words = model[0]
    views = {module.name: module for module in model if isinstance(module, LinearMeanView)}
    if not isinstance(words, FastTextEmbedding) or not views:
        raise UserError("only an mv_st model with a linear view can become a static model")
    if view is None and len(views) > 1:
        raise UserError(f"this model has several linear views ({', '.join(views)}); say which one with view=")
    if view is not None and view not in views:
        raise UserError(f"this model has no linear view {view!r}; it has {', '.join(views)}")
    return words, views[view or next(iter(views))]


def _with_capitals(tokenizer: Tokenizer) -> tuple[Tokenizer, torch.Tensor | None]:
    """Add capitalised forms of lower-case words where the tokenizer keeps case, and say which rows they stand for."""
    from tokenizers import Tokenizer as TokenizerClass

    from .modules.word_tokenizer import UNKNOWN, build_tokenizer

    vocabulary = tokenizer.get_vocab()
    if tokenizer.normalizer.normalize_str("A") == "a":
        return TokenizerClass.from_str(tokenizer.to_str()), None
    words = sorted((word for word in vocabulary if word != UNKNOWN), key=vocabulary.__getitem__)
    rows = {word: vocabulary[word] for word in words}
    for word in words:
        if word == word.lower():
            for form in (word.capitalize(), word.upper()):
                # "ß".upper() is "SS": a form counts only if it leads back to the word.
                if form.lower() == word:
                    rows.setdefault(form, vocabulary[word])
    return build_tokenizer(list(rows)), torch.tensor([vocabulary[UNKNOWN], *rows.values()])
