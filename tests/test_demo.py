from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from toy_corpus import quick_and_alone, toy_documents, toy_vectors  # noqa: F401 - fixture

from mv_st.demo import QUERIES, averaged_vectors, neighbour_recall, run_demo
from mv_st.errors import UserError


def test_recall_is_what_it_says() -> None:
    vectors = np.random.default_rng(0).normal(size=(40, 5))
    first = ten = 0
    for i in range(39):
        cosines = [
            -2 if i == j else vectors[i] @ vectors[j] / np.linalg.norm(vectors[i]) / np.linalg.norm(vectors[j])
            for j in range(40)
        ]
        nearest = np.argsort(cosines)[::-1]
        first += nearest[0] == i + 1
        ten += i + 1 in nearest[:10]
    assert neighbour_recall(vectors) == (pytest.approx(first / 39), pytest.approx(ten / 39))


def test_averages_are_plain_means_without_their_first_component() -> None:
    vectors = toy_vectors()
    sentences = [sentence for document in toy_documents(4) for sentence in document]
    by_word = dict(zip(vectors.words, vectors.matrix.astype(np.float64), strict=True))
    means = np.stack([np.mean([by_word[word] for word in sentence.split()], axis=0) for sentence in sentences])
    direction = np.linalg.svd(means, full_matrices=False)[2][0]
    expected = means - np.outer(means @ direction, direction)
    np.testing.assert_allclose(averaged_vectors(vectors, sentences), expected, atol=1e-4)


def test_demo_from_text_to_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n\n".join("\n".join(document) for document in toy_documents(100)))
    output = tmp_path / "demo"
    for _ in range(2):  # the second demo replaces the model of the first
        run_demo(output, minutes=0.005, corpus=corpus)
    shown = capsys.readouterr()
    for query in QUERIES:
        assert f"\n{query}\n" in shown.out
    assert "How often one of 160 unseen sentences" in shown.out
    assert "averaged word vectors" in shown.out
    assert "training.png" not in shown.out  # there is no picture without matplotlib
    assert "1. word vectors from 640 sentences" in shown.err
    record = json.loads((output / "training.json").read_text())
    assert record["corpus"] == {"sources": ["dataset"], "sentences": 640}
    assert SentenceTransformer(str(output)).encode(["ban ben"]).shape == (1, 256)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.txt", "demo"]


def test_demo_replaces_nothing_but_a_model(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("Dear Ada")
    with pytest.raises(UserError, match="exists and is not empty"):
        run_demo(tmp_path)
    assert (tmp_path / "letter.txt").exists()


def test_the_bundled_text_is_there() -> None:
    from importlib.resources import files

    from mv_st.encoding import read_lines

    path = Path(str(files("mv_st") / "data" / "books.txt.xz"))
    assert path.stat().st_size < 4e6
    lines = list(read_lines(path))
    assert len(lines) > 50_000
    assert "" in lines
