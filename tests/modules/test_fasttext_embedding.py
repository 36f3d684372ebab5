"""Words to ids and vectors: text of all kinds, unknown words, storage."""

from __future__ import annotations

import copy
import json
import logging
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from mv_st import build_model, load_vectors
from mv_st.errors import UserError
from mv_st.modules import FastTextEmbedding, fasttext_embedding
from mv_st.vectors import WordVectors

UNKNOWN_WORDS = ["cats", "Hund", "birdhouse", "неизвестный", "未", "🐈", "x", "straßenkatze"]


def vector_of(module: FastTextEmbedding, text: str) -> np.ndarray:
    """Mean word vector of one text."""
    return module(module.preprocess([text]))["words"].mean()[0].float().numpy()


class TestPreprocess:
    def test_sentences_follow_each_other_without_padding(self, vectors: WordVectors) -> None:
        module = FastTextEmbedding(vectors)
        features = module.preprocess(["The cat!", "", "zzz dog", "\n"])
        row = {word: 1 + i for i, word in enumerate(vectors.words)}
        assert features["input_ids"].tolist() == [row["the"], row["cat"], row["!"], 0, 0, row["dog"], 0]
        assert features["sentence_lengths"].tolist() == [3, 1, 2, 1]
        # The host's collator finds a column by this one ending.
        assert [key for key in features if key.endswith("input_ids")] == ["input_ids"]

    def test_no_text_at_all(self, vectors: WordVectors) -> None:
        features = FastTextEmbedding(vectors).preprocess([])
        assert features["input_ids"].tolist() == features["sentence_lengths"].tolist() == []

    def test_cut_and_empty_texts_side_by_side(self, vectors: WordVectors) -> None:
        texts = ["", "the cat sat on the mat", " ", "a dog ran", "the cat sat on", ""]
        module = FastTextEmbedding(vectors, max_seq_length=3)
        features = module.preprocess(texts)
        assert features["sentence_lengths"].tolist() == [1, 3, 1, 3, 3, 1]
        row = {word: 1 + i for i, word in enumerate(vectors.words)}
        start = [row["the"], row["cat"], row["sat"]]
        expected = [0, *start, 0, row["a"], row["dog"], row["ran"], *start, 0]
        assert features["input_ids"].tolist() == expected

    def test_prompt_comes_first(self, vectors: WordVectors) -> None:
        module = FastTextEmbedding(vectors)
        with_prompt = module.preprocess(["cat", "dog"], prompt="the ")
        assert with_prompt["input_ids"].tolist() == module.preprocess(["the cat", "the dog"])["input_ids"].tolist()

    @pytest.mark.parametrize(
        "bad",
        [None, 3, 1.5, b"cat", ["cat"], ("a", "b"), {"text": "cat"}, object()],
        ids=lambda bad: type(bad).__name__,
    )
    def test_anything_but_text_is_refused_clearly(self, model: SentenceTransformer, bad: Any) -> None:
        """The host swallows TypeError and AttributeError at this point and tries something else."""
        for inputs in ([bad], ["the cat", bad]):
            with pytest.raises(UserError, match=f"mv_st encodes text; got {type(bad).__name__}"):
                model.encode(inputs)

    def test_truncation_is_logged_once(self, vectors: WordVectors, caplog: pytest.LogCaptureFixture) -> None:
        module = FastTextEmbedding(vectors, max_seq_length=3)
        with caplog.at_level(logging.WARNING):
            assert module.preprocess(["the cat sat"])["sentence_lengths"].tolist() == [3]
            assert not caplog.records
            features = module.preprocess(["the cat sat on the mat", "a dog", "the dog ran under the tree"])
            assert module.preprocess(["the the the the"])["sentence_lengths"].tolist() == [3]
        assert features["sentence_lengths"].tolist() == [3, 2, 3]
        assert [record.getMessage() for record in caplog.records] == [
            "a text of 6 words was cut to 3 (max_seq_length); further cuts are not reported"
        ]

    def test_length_can_be_changed(self, model: SentenceTransformer) -> None:
        assert model.max_seq_length == 512
        model.max_seq_length = 2
        assert model.preprocess(["the cat sat"])["sentence_lengths"].tolist() == [2]
        assert model[0].preprocess(["the cat sat"], max_length=1)["sentence_lengths"].tolist() == [1]
        model.max_seq_length = None
        assert model.preprocess(["the " * 1000])["sentence_lengths"].tolist() == [1000]


