"""The model card of a saved model says how to load it."""

from __future__ import annotations

from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.model_card import SentenceTransformerModelCardData

from mv_st.model_card import MultiViewModelCardData
from mv_st.vectors import WordVectors


def card_of(model: SentenceTransformer, folder: Path) -> str:
    model.save_pretrained(str(folder))
    return (folder / "README.md").read_text(encoding="utf-8")


def test_installs_and_imports_mv_st(model: SentenceTransformer, tmp_path: Path) -> None:
    card = card_of(model, tmp_path)
    assert "pip install -U mv-st" in card
    code = card.partition("```python\n")[2].partition("```")[0]
    assert code.index("import mv_st") < code.index("SentenceTransformer(")
    assert "[3, 8]" in code
    assert "yesterday" not in card, "the vocabulary"


def test_the_snippet_runs(model: SentenceTransformer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = card_of(model, tmp_path).partition("```python\n")[2].partition("```")[0]
    exec(code.replace("sentence_transformers_model_id", str(tmp_path)), {})
    assert capsys.readouterr().out.startswith("(3, 8)")


def test_a_loaded_model_that_is_trained_on_gets_one_too(model: SentenceTransformer, tmp_path: Path) -> None:
    card_of(model, tmp_path / "one")
    loaded = SentenceTransformer(str(tmp_path / "one"))
    loaded.model_card_data.add_tags("generated_from_trainer")  # makes the host write a new card
    assert "import mv_st" in card_of(loaded, tmp_path / "two")


def test_keeps_what_the_user_wrote(model: SentenceTransformer, tmp_path: Path) -> None:
    data = SentenceTransformerModelCardData(language="de", model_name="Meins")
    with_data = SentenceTransformer(modules=list(model), model_card_data=data)
    assert isinstance(with_data.model_card_data, MultiViewModelCardData)
    card = card_of(with_data, tmp_path)
    assert "# Meins" in card
    assert "- de" in card


def test_leaves_other_models_alone(vectors: WordVectors) -> None:
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    from mv_st.modules.word_tokenizer import build_tokenizer

    static = StaticEmbedding(build_tokenizer(vectors.words), embedding_dim=4)
    assert type(SentenceTransformer(modules=[static]).model_card_data) is SentenceTransformerModelCardData
