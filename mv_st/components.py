"""Estimation of the principal components that a model removes at inference."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from .errors import UserError
from .modules.pc_removal import remove_components
from .progress import progress_bar

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from .modules import PCRemoval

logger = logging.getLogger(__name__)

BATCH_SIZE = 256
SENTENCES_PER_COMPONENT = 10
"""How many sentences it takes to trust the variance along one more component."""
ADAPTATION = 0.3
"""Power of the variance by which components are scaled once more for sentences that a model is adapted to."""
NEARLY_THE_SAME = 0.65
"""Cosine above which two sentences that a model is adapted to count as one."""
SMALLEST_VARIANCE = 1e-3
"""Relative to the mean variance: weaker components are noise, and not to be made as loud as the others."""


def fit_components(
    model: SentenceTransformer,
    sentences: Sequence[str],
    n_components: int = 1,
    *,
    whitening: float | None = None,
    max_sentences: int = 20_000,
    representations: Sequence[str] = ("similarity", "transfer"),
    seed: int = 0,
    show_progress: bool = False,
) -> SentenceTransformer:
    """Estimate the top principal components of each view and store them in the model.

    Done at the end of training on a sample of the corpus. Done again, it replaces what is stored; to add what is
    particular to one's own sentences, see `adapt_components`.

    Args:
        model: A model with a PCRemoval module; changed in place.
        sentences: Sentences like those that the model is going to encode.
        n_components: Number of components to remove; 0 removes none.
        whitening: Beyond the paper: also scale what remains by its variance to the power of minus this, from 0 (not at
            all) to 0.5 (equal variance along all components). Left out, it stays as it is in the model.
        max_sentences: Use a random sample of this size if there are more.
        representations: Which representations to fit; both, unless you know that one is not needed. Changing
            `n_components` needs both.
        seed: Seed of the sample.
        show_progress: Show a progress bar.

    Returns:
        The same model.

    Example:
        >>> from mv_st import build_model
        >>> words = ["red", "green", "blue", "sky", "grass"]
        >>> model = build_model((words, np.random.default_rng(0).normal(size=(5, 4))), hidden_size=3, seed=0)
        >>> model = fit_components(model, ["red sky", "green grass", "blue sky", "red grass"])
        >>> bool(model[3].components("linear").norm() > 0.99)
        True
    """
    removal = removal_module(model)
    if n_components < 0:
        raise UserError(f"n_components must be 0 or more, not {n_components}")
    whitening = removal.whitening if whitening is None else whitening
    if not 0 <= whitening <= 0.5:
        raise UserError(f"whitening must be between 0 and 0.5, not {whitening}")
    sentences = _sample(sentences, max_sentences, seed)
    components: dict[str, dict[str, Tensor]] = {name: {} for name in removal.widths}
    matrices: dict[str, Tensor] = {}
    words: Any = model[0]
    for representation in representations:
        for name, vectors in view_vectors(model, sentences, representation, show_progress=show_progress).items():
            components[name][representation] = top_components(vectors, n_components)
            if whitening and representation == "similarity":
                remaining = remove_components(vectors, components[name][representation])
                # A GRU wider than its word vectors adds no directions of meaning to theirs.
                matrices[name] = whitening_matrix(remaining, whitening, words.embedding_dimension)
    removal.store(components)
    if "similarity" in representations:
        removal.store_whitening(whitening, matrices)
    return model


def adapt_components(
    model: SentenceTransformer,
    sentences: Sequence[str],
    *,
    strength: float = ADAPTATION,
    max_sentences: int = 10_000,
    seed: int = 0,
    show_progress: bool = False,
) -> SentenceTransformer:
    """Adapt a model to sentences like those that it is going to encode: no labels, no training, a few seconds.

    What the sentences of one domain have in common tells them apart from others, not from each other. Along the
    directions in which these sentences vary a lot, vectors are scaled down; the components and scales that the model
    has stored stay in place below that, so that a few hundred sentences are enough. Sentences that are nearly the same
    count as one: a form letter that is there a thousand times, or many captions of one picture, would otherwise look
    like what all have in common. Similarities change, transfer features do not.

    Args:
        model: A model with a PCRemoval module; changed in place.
        sentences: Sentences of the domain.
        strength: Power of the variance to scale by, 0 (no change) to 0.5 (equal variance).
        max_sentences: Use a random sample of this size if there are more; each is compared with all others.
        seed: Seed of the sample.
        show_progress: Show a progress bar.

    Returns:
        The same model.

    Example:
        >>> from mv_st import build_model
        >>> words = ["red", "green", "blue", "sky", "grass"]
        >>> model = build_model((words, np.random.default_rng(0).normal(size=(5, 4))), hidden_size=3, seed=0)
        >>> colours = ["red sky", "green grass", "blue sky", "red grass", "green sky", "blue grass"] * 10
        >>> model = adapt_components(model, colours)
        >>> model[3].whitening_matrix("linear").shape
        torch.Size([6, 6])
    """
    if not 0 <= strength <= 0.5:
        raise UserError(f"strength must be between 0 and 0.5, not {strength}")
    if strength == 0:
        return model
    if len(sentences) < 2 * SENTENCES_PER_COMPONENT:
        logger.warning("%d sentences change nothing; it takes a few hundred to adapt a model", len(sentences))
    removal = removal_module(model)
    vectors_of = view_vectors(model, _sample(sentences, max_sentences, seed), show_progress=show_progress)
    matrices = {}
    for name, vectors in vectors_of.items():
        own = adaptation_matrix(removal.clean(vectors, name), strength).to(vectors.device)
        stored = removal.whitening_matrix(name)
        matrices[name] = own if stored is None else stored.to(own.dtype) @ own
    removal.store_whitening(removal.whitening or strength, matrices)
    model._model_card_text = None  # its results are not those of the adapted model
    return model


def adaptation_matrix(vectors: Tensor, strength: float = ADAPTATION) -> Tensor:
    """The matrix that adapts the cleaned vectors of a view to the sentences that these are, shape (D, D)."""
    return whitening_matrix(vectors, strength, counts=1 / sentences_alike(vectors))


def sentences_alike(vectors: Tensor) -> Tensor:
    """How many of these sentences are nearly the same as each, with itself.

    Args:
        vectors: Shape (N, D).

    Returns:
        Shape (N,).

    Example:
        >>> sentences_alike(torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])).tolist()
        [2.0, 2.0, 1.0]
    """
    from .modules.view import unit_length

    directions = unit_length(vectors)
    alike = [
        (directions[start : start + BATCH_SIZE] @ directions.T > NEARLY_THE_SAME).sum(dim=1)
        for start in range(0, len(directions), BATCH_SIZE)
    ]
    return torch.cat(alike).clamp(min=1).to(vectors)  # a zero vector is not even like itself


def whitening_matrix(
    vectors: Tensor, power: float, most_components: int | None = None, counts: Tensor | None = None
) -> Tensor:
    """The symmetric matrix that scales vectors along their principal components by variance ** -power.

    Few sentences say little of the weak components: only the first tenth as many as there are sentences are scaled on
    their own, all others like the last of these.

    Args:
        vectors: Shape (N, D).
        power: 0.5 makes the variance equal along all components.
        most_components: Scale at most so many components on their own, however many sentences there are.
        counts: As how many sentences each counts, shape (N,); as one if left out.

    Returns:
        Shape (D, D); its largest eigenvalue is 1.
    """
    vectors = vectors.double()
    counts = torch.ones_like(vectors[:, 0]) if counts is None else counts.double()
    number = counts.sum()
    variances, directions = torch.linalg.eigh((vectors.T * counts) @ vectors / number)  # ascending
    trusted = max(round(float(number)) // SENTENCES_PER_COMPONENT, 1)
    trusted = min(trusted, most_components or len(variances), len(variances))
    smallest = torch.maximum(variances[-trusted], SMALLEST_VARIANCE * variances.mean()).clamp(min=1e-30)
    scales = (variances.clamp(min=smallest) / smallest) ** -power
    return ((directions * scales) @ directions.T).float()


def encode_transductive(
    model: SentenceTransformer,
    sentences: Sequence[str],
    n_components: int = 1,
    representation: str = "similarity",
    view: str | None = None,
) -> np.ndarray:
    """Encode sentences with components fitted on these very sentences, as the paper's evaluation does.

    The stored components are neither used nor changed.

    Args:
        model: A model with a PCRemoval module.
        sentences: The sentences to fit on and to encode.
        n_components: Number of components to remove.
        representation: `"similarity"` or `"transfer"`.
        view: One view alone.

    Returns:
        One row per sentence.
    """
    views = view_vectors(model, sentences, representation, view=view)
    return _combine(
        {name: remove_components(vectors, top_components(vectors, n_components)) for name, vectors in views.items()},
        representation,
    )


def encode_adapted(
    model: SentenceTransformer, sentences: Sequence[str], representation: str = "similarity", view: str | None = None
) -> np.ndarray:
    """Encode sentences with a model that is adapted to these very sentences, as `adapt_components` does.

    The model is not changed.

    Args:
        model: A model with a PCRemoval module.
        sentences: The sentences to adapt to and to encode.
        representation: `"similarity"` or `"transfer"`, which adaptation leaves alone.
        view: One view alone.

    Returns:
        One row per sentence.
    """
    removal = removal_module(model)
    views = view_vectors(model, sentences, representation, view=view)
    views = {name: removal.clean(vectors, name, representation) for name, vectors in views.items()}
    if representation == "similarity":
        views = {name: vectors @ adaptation_matrix(vectors).to(vectors) for name, vectors in views.items()}
    return _combine(views, representation)


def _combine(views: dict[str, Tensor], representation: str) -> np.ndarray:
    """What the ensemble makes of cleaned views: the sum of unit vectors, or for transfer all of them side by side."""
    from .modules.view import unit_length

    normalized = [unit_length(vectors) for vectors in views.values()]
    combined = torch.cat(normalized, dim=1) if representation == "transfer" else torch.stack(normalized).sum(dim=0)
    return combined.float().cpu().numpy()


@torch.inference_mode()
def view_vectors(
    model: SentenceTransformer,
    sentences: Sequence[str],
    representation: str = "similarity",
    view: str | None = None,
    show_progress: bool = False,
) -> dict[str, Tensor]:
    """The vectors of each view before components are removed.

    Args:
        model: A model with a PCRemoval module.
        sentences: The sentences.
        representation: `"similarity"` or `"transfer"`.
        view: One view alone.
        show_progress: Show a progress bar.

    Returns:
        For each view an array of shape (sentences, width), in the order of the sentences.
    """
    from .modules.fasttext_embedding import check_texts

    removal = removal_module(model)
    if view is not None and view not in removal.widths:
        raise UserError(f"this model has no view {view!r}; its views are {', '.join(removal.widths)}")
    if len(sentences) == 0:
        raise UserError("no sentences given to estimate principal components from")
    check_texts(sentences)
    sentences = list(sentences)
    # Sentences of like length side by side: the batches then differ in length and not within themselves.
    order = np.argsort([len(sentence) for sentence in sentences], kind="stable")
    batches = [order[start : start + BATCH_SIZE] for start in range(0, len(order), BATCH_SIZE)]
    parts: dict[str, list[Tensor]] = {name: [] for name in removal.widths if view in (None, name)}
    input_module: Any = model[0]
    was_training = model.training
    model.eval()
    try:
        for batch in progress_bar(batches, desc="encoding", unit="batches") if show_progress else batches:
            features = input_module.preprocess([sentences[i] for i in batch])
            features = {key: value.to(model.device) for key, value in features.items()}
            for module in model:
                if module is removal:
                    break
                features = module(features, view=view, representation=representation)
            for name, vectors in features["views"].items():
                parts[name].append(vectors)
    finally:
        model.train(was_training)
    back = torch.from_numpy(np.argsort(order)).to(model.device)
    return {name: torch.cat(vectors)[back] for name, vectors in parts.items()}


def top_components(vectors: Tensor, n_components: int, tolerance: float = 1e-5, max_iterations: int = 300) -> Tensor:
    """The first principal components of uncentred vectors, as orthonormal rows.

    Subspace iteration on the vectors themselves: no matrix of width x width is formed, which for transfer features
    would be large.

    Args:
        vectors: Shape (N, D).
        n_components: How many.
        tolerance: Stop when no component turns by more than this angle in one step.
        max_iterations: Stop then at the latest.

    Returns:
        Shape (n_components, D); rows are zero where the vectors have fewer dimensions than that.
    """
    width = vectors.shape[1]
    rank = min(n_components, *vectors.shape)
    result = vectors.new_zeros(n_components, width)
    if rank == 0:
        return result
    vectors = vectors.float()
    block = min(rank + 4, *vectors.shape)  # a few spare directions speed up convergence
    start = torch.Generator().manual_seed(0)
    basis = torch.randn(width, block, generator=start).to(vectors)
    basis = torch.linalg.qr(basis).Q
    for _ in range(max_iterations):
        previous = basis[:, :rank]
        left = torch.linalg.qr(vectors @ basis).Q  # (N, block)
        # The SVD of the small projected matrix turns the basis towards the single components, largest first.
        rotation, sizes, _ = torch.linalg.svd(vectors.T @ left, full_matrices=False)
        basis = rotation
        # The length of the difference, because the cosine of a small angle is rounded to 1. Signs are arbitrary.
        current = basis[:, :rank] * (previous * basis[:, :rank]).sum(dim=0).sign()
        if (current - previous).norm(dim=0).max() < tolerance:
            break
    components = basis[:, :rank].T
    result[:rank] = torch.where((sizes[:rank] > 1e-6 * sizes[0].clamp(min=1e-30)).unsqueeze(1), components, 0.0)
    return result


def removal_module(model: SentenceTransformer) -> PCRemoval:
    """Find the module that removes principal components."""
    from .modules import PCRemoval

    for module in model:
        if isinstance(module, PCRemoval):
            return module
    raise UserError("this model has no PCRemoval module; components can only be fitted on mv_st models")


def _sample(sentences: Sequence[str], max_sentences: int, seed: int) -> Sequence[str]:
    if len(sentences) <= max_sentences:
        return sentences
    chosen = np.random.default_rng(seed).choice(len(sentences), max_sentences, replace=False)
    return [sentences[int(i)] for i in np.sort(chosen)]
