"""`mv-st demo`: a small model from the bundled books, and what it has learnt."""

from __future__ import annotations

import sys
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from .components import top_components
from .corpus import load_corpus
from .encoding import nearest
from .files import check_new_directory
from .modules import FastTextEmbedding
from .modules.pc_removal import remove_components
from .training import train
from .vector_training import train_vectors

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from .vectors import WordVectors

CANDIDATES = 1_000
QUERIES = (
    "The ship sank in the storm.",
    "She was very angry with him.",
    "They had nothing to eat.",
    "Who committed the murder?",
)


def run_demo(
    output: str | Path = "demo-model", minutes: float = 1.0, seed: int = 0, corpus: str | Path | None = None
) -> SentenceTransformer:
    """Train on the bundled books and print what came of it.

    Args:
        output: Folder of the model; an earlier model there is replaced.
        minutes: Time for training the two views.
        seed: Seed of weights and batch order.
        corpus: Other text to train on, see `load_corpus`.

    Returns:
        The model.
    """
    check_new_directory(output, overwrite=(Path(output) / "training.json").exists())
    with as_file(files("mv_st") / "data" / "books.txt.xz") as books:
        sentences = load_corpus(corpus or books)
    # The last sentences are kept out of training: what the model does with them is what it has learnt.
    candidates = min(CANDIDATES, len(sentences) // 5)
    seen = sentences.select(range(len(sentences) - candidates))
    unseen = list(sentences.select(range(len(seen), len(sentences)))["sentence"])

    _say(f"1. word vectors from {len(seen):,} sentences (fastText)")
    vectors = train_vectors(seen, dim=100, epochs=3)
    _say(f"2. two views, {minutes:g} minutes")
    model = train(
        seen,
        output,
        vectors=vectors,
        preset="small",
        hidden_size=128,
        spelling_codes=150,
        minutes=minutes,
        seed=seed,
        overwrite=True,
    )
    _say("3. what it learnt")
    for query, matches in zip(QUERIES, nearest(model, list(seen["sentence"]), QUERIES, top=3), strict=True):
        print(f"\n{query}")
        for score, sentence in matches:
            print(f"  {score:.2f}  {sentence}")

    print(f"\nHow often one of {candidates:,} unseen sentences finds the sentence that follows it among the others:")
    trained = neighbour_recall(model.encode(unseen, show_progress_bar=False))
    averaged = neighbour_recall(averaged_vectors(vectors, unseen))
    print("                          first    in the first ten")
    print(f"  averaged word vectors   {averaged[0]:5.1%}    {averaged[1]:5.1%}")
    print(f"  the trained model       {trained[0]:5.1%}    {trained[1]:5.1%}")
    picture = Path(output) / "training.png"
    curves = f"; its curves are in {picture}" if picture.exists() else ""
    print(f"\nThe model is in {output}{curves}.")
    print(f'Try: mv-st similar {output} FILE --query "..."')
    return model


def neighbour_recall(vectors: np.ndarray) -> tuple[float, float]:
    """How often the nearest, and the ten nearest, of all other sentences contain the one that follows.

    Example:
        >>> neighbour_recall(np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]]))
        (0.6666666666666666, 1.0)
    """
    vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    similarity = vectors @ vectors.T
    np.fill_diagonal(similarity, -np.inf)
    rows = np.arange(len(vectors) - 1)
    # How many sentences are nearer than the one that follows.
    nearer = (similarity[rows] > similarity[rows, rows + 1][:, None]).sum(axis=1)
    return float(np.mean(nearer == 0)), float(np.mean(nearer < 10))


@torch.no_grad()
def averaged_vectors(vectors: WordVectors, sentences: list[str]) -> np.ndarray:
    """Averages of the word vectors that the model was made of, without their first principal component.

    The component is that of these very sentences, which favours the averages: the model has to do with the one that
    was estimated in training.
    """
    words = FastTextEmbedding(vectors, oov="zero" if vectors.subwords is None else "subword")
    averages = words(words.preprocess(sentences))["words"].mean()
    return remove_components(averages, top_components(averages, 1)).numpy()


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
