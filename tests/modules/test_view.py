"""A view of one's own in the same pipeline."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from mv_st import fit_components
from mv_st.errors import UserError
from mv_st.modules import BiGRUView, FastTextEmbedding, LinearMeanView, PCRemoval, ViewEnsemble
from mv_st.modules.view import View
from mv_st.modules.words import Words
from mv_st.vectors import WordVectors


class FirstWordView(View):
    """Maps the first word and forgets the rest."""

    config_keys = ["width", "output_width", "name"]

    def __init__(self, width: int, output_width: int, name: str = "first") -> None:
        super().__init__(name)
        self.width = width
        self.output_width = output_width
        self.linear = nn.Linear(width, output_width)

    @property
    def widths(self) -> dict[str, int]:
        return {"similarity": self.output_width, "transfer": self.width}

    def training_vector(self, words: Words) -> Tensor:
        return self.similarity_vector(words)

    def similarity_vector(self, words: Words) -> Tensor:
        return self.linear(self.transfer_vector(words))

    def transfer_vector(self, words: Words) -> Tensor:
        return words.vectors[words.starts]


class AverageView(View):
    """The plain mean, without anything to train."""

    config_keys = ["width", "name"]

    def __init__(self, width: int, name: str = "average") -> None:
        super().__init__(name)
        self.width = width

    @property
    def widths(self) -> dict[str, int]:
        return {"similarity": self.width, "transfer": self.width}

    def training_vector(self, words: Words) -> Tensor:
        return words.mean()

    similarity_vector = transfer_vector = training_vector


def build(vectors: WordVectors, *views: View) -> SentenceTransformer:
    removal = PCRemoval({view.name: view.widths for view in views})
    ensemble = ViewEnsemble([view.name for view in views], views[0].widths["similarity"])
    return SentenceTransformer(modules=[FastTextEmbedding(vectors), *views, removal, ensemble])


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize("stored", ["float32", "float16"])
def test_encodes_beside_the_others(vectors: WordVectors, sentences: list[str], stored: str) -> None:
    torch.manual_seed(0)
    vectors = WordVectors(vectors.words, vectors.matrix.astype(stored))
    model = build(vectors, FirstWordView(6, 6), AverageView(6), LinearMeanView(6, 6))
    parts = [model.encode(sentences, view=name) for name in ("first", "average", "linear")]
    np.testing.assert_allclose(model.encode(sentences), sum(parts), atol=1e-6)
    assert model.encode(sentences, representation="transfer").shape == (len(sentences), 6 + 6 + 18)
    word = vectors.matrix[vectors.words.index("the")].astype(np.float32)
    np.testing.assert_allclose(model.encode("the cat", view="first", representation="transfer"), unit(word[None])[0])
    mean = np.mean([vectors.matrix[vectors.words.index(w)].astype(np.float32) for w in ("the", "cat")], axis=0)
    np.testing.assert_allclose(model.encode("the cat", view="average"), unit(mean[None])[0], rtol=1e-5)


def test_components_can_be_fitted(vectors: WordVectors, sentences: list[str]) -> None:
    model = fit_components(build(vectors, AverageView(6)), sentences, 2)
    rest = model.encode(sentences, view="average")
    assert np.abs(rest @ model[2].components("average").numpy().T).max() < 1e-5


def test_trains(vectors: WordVectors, sentences: list[str]) -> None:
    model = build(vectors, FirstWordView(6, 6), AverageView(6)).train()
    model(model.preprocess(sentences))["view_embeddings"][:, 0].sum().backward()
    assert model[1].linear.weight.grad.abs().sum() > 0


def test_half_precision(vectors: WordVectors, sentences: list[str]) -> None:
    model = build(vectors, AverageView(6), BiGRUView(6, 3))
    expected = model.encode(sentences)
    result = model.half().encode(sentences)
    np.testing.assert_allclose(result.astype(np.float32), expected, atol=0.02)


def test_saves_and_loads_with_the_flag_for_foreign_code(
    vectors: WordVectors, sentences: list[str], tmp_path: Path
) -> None:
    model = build(vectors, FirstWordView(6, 6), AverageView(6))
    model.save_pretrained(str(tmp_path))
    loaded = SentenceTransformer(str(tmp_path), trust_remote_code=True)
    np.testing.assert_array_equal(loaded.encode(sentences), model.encode(sentences))
    with pytest.raises(ValueError, match="trust_remote_code"):
        SentenceTransformer(str(tmp_path))


def test_wrong_representation_is_named(vectors: WordVectors) -> None:
    with pytest.raises(UserError, match="no representation 'tranfser'; choose similarity or transfer"):
        build(vectors, AverageView(6)).encode("the cat", representation="tranfser")


def test_never_written_as_pickle(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="never as pickle"):
        FirstWordView(6, 6).save(str(tmp_path), safe_serialization=False)
    assert not any(tmp_path.iterdir())
