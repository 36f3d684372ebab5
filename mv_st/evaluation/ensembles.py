"""Ensembles of views that were trained apart, as in the paper's ablation."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from mv_st.components import removal_module
from mv_st.errors import UserError
from mv_st.modules import FastTextEmbedding, PCRemoval, ViewEnsemble
from mv_st.modules.view import REPRESENTATIONS, View

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def ensemble_of_views(parts: Sequence[tuple[SentenceTransformer, str]]) -> SentenceTransformer:
    """Make one model of views from several models, with the components that each model has stored.

    Args:
        parts: Models on the same word vectors, and from each the name of one view.

    Returns:
        A model whose views have the names that they had, with a number behind a name that occurs twice.

    Example:
        >>> import numpy as np
        >>> from mv_st import build_model
        >>> vectors = (["red", "sky"], np.eye(2, dtype=np.float32))
        >>> models = [build_model(vectors, hidden_size=3, views=(kind,), seed=0) for kind in ("gru", "linear")]
        >>> ensemble_of_views([(models[0], "gru"), (models[1], "linear")]).encode(["red sky"]).shape
        (1, 6)
    """
    from sentence_transformers import SentenceTransformer

    models = [model for model, _ in parts]
    words = _same_words(models)
    removals = [removal_module(model) for model in models]
    if len({(removal.n_components, removal.whitening) for removal in removals}) > 1:
        raise UserError("the models differ in the number of components or in whitening: fit_components on each alike")
    names = [name for _, name in parts]
    new_names = [name if names.count(name) == 1 else f"{name}_{i}" for i, name in enumerate(names, start=1)]
    views = [_renamed(_view(model, name), new) for (model, name), new in zip(parts, new_names, strict=True)]
    first = removals[0]
    removal = PCRemoval({view.name: view.widths for view in views}, first.n_components, first.iterations)
    removal.store(
        {
            new: {representation: source.components(old, representation) for representation in REPRESENTATIONS}
            for source, old, new in zip(removals, names, new_names, strict=True)
        }
    )
    if first.whitening:
        matrices = [source.whitening_matrix(old) for source, old in zip(removals, names, strict=True)]
        removal.store_whitening(first.whitening, dict(zip(new_names, matrices, strict=True)))  # type: ignore[arg-type]
    ensemble = ViewEnsemble(new_names, views[0].widths["similarity"])
    return SentenceTransformer(modules=[words, *views, removal, ensemble], similarity_fn_name="cosine").eval()


def _same_words(models: Sequence[SentenceTransformer]) -> FastTextEmbedding:
    first, *others = [model[0] for model in models]
    if not isinstance(first, FastTextEmbedding):
        raise UserError("only views of mv_st models can be put together")
    for other in others:
        if not isinstance(other, FastTextEmbedding) or not torch.equal(first.vectors, other.vectors):
            raise UserError("the models read different word vectors; their views cannot be put together")
    return first


def _view(model: SentenceTransformer, name: str) -> View:
    views = {module.name: module for module in model if isinstance(module, View)}
    if name not in views:
        raise UserError(f"this model has no view {name!r}; its views are {', '.join(views)}")
    return views[name]


def _renamed(view: View, name: str) -> View:
    view = copy.deepcopy(view)
    view.name = name
    return view
