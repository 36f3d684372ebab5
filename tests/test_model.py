"""Models from end to end: building, encoding, saving, loading."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from mv_st import build_model, fit_components
from mv_st.errors import UserError
from mv_st.modules import BiGRUView, LinearMeanView
from mv_st.vectors import WordVectors

ODD_TEXTS = [
    "",
    " \n\t",
    "zzz qqq",
    "🐈‍⬛ 👩‍👩‍👧 ❤️",
    "\x00\u200b\ufeff",
    "half a character \ud83d",
    "the cat " * 125_000,
    "a" * 1_000_000,
    "Ünïcödé СЛОВА 猫です สวัสดี नमस्ते",
    "...",
]


def by_hand(model: SentenceTransformer, sentence: str, view: str, representation: str) -> np.ndarray:
    """One view of one sentence with components removed and normalised, through the modules one by one."""
    features = model[0](model[0].preprocess([sentence]))
    module = next(module for module in model if getattr(module, "name", None) == view)
    vector = getattr(module, f"{representation}_vector")
    features["words"].dtype = torch.float32
    with torch.no_grad():
        z = vector(features["words"])[0]
        for u in model[-2].components(view, representation):
            z = z - (z @ u) * u
    return (z / z.norm()).numpy()


class TestBuild:
    @pytest.mark.parametrize(
        ("views", "names", "transfer_width"),
        [
            (("gru", "linear"), ["gru", "linear"], 14),
            (("linear", "gru"), ["linear", "gru"], 14),
            (("gru", "gru"), ["gru_1", "gru_2"], 16),
            (("linear", "linear"), ["linear_1", "linear_2"], 12),
            (("gru",), ["gru"], 8),
            ("linear", ["linear"], 6),
            (("gru", "linear", "gru"), ["gru_1", "linear", "gru_2"], 22),
        ],
    )
    def test_any_combination_of_views(
        self, vectors: WordVectors, sentences: list[str], views: Any, names: list[str], transfer_width: int
    ) -> None:
        d = 4
        model = fit_components(build_model(vectors, d, views, seed=0), sentences)
        assert model[-1].views == names
        assert model.get_embedding_dimension() == 2 * d
        similarity = [np.array([by_hand(model, s, name, "similarity") for s in sentences]) for name in names]
        transfer = [np.array([by_hand(model, s, name, "transfer") for s in sentences]) for name in names]
        np.testing.assert_allclose(model.encode(sentences), sum(similarity), atol=1e-5)
        features = model.encode(sentences, representation="transfer")
        assert features.shape == (len(sentences), transfer_width * d)
        np.testing.assert_allclose(features, np.concatenate(transfer, axis=1), atol=1e-5)
        for name, expected, wide in zip(names, similarity, transfer, strict=True):
            np.testing.assert_allclose(model.encode(sentences, view=name), expected, atol=1e-5)
            np.testing.assert_allclose(model.encode(sentences, view=name, representation="transfer"), wide, atol=1e-5)

    def test_order_of_modules(self, model: SentenceTransformer) -> None:
        kinds = [type(module).__name__ for module in model]
        assert kinds == ["FastTextEmbedding", "BiGRUView", "LinearMeanView", "PCRemoval", "ViewEnsemble"]

    def test_same_seed_same_weights(self, vectors: WordVectors) -> None:
        one, same, other = (build_model(vectors, 4, seed=seed).state_dict() for seed in (1, 1, 2))
        assert all(torch.equal(one[key], same[key]) for key in one)
        assert not all(torch.equal(one[key], other[key]) for key in one)

    def test_number_of_trained_parameters_is_the_papers(self) -> None:
        model = build_model((["word"], np.zeros((1, 300))), hidden_size=1024)
        trained = sum(p.numel() for p in model.parameters()) - 1  # without the temperature
        gru = 2 * (3 * 1024 * (300 + 1024) + 2 * 3 * 1024)
        assert trained == gru + 2 * 1024 * 300
        assert round(trained / 1e6, 2) == 8.76

    def test_options_reach_the_modules(self, vectors: WordVectors) -> None:
        model = build_model(
            vectors,
            hidden_size=3,
            max_seq_length=7,
            max_vocab=10,
            dtype="float16",
            train_on="mean",
            weighting="learned",
            word_counts={"the": 9, "cat": 1},
            n_components=2,
            power_iterations=5,
            temperature=0.5,
        )
        words, gru, linear, removal, ensemble = model
        assert (words.max_seq_length, words.vocab_size, words.dtype) == (7, 11, "float16")
        assert gru.train_on == "mean"
        assert isinstance(linear.word_weights, torch.nn.Parameter)
        assert linear.word_weights.tolist() == pytest.approx(words.word_weights({"the": 9, "cat": 1}, 3e-3).tolist())
        assert (removal.n_components, removal.iterations) == (2, 5)
        assert ensemble.temperature.item() == 0.5

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"views": ()}, "views must be one or more of gru, linear; got none"),
            ({"views": ("gru", "cnn")}, "got gru, cnn"),
            ({"weighting": "fixed"}, "needs word_counts"),
            ({"hidden_size": 0}, "hidden_size must be at least 1"),
            ({"n_components": -1}, "n_components 0"),
            ({"oov": "subword"}, "needs vectors with subwords"),
        ],
    )
    def test_mistakes_are_explained(self, vectors: WordVectors, options: dict[str, Any], message: str) -> None:
        with pytest.raises(UserError, match=message):
            build_model(vectors, **options)


class TestEncode:
    @pytest.mark.parametrize(("view", "other"), [("linear", BiGRUView), ("gru", LinearMeanView)])
    @pytest.mark.parametrize("representation", ["similarity", "transfer"])
    def test_the_other_view_is_not_computed(
        self, model: SentenceTransformer, sentences: list[str], view: str, other: type, representation: str
    ) -> None:
        expected = model.encode(sentences, view=view, representation=representation)
        broken = next(module for module in model if isinstance(module, other))
        for parameter in broken.parameters():
            torch.nn.init.constant_(parameter, float("nan"))
        broken.similarity_vector = broken.transfer_vector = None  # to call it is an error
        result = model.encode(sentences, view=view, representation=representation)
        np.testing.assert_array_equal(result, expected)
        with pytest.raises(TypeError):
            model.encode(sentences)

    def test_wrong_names_are_explained(self, model: SentenceTransformer) -> None:
        with pytest.raises(UserError, match="no view 'cnn'; its views are gru, linear"):
            model.encode("the cat", view="cnn")
        with pytest.raises(UserError, match="no representation 'tranfser'; choose similarity or transfer"):
            model.encode("the cat", representation="tranfser")
        with pytest.raises(ValueError, match="veiw"):
            model.encode("the cat", veiw="gru")

    @pytest.mark.parametrize("options", [{}, {"representation": "transfer"}, {"view": "linear"}], ids=str)
    def test_odd_texts_give_the_same_finite_vectors_in_any_company(
        self, model: SentenceTransformer, sentences: list[str], options: dict[str, str]
    ) -> None:
        texts = [*ODD_TEXTS, *sentences]
        expected = model.encode(texts, **options)
        assert expected.shape == (len(texts), model.encode("cat", **options).shape[0])
        assert np.isfinite(expected).all()
        # Rounding adds up over the states of the longest.
        tolerance = np.where([len(text) > 10_000 for text in texts], 1e-5, 1e-6)[:, None]
        for batch_size in (1, 3, 100):
            assert (np.abs(model.encode(texts, batch_size=batch_size, **options) - expected) < tolerance).all()
        order = np.random.default_rng(0).permutation(len(texts))
        shuffled = model.encode([texts[i] for i in order], batch_size=5, **options)
        assert (np.abs(shuffled - expected[order]) < tolerance[order]).all()

    def test_no_text_at_all(self, model: SentenceTransformer) -> None:
        assert len(model.encode([])) == 0

    def test_unicode_forms_and_case(self, cased_vectors: WordVectors) -> None:
        model = build_model(cased_vectors, hidden_size=4, seed=0)
        same = model.encode(["Café NAÏVE straße", "cafe\u0301 nai\u0308ve Straße"])
        np.testing.assert_allclose(same[0], same[1], atol=1e-6)
        us, country = model.encode(["us", "US"], view="linear")
        assert np.abs(us - country).max() > 0.1
        np.testing.assert_allclose(*model.encode(["they don't", "they don’t"]), atol=1e-6)

    def test_shapes_and_types_that_the_host_offers(self, model: SentenceTransformer, sentences: list[str]) -> None:
        plain = model.encode(sentences)
        assert plain.dtype == np.float32
        assert model.encode(sentences[0]).shape == (8,)
        tensor = model.encode(sentences, convert_to_tensor=True)
        np.testing.assert_array_equal(tensor.numpy(), plain)
        assert len(model.encode(sentences, convert_to_numpy=False)) == len(sentences)
        np.testing.assert_array_equal(model.encode(sentences, truncate_dim=3), plain[:, :3])
        unit = model.encode(sentences, normalize_embeddings=True)
        np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1, atol=1e-6)
        assert model.encode(sentences, precision="int8").dtype == np.int8
        assert model.encode(sentences, precision="ubinary").shape == (len(sentences), 1)
        np.testing.assert_array_equal(model.encode_query(sentences), plain)
        similarity = model.similarity(unit, unit)
        torch.testing.assert_close(similarity.diagonal(), torch.ones(len(sentences)))

    def test_other_outputs(self, model: SentenceTransformer, sentences: list[str]) -> None:
        by_view = torch.stack(model.encode(sentences, output_value="view_embeddings"))
        assert by_view.shape == (len(sentences), 2, 8)
        for i, view in enumerate(["gru", "linear"]):
            np.testing.assert_allclose(by_view[:, i].numpy(), model.encode(sentences, view=view), atol=1e-6)
        everything = model.encode(sentences, output_value=None)
        np.testing.assert_allclose(
            torch.stack([one["sentence_embedding"] for one in everything]).numpy(), model.encode(sentences), atol=1e-6
        )

    def test_prompts(self, model: SentenceTransformer) -> None:
        expected = model.encode("the cat")
        np.testing.assert_array_equal(model.encode("cat", prompt="the "), expected)
        model.prompts["query"] = "the "
        np.testing.assert_array_equal(model.encode("cat", prompt_name="query"), expected)

    def test_in_two_processes(self, model: SentenceTransformer, sentences: list[str]) -> None:
        texts = sentences * 3
        result = model.encode(texts, device=["cpu", "cpu"], view="linear")
        np.testing.assert_allclose(result, model.encode(texts, view="linear"), atol=1e-6)

    @pytest.mark.parametrize("how", ["pickle", "deepcopy"])
    def test_copies(self, model: SentenceTransformer, sentences: list[str], how: str) -> None:
        expected = model.encode(sentences)
        copied = pickle.loads(pickle.dumps(model)) if how == "pickle" else copy.deepcopy(model)
        np.testing.assert_array_equal(copied.encode(sentences), expected)

    def test_print_does_not_show_the_vocabulary(self, model: SentenceTransformer) -> None:
        text = str(model)
        assert "'vocab_size': " in text
        assert "yesterday" not in text
        assert len(text) < 2000


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


class TestSaveAndLoad:
    @pytest.mark.parametrize("kind", ["plain", "fp16", "weighted", "several components", "two of a kind", "subword"])
    def test_save_load_save_is_stable(
        self, vectors: WordVectors, fasttext_file: tuple[Path, Any], sentences: list[str], tmp_path: Path, kind: str
    ) -> None:
        options: dict[str, Any] = {
            "plain": {},
            "fp16": {"dtype": "float16"},
            "weighted": {"weighting": "learned", "word_counts": {"the": 5, "cat": 1}},
            "several components": {},
            "two of a kind": {"views": ("gru", "gru", "linear")},
            "subword": {"oov": "subword", "max_seq_length": None},
        }[kind]
        source = fasttext_file[0] if kind == "subword" else vectors
        model = build_model(source, hidden_size=4, seed=0, temperature=0.3, **options)
        fit_components(model, sentences, 3 if kind == "several components" else 1)
        model.save_pretrained(str(tmp_path / "one"))
        loaded = SentenceTransformer(str(tmp_path / "one"))
        loaded.save_pretrained(str(tmp_path / "two"))

        first, second = files_of(tmp_path / "one"), files_of(tmp_path / "two")
        assert sorted(first) == sorted(second)
        assert [name for name in first if first[name] != second[name]] == []
        assert {Path(name).suffix for name in first} == {".json", ".safetensors", ".md"}, "no pickle"
        for other in (loaded, SentenceTransformer(str(tmp_path / "two"))):
            for representation in ("similarity", "transfer"):
                np.testing.assert_array_equal(
                    other.encode(sentences, representation=representation),
                    model.encode(sentences, representation=representation),
                )
            assert torch.equal(other[-1].temperature, model[-1].temperature)
            assert other[0].max_seq_length == model[0].max_seq_length
            assert other.similarity_fn_name == "cosine"

    def test_vectors_stay_frozen_and_views_trainable(self, model: SentenceTransformer, tmp_path: Path) -> None:
        model.save_pretrained(str(tmp_path))
        loaded = SentenceTransformer(str(tmp_path))
        names = {name for name, _ in loaded.named_parameters()}
        assert names == {name for name, _ in model.named_parameters()}
        assert not any(name.startswith("0.") for name in names)
        assert all(parameter.requires_grad for parameter in loaded.parameters())

    def test_fp16_storage_leaves_the_views_in_float32(
        self, vectors: WordVectors, sentences: list[str], tmp_path: Path
    ) -> None:
        """The host casts all modules to the type of the first parameter of module 0, which ours has none of."""
        build_model(vectors, hidden_size=4, seed=0, dtype="float16").save_pretrained(str(tmp_path))
        loaded = SentenceTransformer(str(tmp_path))
        assert loaded[0].vectors.dtype == torch.float16
        assert {parameter.dtype for parameter in loaded.parameters()} == {torch.float32}
        assert loaded.encode(sentences).dtype == np.float32
        exact = build_model(vectors, hidden_size=4, seed=0).encode(sentences)
        np.testing.assert_allclose(loaded.encode(sentences), exact, atol=0.01)

    @pytest.mark.parametrize("stored", ["float32", "float16"])
    def test_half_precision_after_loading(self, model: SentenceTransformer, tmp_path: Path, stored: str) -> None:
        texts = ["the cat sat", "", "zzz", "the dog " * 300, "привет мир"]
        expected = {r: model.encode(texts, representation=r) for r in ("similarity", "transfer")}
        model[0].vectors = model[0].vectors.to(getattr(torch, stored))
        model.save_pretrained(str(tmp_path))
        half = SentenceTransformer(str(tmp_path)).half()
        assert {tensor.dtype for tensor in half.state_dict().values()} == {torch.float16}
        for representation, vectors in expected.items():
            result = half.encode(texts, representation=representation)
            assert result.dtype == np.float16
            assert np.isfinite(result).all()
            np.testing.assert_allclose(result.astype(np.float32), vectors, atol=0.03)
        assert np.isfinite(half.encode(texts, view="linear")).all()

    def test_says_which_mv_st_it_needs(self, model: SentenceTransformer, tmp_path: Path) -> None:
        model.save_pretrained(str(tmp_path))
        config_file = tmp_path / "config_sentence_transformers.json"
        config = json.loads(config_file.read_text())
        assert config["requirements"]["mv-st"]["specifier"] == ">=0.1"
        # What somebody without it, or with an old one, gets to read.
        config["requirements"]["mv-st"]["specifier"] = ">=99"
        config_file.write_text(json.dumps(config))
        with pytest.raises(ImportError, match=r'pip install -U "mv-st>=99"'):
            SentenceTransformer(str(tmp_path))

    def test_configuration_names_do_not_collide_in_the_root(self, model: SentenceTransformer, tmp_path: Path) -> None:
        model.save_pretrained(str(tmp_path))
        assert not (tmp_path / "config.json").exists()
        assert sorted(path.name for path in tmp_path.iterdir()) == [
            "1_BiGRUView",
            "2_LinearMeanView",
            "3_PCRemoval",
            "4_ViewEnsemble",
            "README.md",
            "config_sentence_transformers.json",
            "fasttext_embedding.json",
            "model.safetensors",
            "modules.json",
            "tokenizer.json",
        ]

    def test_is_never_written_as_pickle(self, model: SentenceTransformer, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="never as pickle"):
            model.save_pretrained(str(tmp_path), safe_serialization=False)

    @pytest.mark.parametrize("backend", ["onnx", "openvino"])
    def test_other_backends_are_refused(self, model: SentenceTransformer, tmp_path: Path, backend: Any) -> None:
        model.save_pretrained(str(tmp_path))
        with pytest.raises(UserError, match=f'backend="{backend}" is not available'):
            SentenceTransformer(str(tmp_path), backend=backend)