class TestTable:
    def test_is_a_buffer_with_a_zero_row_for_the_unknown(self, vectors: WordVectors) -> None:
        module = FastTextEmbedding(vectors)
        assert not list(module.parameters())
        assert not module.vectors.requires_grad
        assert module.vectors[0].tolist() == [0.0] * 6
        np.testing.assert_array_equal(module.vectors[1:].numpy(), vectors.matrix)
        assert "vectors" in module.state_dict()

    @pytest.mark.parametrize("kind", ["arrays", "file", "WordVectors"])
    def test_takes_vectors_in_many_forms(self, vectors: WordVectors, kind: str, tmp_path: Path) -> None:
        with (tmp_path / "v.vec").open("w", encoding="utf-8") as file:
            file.write(f"{len(vectors)} 6\n")
            for word, row in zip(vectors.words, vectors.matrix.tolist(), strict=True):
                file.write(" ".join([word, *map(repr, row)]) + "\n")
        source = {
            "arrays": (vectors.words, vectors.matrix.astype(np.float64)),
            "file": tmp_path / "v.vec",
            "WordVectors": vectors,
        }[kind]
        module = FastTextEmbedding(source)
        np.testing.assert_allclose(module.vectors[1:].numpy(), vectors.matrix, rtol=1e-6)
        assert module.vectors.dtype == torch.float32
        few = FastTextEmbedding(source, max_vocab=3, dtype="float16")
        assert (few.vocab_size, few.dtype, few.tokenizer.get_vocab_size()) == (4, "float16", 4)
        np.testing.assert_allclose(few.vectors[1:].float().numpy(), vectors.matrix[:3], rtol=1e-3)

    def test_word_weights_are_sif(self, vectors: WordVectors) -> None:
        module = FastTextEmbedding(vectors)
        weights = module.word_weights({"the": 90, "cat": 10, "elsewhere": 5})
        assert weights[1 + vectors.words.index("the")] == pytest.approx(1e-3 / (1e-3 + 0.9))
        assert weights[1 + vectors.words.index("cat")] == pytest.approx(1e-3 / (1e-3 + 0.1))
        assert weights[1 + vectors.words.index("dog")] == 1
        by_row = np.zeros(module.vocab_size)
        by_row[1 + vectors.words.index("the")], by_row[1 + vectors.words.index("cat")] = 90, 10
        np.testing.assert_array_equal(module.word_weights(by_row), weights)
        with pytest.raises(UserError, match="do not fit the table"):
            module.word_weights(np.ones(3))

    def test_refuses_what_cannot_work(self, vectors: WordVectors) -> None:
        with pytest.raises(UserError, match="needs vectors with subwords"):
            FastTextEmbedding(vectors, oov="subword")
        with pytest.raises(UserError, match=r"\[UNK\]"):
            FastTextEmbedding((["[UNK]", "a"], np.eye(2)))


