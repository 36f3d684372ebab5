"""The linear view as a model of stock modules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from model2vec import StaticModel
from sentence_transformers import SentenceTransformer

from mv_st import build_model, export_static, fit_components
from mv_st.errors import UserError
from mv_st.vectors import WordVectors

TEXTS = ["", "zzz", "it's the cat's, isn't it?", "cafe\u0301 NAÏVE straße", "猫です", "the the the", "\x00 \u3000"]


def test_loads_where_mv_st_is_unknown(without_mv_st: dict[str, Any]) -> None:
    """With three components removed; in a process that has not imported mv_st."""
    assert without_mv_st["imported"] is False
    np.testing.assert_allclose(np.array(without_mv_st["static"]), without_mv_st["expected_linear"], atol=1e-5)


@pytest.mark.parametrize("n_components", [0, 1, 3])
@pytest.mark.parametrize("weighting", ["none", "fixed", "learned"])
@pytest.mark.parametrize("cased", [False, True])
def test_equals_the_linear_view(
    vectors: WordVectors,
    cased_vectors: WordVectors,
    sentences: list[str],
    tmp_path: Path,
    n_components: int,
    weighting: Any,
    cased: bool,
) -> None:
    source = cased_vectors if cased else vectors
    counts = dict.fromkeys(source.words, 1) | {"the": 50, "cat": 7}
    model = build_model(source, hidden_size=4, seed=0, weighting=weighting, word_counts=counts)
    fit_components(model, sentences, n_components)
    returned = export_static(model, tmp_path / "static")
    loaded = SentenceTransformer(str(tmp_path / "static"))
    texts = [*sentences, *TEXTS, "THE CAT AND US IN PARIS", "May may MAY us US The"]
    for static in (returned, loaded, StaticModel.from_pretrained(tmp_path / "static")):
        np.testing.assert_allclose(static.encode(texts), model.encode(texts, view="linear"), atol=1e-5)
    assert [type(module).__module__.partition(".")[0] for module in loaded] == ["sentence_transformers"] * 2


@pytest.mark.parametrize("how", ["fp16 storage", "half precision"])
def test_of_a_model_with_less_precision(vectors: WordVectors, sentences: list[str], tmp_path: Path, how: str) -> None:
    model = build_model(vectors, hidden_size=4, seed=0, dtype="float16" if how == "fp16 storage" else None)
    fit_components(model, sentences)
    tolerance = 1e-5
    if how == "half precision":
        model.half()
        tolerance = 0.01
    static = export_static(model, tmp_path / "static")
    expected = model.encode(sentences, view="linear").astype(np.float32)
    np.testing.assert_allclose(static.encode(sentences), expected, atol=tolerance)


def test_one_of_several_linear_views(vectors: WordVectors, sentences: list[str], tmp_path: Path) -> None:
    model = build_model(vectors, hidden_size=4, views=("linear", "linear"), seed=0)
    with pytest.raises(UserError, match=r"several linear views \(linear_1, linear_2\)"):
        export_static(model, tmp_path / "static")
    static = export_static(model, tmp_path / "static", view="linear_2")
    np.testing.assert_allclose(static.encode(sentences), model.encode(sentences, view="linear_2"), atol=1e-5)


def test_model2vec_reads_long_text_to_its_end(vectors: WordVectors, tmp_path: Path) -> None:
    model = build_model(vectors, hidden_size=4, seed=0, max_seq_length=None)
    export_static(model, tmp_path / "static")
    static = StaticModel.from_pretrained(tmp_path / "static")
    long = "the cat sat " * 300 + "very happy bird " * 700
    # model2vec adds up thousands of words one by one in single precision.
    np.testing.assert_allclose(static.encode([long]), model.encode([long], view="linear"), atol=1e-4)
    StaticModel.from_pretrained(tmp_path / "static").save_pretrained(tmp_path / "copy")
    np.testing.assert_allclose(StaticModel.from_pretrained(tmp_path / "copy").encode([long]), static.encode([long]))


class TestWhereItCannotBeEqual:
    """The exceptions that the documentation of `export_static` lists."""

    def test_unknown_words_have_no_subwords(self, fasttext_file: tuple[Path, Any], tmp_path: Path) -> None:
        model = build_model(fasttext_file[0], hidden_size=4, oov="subword", seed=0)
        static = export_static(model, tmp_path / "static")
        assert np.abs(model.encode("birdhouse", view="linear")).max() > 0.1
        assert not static.encode("birdhouse").any()
        known = ["the cat", "Paris is blue"]
        np.testing.assert_allclose(static.encode(known), model.encode(known, view="linear"), atol=1e-5)

    def test_odd_capitals(self, cased_vectors: WordVectors, tmp_path: Path) -> None:
        model = build_model(cased_vectors, hidden_size=4, seed=0)
        static = export_static(model, tmp_path / "static")
        for text, equal in (("cat", True), ("Cat", True), ("CAT", True), ("cAt", False)):
            same = np.allclose(static.encode(text), model.encode(text, view="linear"), atol=1e-5)
            assert same is equal, text

    def test_very_long_text(self, vectors: WordVectors, tmp_path: Path) -> None:
        model = build_model(vectors, hidden_size=4, seed=0, max_seq_length=3)
        static = export_static(model, tmp_path / "static")
        long = "the the the cat dog bird"
        assert not np.allclose(static.encode(long), model.encode(long, view="linear"), atol=1e-3)
        np.testing.assert_allclose(static.encode("the"), model.encode(long, view="linear"), atol=1e-5)


def test_mistakes_are_explained(vectors: WordVectors, model: SentenceTransformer, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no linear view 'gru'; it has linear"):
        export_static(model, tmp_path / "static", view="gru")
    with pytest.raises(UserError, match="only an mv_st model with a linear view"):
        export_static(build_model(vectors, hidden_size=4, views=["gru"]), tmp_path / "static")
    assert not (tmp_path / "static").exists()
    export_static(model, tmp_path / "static")
    with pytest.raises(UserError, match="not empty"):
        export_static(model, tmp_path / "static")
    export_static(model, tmp_path / "static", overwrite=True)


def test_leaves_the_model_alone(model: SentenceTransformer, sentences: list[str], tmp_path: Path) -> None:
    expected = model.encode(sentences)
    export_static(model, tmp_path / "static").tokenizer.enable_truncation(1)
    np.testing.assert_array_equal(model.encode(sentences), expected)
