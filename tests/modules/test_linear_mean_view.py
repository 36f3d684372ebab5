"""The parallel view against W x, word by word."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from mv_st.errors import UserError
from mv_st.modules import LinearMeanView
from mv_st.modules.words import Words

LENGTHS = [4, 1, 6, 2]


@pytest.fixture
def words() -> Words:
    table = torch.randn(30, 3, generator=torch.Generator().manual_seed(0))
    ids = torch.randint(30, (sum(LENGTHS),), generator=torch.Generator().manual_seed(1))
    return Words(ids, torch.tensor(LENGTHS), table, dtype=torch.float32)


def literal_maps(view: LinearMeanView, words: Words, scale: list[float]) -> list[list[list[float]]]:
    """For each sentence W x of each word, times the word's weight."""
    matrix = view.linear.weight.tolist()
    mapped = [
        [scale[i] * sum(w * x for w, x in zip(row, words.table[i].tolist(), strict=True)) for row in matrix]
        for i in words.known_ids.tolist()
    ]
    return [mapped[end - length : end] for length, end in zip(LENGTHS, np.cumsum(LENGTHS), strict=True)]


@pytest.mark.parametrize("weighting", ["none", "fixed", "learned"])
def test_mean_and_extremes(words: Words, weighting: str) -> None:
    torch.manual_seed(0)
    weights = None if weighting == "none" else np.linspace(0.1, 1.0, 30)
    view = LinearMeanView(3, 8, "linear", weighting, 30, weights).eval()  # type: ignore[arg-type]
    ones = [1.0] * 30
    means, features = [], []
    for sentence in literal_maps(view, words, ones if weights is None else weights.tolist()):
        means.append([sum(column) / len(column) for column in zip(*sentence, strict=True)])
    for sentence in literal_maps(view, words, ones):
        columns = list(zip(*sentence, strict=True))
        features.append([f(c) for f in (max, lambda c: sum(c) / len(c), min) for c in columns])
    torch.testing.assert_close(view.similarity_vector(words), torch.tensor(means))
    torch.testing.assert_close(view.training_vector(words), torch.tensor(means))
    torch.testing.assert_close(view.transfer_vector(words), torch.tensor(features))
    assert view.widths == {"similarity": 8, "transfer": 24}


@pytest.mark.parametrize(("weighting", "trained"), [("fixed", False), ("learned", True)])
def test_only_learned_weights_are_trained(words: Words, weighting: str, trained: bool) -> None:
    view = LinearMeanView(3, 8, weighting=weighting, vocab_size=30)  # type: ignore[arg-type]
    assert view.word_weights.tolist() == [1.0] * 30
    assert ("word_weights" in dict(view.named_parameters())) is trained
    view.training_vector(words).square().sum().backward()
    if trained:
        assert view.word_weights.grad is not None
        used = view.word_weights.grad.nonzero().flatten().tolist()
        assert used == sorted(set(words.known_ids.tolist()))


def test_initial_weights() -> None:
    torch.manual_seed(0)
    view = LinearMeanView(300, 512)
    assert view.linear.weight.std().item() == pytest.approx((2 / 300) ** 0.5, rel=0.02)
    assert view.linear.bias is None


@pytest.mark.parametrize(("width", "output"), [(6, 8), (8, 8)])
def test_a_gentle_start_keeps_similarities(width: int, output: int) -> None:
    view = LinearMeanView(width, output)
    view.start_gently()
    vectors = torch.randn(5, width)
    torch.testing.assert_close(view.linear(vectors) @ view.linear(vectors).T, vectors @ vectors.T)


def test_weights_must_fit_the_vocabulary() -> None:
    with pytest.raises(UserError, match="needs vocab_size"):
        LinearMeanView(3, 8, weighting="fixed")
    with pytest.raises(UserError, match="expected 30 word weights"):
        LinearMeanView(3, 8, weighting="fixed", vocab_size=30, weights=np.ones(29))


@pytest.mark.parametrize("weighting", ["none", "fixed", "learned"])
def test_saves_and_loads(words: Words, weighting: str, tmp_path: Path) -> None:
    view = LinearMeanView(3, 8, "mine", weighting, 30, np.linspace(0.1, 1.0, 30))  # type: ignore[arg-type]
    view.save(str(tmp_path))
    loaded = LinearMeanView.load(str(tmp_path))
    assert loaded.name == "mine"
    assert torch.equal(loaded.eval().transfer_vector(words), view.eval().transfer_vector(words))