class TestSubwords:
    @pytest.fixture
    def module(self, fasttext_file: tuple[Path, Any]) -> FastTextEmbedding:
        return FastTextEmbedding(fasttext_file[0], oov="subword")

    def test_vectors_are_those_of_fasttext(self, module: FastTextEmbedding, fasttext_file: tuple[Path, Any]) -> None:
        for word in [*UNKNOWN_WORDS, "cat", "Paris", "привет", "straße"]:
            expected = fasttext_file[1].get_word_vector(word)
            np.testing.assert_allclose(vector_of(module, word), expected, atol=1e-6, err_msg=word)

    def test_capitals_of_a_known_word_are_that_word(self, module: FastTextEmbedding) -> None:
        np.testing.assert_array_equal(vector_of(module, "CAT"), vector_of(module, "cat"))

    def test_do_not_depend_on_the_batch(self, module: FastTextEmbedding) -> None:
        texts = ["cats birdhouse", "cat", "x cats x", "", "неизвестный 🐈", *UNKNOWN_WORDS]
        together = module(module.preprocess(texts))["words"].mean().numpy()
        for text, expected in zip(texts, together, strict=True):
            np.testing.assert_allclose(vector_of(module, text), expected, atol=1e-6)
        backwards = module(module.preprocess(texts[::-1]))["words"].mean().numpy()
        np.testing.assert_allclose(backwards[::-1], together, atol=1e-6)

    def test_a_new_memo_changes_nothing(self, module: FastTextEmbedding, monkeypatch: pytest.MonkeyPatch) -> None:
        expected = [vector_of(module, word) for word in UNKNOWN_WORDS]
        monkeypatch.setattr(fasttext_embedding, "MEMO_CHARACTERS", 5)
        for _ in range(2):
            for word, vector in zip(UNKNOWN_WORDS, expected, strict=True):
                np.testing.assert_array_equal(vector_of(module, word), vector)
                assert module._lookup.characters < 20

    def test_zero_is_the_default(self, fasttext_file: tuple[Path, Any]) -> None:
        module = FastTextEmbedding(fasttext_file[0])
        assert module.oov == "zero"
        assert "subword_rows" not in module.preprocess(["cats cat"])
        assert not vector_of(module, "cats").any()
        assert not any(name.startswith("subword") for name in module.state_dict())

    def test_a_very_long_word_is_no_word(self, module: FastTextEmbedding) -> None:
        assert not vector_of(module, "ab" * 1000).any()
        assert vector_of(module, "ab" * 50).any()

    def test_save_and_load(self, module: FastTextEmbedding, tmp_path: Path) -> None:
        module.save(str(tmp_path))
        loaded = FastTextEmbedding.load(str(tmp_path))
        assert loaded.oov == "subword"
        for word in [*UNKNOWN_WORDS, "cat"]:
            np.testing.assert_array_equal(vector_of(loaded, word), vector_of(module, word))

    def test_may_be_as_long_as_known_words(self, module: FastTextEmbedding, tmp_path: Path) -> None:
        before = {word: vector_of(module, word) for word in ["cat", *UNKNOWN_WORDS]}
        typical = np.linalg.norm(module.vectors.numpy()[1:], axis=1).mean()
        module.scale_unknown_words()
        module.save(str(tmp_path))
        for words in (module, FastTextEmbedding.load(str(tmp_path))):
            np.testing.assert_array_equal(vector_of(words, "cat"), before["cat"])
            for word in UNKNOWN_WORDS:
                expected = before[word] * typical / np.linalg.norm(before[word])
                np.testing.assert_allclose(vector_of(words, word), expected, rtol=1e-4, atol=1e-6)

    def test_half_storage(self, fasttext_file: tuple[Path, Any]) -> None:
        half = FastTextEmbedding(load_vectors(fasttext_file[0], dtype="float16"), oov="subword")
        assert half.subword_vectors.dtype == half.vectors.dtype == torch.float16
        for word in UNKNOWN_WORDS:
            expected = fasttext_file[1].get_word_vector(word)
            np.testing.assert_allclose(vector_of(half, word), expected, atol=1e-3)

    def test_whole_model(self, fasttext_file: tuple[Path, Any], sentences: list[str], tmp_path: Path) -> None:
        model = build_model(fasttext_file[0], hidden_size=4, oov="subword", weighting="fixed", word_counts={"the": 5})
        texts = [*sentences, *UNKNOWN_WORDS, "", "cats and birds"]
        expected = model.encode(texts)
        assert np.linalg.norm(expected, axis=1)[len(sentences) : -2].min() > 0.1, "unknown words count"
        np.testing.assert_allclose(model.encode(texts, batch_size=1), expected, atol=1e-5)
        model.save_pretrained(str(tmp_path))
        np.testing.assert_array_equal(SentenceTransformer(str(tmp_path)).encode(texts), expected)


class TestCopies:
    @pytest.mark.parametrize("how", ["pickle", "deepcopy"])
    @pytest.mark.parametrize("oov", ["zero", "subword"])
    def test_give_the_same(self, fasttext_file: tuple[Path, Any], how: str, oov: Any) -> None:
        module = FastTextEmbedding(fasttext_file[0], oov=oov)
        text = "the cats sat on Paris"
        expected = vector_of(module, text)
        copied = pickle.loads(pickle.dumps(module)) if how == "pickle" else copy.deepcopy(module)
        np.testing.assert_array_equal(vector_of(copied, text), expected)

    @pytest.mark.parametrize("oov", ["zero", "subword"])
    def test_do_not_carry_the_memo(self, fasttext_file: tuple[Path, Any], oov: Any) -> None:
        module = FastTextEmbedding(fasttext_file[0], oov=oov)
        fresh = len(pickle.dumps(module))
        module.preprocess([f"word{i}" for i in range(1000)])
        assert len(pickle.dumps(module)) == fresh


class TestFiles:
    def test_vocabulary_is_in_a_file_of_its_own(self, vectors: WordVectors, tmp_path: Path) -> None:
        module = FastTextEmbedding(vectors)
        module.save(str(tmp_path))
        assert sorted(path.name for path in tmp_path.iterdir()) == [
            "fasttext_embedding.json",
            "model.safetensors",
            "tokenizer.json",
        ]
        config = (tmp_path / "fasttext_embedding.json").read_text()
        assert json.loads(config)["vocab_size"] == len(vectors) + 1
        for text in (config, repr(module)):
            assert "straße" not in text
            assert "yesterday" not in text

    def test_tokenizer_is_the_ecosystems(self, model: SentenceTransformer) -> None:
        assert model.tokenizer.encode("The cat, zzz").tokens == ["the", "cat", ",", "[UNK]"]

    def test_missing_tokenizer_is_named(self, vectors: WordVectors, tmp_path: Path) -> None:
        FastTextEmbedding(vectors).save(str(tmp_path))
        (tmp_path / "tokenizer.json").unlink()
        with pytest.raises(UserError, match=r"has no tokenizer\.json"):
            FastTextEmbedding.load(str(tmp_path))
