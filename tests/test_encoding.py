from __future__ import annotations

import gzip
import io
import lzma
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from sentence_transformers import SentenceTransformer
from toy_corpus import quick_context

from mv_st import encoding, export_static
from mv_st.encoding import encode_file, nearest, read_lines
from mv_st.errors import UserError

LINES = [
    "The cat sat on the mat.",
    "",
    "A dog ran under the tree.",
    "   The sky is blue.  ",
    "",
    "A bird flew over the house.",
    "The dog was very happy.",
    "It was sad yesterday.",
]
CLEAN = [line.strip() for line in LINES]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return path


@pytest.fixture(autouse=True)
def many_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "SENTENCES_PER_CHUNK", 3)


@pytest.mark.parametrize("kind", ["npy", "parquet"])
@pytest.mark.parametrize("options", [{}, {"view": "linear"}, {"representation": "transfer"}])
def test_a_vector_for_every_line(
    model: SentenceTransformer, source: Path, tmp_path: Path, kind: str, options: dict[str, str]
) -> None:
    output = tmp_path / f"vectors.{kind}"
    assert encode_file(model, source, output, **options) == 8
    if kind == "npy":
        vectors = np.load(output)
    else:
        table = pq.read_table(output)
        assert table["sentence"].to_pylist() == CLEAN
        vectors = np.array(table["embedding"].to_pylist(), dtype=np.float32)
    np.testing.assert_allclose(vectors, model.encode(CLEAN, **options), atol=1e-6)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([source.name, output.name])


def test_npy_of_a_million_rows_has_a_header_of_the_same_length(tmp_path: Path) -> None:
    rows = np.zeros((1000, 1), dtype=np.float32)
    path = tmp_path / "many.npy"
    assert encoding._write_npy(path, iter([([], rows)] * 1001)) == 1_001_000
    assert np.load(path, mmap_mode="r").shape == (1_001_000, 1)


def test_workers(model: SentenceTransformer, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The host library starts processes from nothing, which takes each of them ten seconds.
    monkeypatch.setattr("torch.multiprocessing.get_context", lambda method: quick_context())
    encode_file(model, source, tmp_path / "two.npy", workers=2, view="gru")
    np.testing.assert_allclose(np.load(tmp_path / "two.npy"), model.encode(CLEAN, view="gru"), atol=1e-6)


def test_output_appears_whole_or_not_at_all(model: SentenceTransformer, tmp_path: Path) -> None:
    source = tmp_path / "text.txt"
    source.write_bytes(b"The cat sat.\n" * 7 + b"\xff\xfe bad\n")
    for kind in ("npy", "parquet"):
        old = tmp_path / f"vectors.{kind}"
        old.write_text("old")
        with pytest.raises(UserError, match=r"text.txt, line 8: not UTF-8"):
            encode_file(model, source, old)
        assert old.read_text() == "old"
        with pytest.raises(UserError):
            encode_file(model, source, tmp_path / f"new.{kind}")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["text.txt", "vectors.npy", "vectors.parquet"]


@pytest.mark.parametrize(
    ("output", "options", "message"),
    [
        ("vectors.csv", {}, "written as .npy or .parquet"),
        ("v.npy", {"view": "tree"}, "this model has no view 'tree'; its views are gru, linear"),
        ("v.npy", {"view": "tree", "workers": 2}, "this model has no view 'tree'"),
        ("text.txt/v.npy", {}, "cannot write .*v.npy"),
    ],
)
def test_mistakes(
    model: SentenceTransformer, source: Path, tmp_path: Path, output: str, options: dict, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        encode_file(model, source, tmp_path / output, **options)
    assert list(tmp_path.iterdir()) == [source]


def test_an_empty_file_has_nothing_to_encode(model: SentenceTransformer, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").touch()
    with pytest.raises(UserError, match=r"empty.txt: no sentences to encode"):
        encode_file(model, tmp_path / "empty.txt", tmp_path / "v.npy")


def test_other_models_can_be_used_too(model: SentenceTransformer, source: Path, tmp_path: Path) -> None:
    static = export_static(model, tmp_path / "static")
    encode_file(static, source, tmp_path / "v.npy")
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), static.encode(CLEAN), atol=1e-6)
    assert nearest(static, CLEAN, ["The cat sat on the mat."], top=1)[0][0][1] == CLEAN[0]
    with pytest.raises(UserError, match="no views or representations"):
        nearest(static, CLEAN, ["cat"], view="linear")


# --- reading ---


def test_lines_of_every_kind_of_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = "\ufeffEins\r\n\r\n Zwei \nMünze".encode()
    (tmp_path / "a.txt").write_bytes(content)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(content))
    (tmp_path / "a.txt.xz").write_bytes(lzma.compress(content))
    for name in ("a.txt", "a.txt.gz", "a.txt.xz"):
        assert list(read_lines(tmp_path / name)) == ["Eins", "", "Zwei", "Münze"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert list(read_lines("-")) == ["Eins", "", "Zwei", "Münze"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.gz", b"no archive", "a.gz: damaged archive"),
        ("a.gz", gzip.compress(b"one\ntwo\n")[:-9], "a.gz: damaged archive"),
        ("a.xz", b"no archive", "a.xz: damaged archive"),
        ("a.xz", lzma.compress(b"one\ntwo\n" * 9)[:-9], "a.xz: damaged archive"),
        ("a.txt", b"one\ntw\xffo\n", "a.txt, line 2: not UTF-8"),
        ("missing.txt", None, "missing.txt: No such file"),
    ],
)
def test_damage_is_named(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message):
        list(read_lines(tmp_path / name))


# --- nearest sentences ---


def test_nearest_equals_a_search_through_all(model: SentenceTransformer, sentences: list[str]) -> None:
    queries = ["A happy dog.", "The sky"]
    found = nearest(model, sentences + sentences[:3], queries, top=4)
    vectors = model.encode(sentences, normalize_embeddings=True)
    for query, matches in zip(queries, found, strict=True):
        scores = vectors @ model.encode(query, normalize_embeddings=True)
        best = np.argsort(-scores)[:4]
        assert [sentence for _, sentence in matches] == [sentences[i] for i in best]
        np.testing.assert_allclose([score for score, _ in matches], scores[best], atol=1e-6)


def test_nearest_of_one_view(model: SentenceTransformer, sentences: list[str]) -> None:
    score, sentence = nearest(model, sentences, [sentences[2]], top=1, view="linear")[0][0]
    assert (sentence, score) == (sentences[2], pytest.approx(1, abs=1e-6))


def test_nearest_of_nothing(model: SentenceTransformer) -> None:
    with pytest.raises(UserError, match="no sentences to search in"):
        nearest(model, [], ["cat"])
