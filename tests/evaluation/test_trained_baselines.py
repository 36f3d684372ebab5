"""Losses of the trained baselines against the same written as loops, and training that learns what it should."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from torch import Tensor

from mv_st.errors import UserError
from mv_st.evaluation.baselines import assemble, average, word_embedding
from mv_st.evaluation.trained_baselines import (
    TRAINED_BASELINES,
    FastSentLoss,
    QuickThoughtLoss,
    QuickThoughtView,
    SiameseCBOWLoss,
    freeze_word_vectors,
    thaw_word_vectors,
    train_baseline,
)
from mv_st.vectors import WordVectors

N_TOPICS = 8
WORDS = [f"t{topic}x{i}" for topic in range(N_TOPICS) for i in range(10)]
SENTENCES = ["t1x1 t2x2 t1x1", "t3x3 unknown", "t2x1 t2x2 t4x1 t5x5", "t7x1 t7x2", "t0x0 t1x1 !", "t6x1", "t2x2 t3x3"]
DOCUMENTS = [0, 0, 0, 1, 2, 2, 2]
ADJACENT = {0: [1], 1: [0, 2], 2: [1], 3: [], 4: [5], 5: [4, 6], 6: [5]}


def word_vectors(dim: int, scale: float = 1.0) -> WordVectors:
    matrix = np.random.default_rng(0).normal(scale=scale, size=(len(WORDS), dim))
    return WordVectors(WORDS, matrix.astype(np.float32))


@pytest.fixture
def vectors() -> WordVectors:
    return word_vectors(12)


@pytest.fixture(scope="module")
def corpus() -> Dataset:
    """Documents of one topic each; words of a topic have nothing in common but that they occur together."""
    chance = random.Random(0)
    rows: dict[str, list[Any]] = {"sentence": [], "label": []}
    for document in range(160):
        topic = chance.randrange(N_TOPICS)
        for _ in range(8):
            rows["sentence"].append(" ".join(f"t{topic}x{chance.randrange(10)}" for _ in range(4)))
            rows["label"].append(document)
    return Dataset.from_dict(rows)


def compute(loss: torch.nn.Module, sentences: list[str] = SENTENCES, documents: list[int] = DOCUMENTS) -> Tensor:
    model = loss.model
    model.train()
    return loss([model.preprocess(sentences)], torch.tensor(documents))


def quick_thought(vectors: WordVectors, encoder: Any) -> SentenceTransformer:
    torch.manual_seed(0)
    return assemble(word_embedding(vectors), QuickThoughtView(vectors.dim, 3, encoder))


def dot(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def literal_loss(score: Any, candidates: dict[int, list[int]]) -> float:
    """- mean over sentences with neighbours of the mean over these of log p."""
    terms = []
    for i, near in ADJACENT.items():
        if near:
            total = sum(math.exp(score(i, n)) for n in candidates[i])
            terms.append(-sum(math.log(math.exp(score(i, j)) / total) for j in near) / len(near))
    return sum(terms) / len(terms)


@pytest.mark.parametrize("encoder", ["rnn", "bow"])
def test_quick_thought_loss(vectors: WordVectors, encoder: str) -> None:
    model = quick_thought(vectors, encoder)
    view: Any = model[1]
    words = model[0](model.preprocess(SENTENCES))["words"]
    f, g = view.f.training_vector(words).tolist(), view.g.training_vector(words).tolist()
    others = {i: [n for n in range(len(SENTENCES)) if n != i] for i in ADJACENT}
    expected = literal_loss(lambda i, j: dot(f[i], g[j]), others)
    value = compute(QuickThoughtLoss(model))
    assert value.item() == pytest.approx(expected, rel=1e-5)
    value.backward()
    assert all(parameter.grad is not None for parameter in view.parameters())


@pytest.mark.parametrize("encoder", ["rnn", "bow"])
def test_quick_thought_vector_is_the_concatenation(vectors: WordVectors, encoder: str) -> None:
    model = quick_thought(vectors, encoder).eval()
    view: Any = model[1]
    words = model[0](model.preprocess(SENTENCES))["words"]
    both = torch.cat([view.f.training_vector(words), view.g.training_vector(words)], dim=1)
    if encoder == "rnn":
        # The last state of each direction, also at test.
        states = torch.cat([view.f.transfer_vector(words)[:, -6:], view.g.transfer_vector(words)[:, -6:]], dim=1)
        torch.testing.assert_close(both, states)
    expected = torch.nn.functional.normalize(both, dim=1).detach().numpy()
    np.testing.assert_allclose(model.encode(SENTENCES), expected, atol=1e-6)
    np.testing.assert_allclose(model.encode(SENTENCES, representation="transfer"), expected, atol=1e-6)


def mean_vectors(vectors: WordVectors) -> list[list[float]]:
    table = dict(zip(vectors.words, vectors.matrix.astype(float), strict=True))
    zero = np.zeros(vectors.dim)
    return [np.mean([table.get(word, zero) for word in text.split()], axis=0).tolist() for text in SENTENCES]


def test_siamese_cbow_loss(vectors: WordVectors) -> None:
    loss = SiameseCBOWLoss(average(thaw_word_vectors(word_embedding(vectors))), n_random=2)
    torch.manual_seed(5)
    adjacent = torch.zeros(len(SENTENCES), len(SENTENCES), dtype=torch.bool)
    for i, near in ADJACENT.items():
        adjacent[i, near] = True
    drawn = loss.draw_random(adjacent)
    assert drawn.sum(dim=1).tolist() == [2] * len(SENTENCES)
    assert not (drawn & adjacent).any()
    assert not drawn.diagonal().any()
    means = mean_vectors(vectors)

    def cosine(i: int, j: int) -> float:
        a, b = means[i], means[j]
        return dot(a, b) / math.sqrt(dot(a, a) * dot(b, b))

    candidates = {i: near + drawn[i].nonzero().flatten().tolist() for i, near in ADJACENT.items()}
    torch.manual_seed(5)
    assert compute(loss).item() == pytest.approx(literal_loss(cosine, candidates), rel=1e-5)


def test_siamese_cbow_draws_no_more_than_there_are() -> None:
    adjacent = torch.tensor([[False, True, False], [True, False, True], [False, True, False]])
    loss = SiameseCBOWLoss(average((["a"], np.ones((1, 2)))), n_random=5)
    assert loss.draw_random(adjacent).int().tolist() == [[0, 0, 1], [0, 0, 0], [1, 0, 0]]


def test_siamese_cbow_draws_all_alike() -> None:
    torch.manual_seed(0)
    adjacent = torch.zeros(6, 6, dtype=torch.bool)
    loss = SiameseCBOWLoss(average((["a"], np.ones((1, 2)))), n_random=2)
    share = torch.stack([loss.draw_random(adjacent) for _ in range(500)]).float().mean(dim=0)
    torch.testing.assert_close(share, 0.4 * (1 - torch.eye(6)), atol=0.08, rtol=0)


def test_fastsent_loss(vectors: WordVectors) -> None:
    loss = FastSentLoss(average(thaw_word_vectors(word_embedding(vectors))), np.arange(81.0), 3, n_drawn=7)
    with torch.no_grad():
        loss.targets.normal_(generator=torch.Generator().manual_seed(1))
    torch.manual_seed(5)
    drawn = loss.draw_random().tolist()
    targets = loss.targets.tolist()
    sums = [[len(text.split()) * x for x in mean] for text, mean in zip(SENTENCES, mean_vectors(vectors), strict=True)]

    def log_sigmoid(x: float) -> float:
        return -math.log(1 + math.exp(-x))

    terms = []
    for i, near in ADJACENT.items():
        for j in near:
            for word in SENTENCES[j].split():
                if word in WORDS:
                    wrong = sum(log_sigmoid(-dot(sums[i], targets[r])) for r in drawn) / len(drawn)
                    terms.append(-log_sigmoid(dot(sums[i], targets[1 + WORDS.index(word)])) - 3 * wrong)
    torch.manual_seed(5)
    assert compute(loss).item() == pytest.approx(sum(terms) / len(terms), rel=1e-5)


def test_fastsent_draws_by_frequency(vectors: WordVectors) -> None:
    counts = np.zeros(81)
    counts[[0, 3, 9]] = [1000, 1, 16]
    loss = FastSentLoss(average(word_embedding(vectors)), counts, n_drawn=20_000)
    torch.manual_seed(0)
    drawn = torch.bincount(loss.draw_random(), minlength=81)
    assert drawn.nonzero().flatten().tolist() == [3, 9]  # never the unknown word
    assert drawn[9] / drawn[3] == pytest.approx(16**0.75, rel=0.1)


@pytest.mark.parametrize("loss_class", [QuickThoughtLoss, SiameseCBOWLoss, FastSentLoss])
def test_a_batch_without_neighbours_gives_zero(vectors: WordVectors, loss_class: Any) -> None:
    if loss_class is QuickThoughtLoss:
        loss = loss_class(quick_thought(vectors, "bow"))
    else:
        model = average(thaw_word_vectors(word_embedding(vectors)))
        loss = loss_class(model) if loss_class is SiameseCBOWLoss else loss_class(model, np.ones(81))
    value = compute(loss, SENTENCES[:4], [0, 1, 2, 3])
    assert value.item() == 0
    value.backward()
    assert all(p.grad is None or bool(torch.isfinite(p.grad).all()) for p in loss.parameters())


def test_trained_word_vectors(vectors: WordVectors) -> None:
    words = word_embedding(vectors)
    model = average(thaw_word_vectors(words))
    table: Any = model[0].vectors
    compute(SiameseCBOWLoss(model)).backward()
    used = {1 + WORDS.index(word) for text in SENTENCES for word in text.split() if word in WORDS}
    assert set(table.grad.abs().sum(dim=1).nonzero().flatten().tolist()) <= used
    assert table.grad.abs().sum() > 0
    with torch.no_grad():
        table -= table.grad
    assert not table[0].any(), "the unknown word stays zero"
    freeze_word_vectors(model)
    assert "vectors" in dict(model[0].named_buffers())
    assert not list(model[0].parameters())
    torch.testing.assert_close(words.vectors[1:], torch.from_numpy(vectors.matrix))


def topics_apart(model: SentenceTransformer) -> float:
    """Mean cosine of words of one topic less that of words of different topics."""
    encoded = torch.nn.functional.normalize(torch.from_numpy(model.encode(WORDS)), dim=1)
    cosines = encoded @ encoded.T
    topic = torch.arange(len(WORDS)) // 10
    same = (topic[:, None] == topic[None]) & ~torch.eye(len(WORDS), dtype=torch.bool)
    return float(cosines[same].mean() - cosines[topic[:, None] != topic[None]].mean())


@pytest.mark.parametrize("name", TRAINED_BASELINES)
def test_training_brings_topics_together(
    name: str, corpus: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So wide that a linear map can tell the words apart, and so short that a few steps can turn them.
    vectors = word_vectors(100, scale=0.1)
    # The toy learns at a higher rate; what is tested is the direction.
    prepare, rate = TRAINED_BASELINES[name]
    monkeypatch.setitem(TRAINED_BASELINES, name, (prepare, 20 * rate))
    state = torch.get_rng_state()
    start = train_baseline(name, corpus, vectors, 8, max_steps=1, batch_size=64)
    model = train_baseline(name, corpus, vectors, 8, max_steps=60, batch_size=64)
    assert torch.equal(torch.get_rng_state(), state), "the generators of the caller are left alone"
    assert topics_apart(model) > topics_apart(start) + 0.3
    assert not model.training
    assert model.max_seq_length == 512

    again = train_baseline(name, corpus, vectors, 8, max_steps=60, batch_size=64)
    np.testing.assert_array_equal(model.encode(SENTENCES), again.encode(SENTENCES))
    model.save_pretrained(str(tmp_path))
    loaded = SentenceTransformer(str(tmp_path), trust_remote_code=True)
    np.testing.assert_allclose(loaded.encode(SENTENCES), model.encode(SENTENCES), atol=1e-6)


def test_time_limit(corpus: Dataset, vectors: WordVectors) -> None:
    assert train_baseline("quick-thought-bow", corpus, vectors, 4, minutes=0.01, batch_size=64).encode("t1x1").any()


def test_unknown_name(corpus: Dataset, vectors: WordVectors) -> None:
    with pytest.raises(UserError, match="no baseline 'skip-thought'; choose one of quick-thought-rnn"):
        train_baseline("skip-thought", corpus, vectors)
