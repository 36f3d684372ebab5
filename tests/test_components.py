"""Components that are fitted, stored and removed, against the singular value decomposition."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize

from mv_st import adapt_components, build_model, export_static, fit_components
from mv_st.components import (
    adaptation_matrix,
    encode_adapted,
    encode_transductive,
    removal_module,
    sentences_alike,
    top_components,
    view_vectors,
    whitening_matrix,
)
from mv_st.errors import UserError
from mv_st.modules.pc_removal import remove_components
from mv_st.vectors import WordVectors


def decaying(count: int, width: int, seed: int = 0) -> torch.Tensor:
    """Random vectors whose singular values fall by a factor each."""
    chance = torch.Generator().manual_seed(seed)
    rank = min(count, width)
    left = torch.linalg.qr(torch.randn(count, rank, generator=chance)).Q
    right = torch.linalg.qr(torch.randn(width, rank, generator=chance)).Q
    return left * (10 * 0.8 ** torch.arange(rank)) @ right.T


class TestTopComponents:
    @pytest.mark.parametrize("shape", [(500, 20), (20, 500), (30, 30), (1, 7), (7, 1)], ids=str)
    @pytest.mark.parametrize("n_components", [1, 3, 10])
    def test_equal_those_of_the_svd(self, shape: tuple[int, int], n_components: int) -> None:
        vectors = decaying(*shape)
        expected = torch.linalg.svd(vectors, full_matrices=False).Vh[:n_components]
        found = top_components(vectors, n_components)
        assert found.shape == (n_components, shape[1])
        rank = min(n_components, *shape)
        cosines = (found[:rank] * expected).sum(dim=1).abs()
        torch.testing.assert_close(cosines, torch.ones(rank), atol=1e-4, rtol=0)
        torch.testing.assert_close(found[:rank] @ found[:rank].T, torch.eye(rank), atol=1e-5, rtol=0)
        assert found[rank:].count_nonzero() == 0

    def test_plain_noise_with_a_common_direction(self) -> None:
        chance = torch.Generator().manual_seed(0)
        vectors = torch.randn(400, 32, generator=chance) + 2 * torch.randn(32, generator=chance)
        expected = torch.linalg.svd(vectors, full_matrices=False).Vh[:3]
        found = top_components(vectors, 3)
        removed, by_svd = (vectors - vectors @ u.T @ u for u in (found, expected))
        torch.testing.assert_close(removed, by_svd, atol=1e-3, rtol=0)

    @pytest.mark.parametrize(
        ("vectors", "rank"),
        [
            pytest.param(torch.zeros(5, 4), 0, id="zero"),
            pytest.param(torch.ones(5, 4), 1, id="identical"),
            pytest.param(torch.tensor([[1.0, 2, 3, 4], [-1, -2, -3, -4]]), 1, id="z and -z"),
            pytest.param(torch.eye(4)[:2].repeat(3, 1), 2, id="equal singular values"),
        ],
    )
    def test_degenerate_vectors(self, vectors: torch.Tensor, rank: int) -> None:
        found = top_components(vectors, 3)
        assert torch.isfinite(found).all()
        assert found.norm(dim=1).tolist() == pytest.approx([1.0] * rank + [0.0] * (3 - rank), abs=1e-5)
        torch.testing.assert_close(vectors - vectors @ found.T @ found, torch.zeros_like(vectors), atol=1e-5, rtol=0)

    def test_none(self) -> None:
        assert top_components(decaying(9, 5), 0).shape == (0, 5)

    def test_stops_when_nothing_moves(self, monkeypatch: pytest.MonkeyPatch) -> None:
        calls = []
        svd = torch.linalg.svd

        def counted(*args: object, **options: object) -> object:
            calls.append(1)
            return svd(*args, **options)

        monkeypatch.setattr(torch.linalg, "svd", counted)
        top_components(decaying(500, 40), 3)
        assert len(calls) < 60


class TestFitComponents:
    @pytest.mark.parametrize("n_components", [0, 1, 3])
    def test_removes_the_components_of_the_sentences(
        self, vectors: WordVectors, sentences: list[str], n_components: int
    ) -> None:
        model = build_model(vectors, hidden_size=4, seed=0)
        assert fit_components(model, sentences, n_components) is model
        assert model[3].n_components == n_components
        for representation in ("similarity", "transfer"):
            for name, raw in view_vectors(model, sentences, representation).items():
                top = torch.linalg.svd(raw, full_matrices=False).Vh[:n_components]
                expected = torch.nn.functional.normalize(raw - raw @ top.T @ top)
                found = model.encode(sentences, view=name, representation=representation)
                np.testing.assert_allclose(found, expected.numpy(), atol=1e-4)

    def test_again_with_another_number(self, model: SentenceTransformer, sentences: list[str], tmp_path: Path) -> None:
        before = model.encode(sentences)
        fit_components(model, sentences, 2)
        assert model[3].components("gru", "transfer").shape == (2, 32)
        assert np.abs(model.encode(sentences) - before).max() > 1e-3
        model.save_pretrained(str(tmp_path))
        assert SentenceTransformer(str(tmp_path))[3].n_components == 2

    def test_does_not_depend_on_what_was_stored(self, model: SentenceTransformer, sentences: list[str]) -> None:
        once = fit_components(model, sentences, 2).encode(sentences)
        np.testing.assert_array_equal(fit_components(model, sentences, 2).encode(sentences), once)

    def test_sample_depends_on_the_seed_alone(self, model: SentenceTransformer, sentences: list[str]) -> None:
        def components(seed: int, max_sentences: int = 5) -> torch.Tensor:
            return fit_components(model, sentences, max_sentences=max_sentences, seed=seed)[3].components("linear")

        assert torch.equal(components(0), components(0))
        assert not torch.allclose(components(0).abs(), components(1).abs(), atol=1e-3)
        assert torch.equal(components(0, 100), components(1, 100)), "all sentences, no sample"

    def test_one_representation_alone(self, model: SentenceTransformer, sentences: list[str]) -> None:
        transfer = model[3].components("gru", "transfer").clone()
        similarity = model[3].components("gru").clone()
        fit_components(model, sentences[:4], representations=["similarity"])
        assert torch.equal(model[3].components("gru", "transfer"), transfer)
        assert not torch.allclose(model[3].components("gru"), similarity)

    @pytest.mark.parametrize("training", [True, False])
    def test_mode_of_the_model_is_kept(self, model: SentenceTransformer, sentences: list[str], training: bool) -> None:
        expected = model[3].components("gru").clone()
        fit_components(model.train(training), sentences)
        assert {module.training for module in model.modules()} == {training}
        torch.testing.assert_close(model[3].components("gru"), expected)  # the mean state, not the training vector
        with pytest.raises(UserError):
            fit_components(model, ["the cat", None])  # type: ignore[list-item]
        assert {module.training for module in model.modules()} == {training}, "after an error, too"

    def test_can_still_be_trained(self, model: SentenceTransformer, sentences: list[str]) -> None:
        fit_components(model, sentences)
        model.load_state_dict(model.state_dict())  # as a trainer does with the best checkpoint
        model.train()
        model(model.preprocess(sentences))["view_embeddings"].sum().backward()
        assert model[1].gru.weight_hh_l0.grad is not None

    def test_mistakes_are_explained(self, model: SentenceTransformer, sentences: list[str]) -> None:
        with pytest.raises(UserError, match="no sentences given"):
            fit_components(model, [])
        with pytest.raises(UserError, match="expected a list of texts, got one text: 'the cat'"):
            fit_components(model, "the cat")
        with pytest.raises(UserError, match="n_components must be 0 or more"):
            fit_components(model, sentences, -1)
        with pytest.raises(UserError, match="no representation 'similar'"):
            fit_components(model, sentences, representations=["similar"])
        with pytest.raises(UserError, match="same number of components"):
            fit_components(model, sentences, 2, representations=["similarity"])
        assert model[3].n_components == 1
        with pytest.raises(UserError, match="no PCRemoval module"):
            removal_module(SentenceTransformer(modules=[model[0], Normalize()]))


class TestTransductive:
    @pytest.mark.parametrize("representation", ["similarity", "transfer"])
    @pytest.mark.parametrize("view", [None, "gru", "linear"])
    @pytest.mark.parametrize("n_components", [1, 2])
    def test_equals_fitting_on_the_same_sentences(
        self, model: SentenceTransformer, sentences: list[str], representation: str, view: str, n_components: int
    ) -> None:
        stored = model.state_dict()
        found = encode_transductive(model, sentences, n_components, representation, view)
        assert all(torch.equal(stored[key], value) for key, value in model.state_dict().items())
        fit_components(model, sentences, n_components)
        expected = model.encode(sentences, representation=representation, view=view)
        np.testing.assert_allclose(found, expected, atol=1e-5)

    def test_wrong_view_is_named(self, model: SentenceTransformer) -> None:
        with pytest.raises(UserError, match="no view 'cnn'; its views are gru, linear"):
            encode_transductive(model, ["the cat"], view="cnn")

    def test_many_batches_come_back_in_order(self, model: SentenceTransformer, sentences: list[str]) -> None:
        texts = [" ".join(sentences[: 1 + i % 7]) for i in range(600)]
        found = view_vectors(model, texts)["linear"]
        torch.testing.assert_close(found, view_vectors(model, texts[::-1])["linear"].flip(0), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(found[3], view_vectors(model, texts[3:4])["linear"][0], atol=1e-5, rtol=1e-5)

    def test_half_precision(self, model: SentenceTransformer, sentences: list[str]) -> None:
        expected = encode_transductive(model, [*sentences, ""])
        found = encode_transductive(model.half(), [*sentences, ""])
        assert np.isfinite(found).all()
        np.testing.assert_allclose(found, expected, atol=0.05)


class TestWhitening:
    """Scaling of the components that are not removed."""

    def test_full_whitening_gives_equal_variance(self) -> None:
        vectors = torch.randn(5000, 6, generator=torch.Generator().manual_seed(0)) * torch.tensor([9, 5, 3, 2, 1, 0.5])
        whitened = vectors @ whitening_matrix(vectors, 0.5)
        moments = whitened.T @ whitened / len(vectors)
        torch.testing.assert_close(moments, moments[0, 0] * torch.eye(6), atol=1e-4, rtol=1e-4)

    def test_power_is_the_power_of_the_variance(self) -> None:
        vectors = torch.diag(torch.tensor([8.0, 4.0, 2.0, 1.0])).repeat(50, 1)
        matrix = whitening_matrix(vectors, 0.25)
        expected = torch.tensor([8.0, 4.0, 2.0, 1.0]) ** -0.5  # the variances are the squares
        torch.testing.assert_close(matrix, torch.diag(expected))

    def test_few_sentences_leave_weak_components_alone(self) -> None:
        vectors = torch.diag(torch.tensor([8.0, 4.0, 2.0, 1.0])).repeat(5, 1)  # 20 sentences: two are trusted
        scales = torch.diagonal(whitening_matrix(vectors, 0.5))
        torch.testing.assert_close(scales, torch.tensor([0.5, 1.0, 1.0, 1.0]))

    def test_no_more_components_than_word_vectors_are_wide(self) -> None:
        vectors = torch.diag(torch.tensor([8.0, 4.0, 2.0, 1.0])).repeat(50, 1)
        scales = torch.diagonal(whitening_matrix(vectors, 0.5, most_components=3))
        torch.testing.assert_close(scales, torch.tensor([0.25, 0.5, 1.0, 1.0]))
        words = [f"w{i}" for i in range(30)]
        rng = np.random.default_rng(0)
        sentences = [" ".join(rng.choice(words, size=5)) for _ in range(500)]
        model = build_model((words, rng.normal(size=(30, 4))), hidden_size=8, seed=0)
        matrix = removal_module(fit_components(model, sentences, whitening=0.5)).whitening_matrix("gru")
        assert matrix is not None
        scales = torch.linalg.eigvalsh(matrix)  # ascending
        torch.testing.assert_close(scales[3:], torch.ones(13), atol=1e-4, rtol=0)
        assert scales[2] < 0.99

    def test_zero_and_one_sentence_are_finite(self) -> None:
        assert torch.isfinite(whitening_matrix(torch.zeros(3, 4), 0.5)).all()
        assert torch.isfinite(whitening_matrix(torch.ones(1, 4), 0.5)).all()

    def test_fit_encode_save_load_and_switch_off(self, tmp_path: Path) -> None:
        words = [f"w{i}" for i in range(30)]
        rng = np.random.default_rng(0)
        sentences = [" ".join(rng.choice(words, size=5)) for _ in range(300)]
        model = build_model((words, rng.normal(size=(30, 8))), hidden_size=4, seed=0)
        plain = fit_components(model, sentences).encode(sentences)
        fit_components(model, sentences, whitening=0.5)
        # By hand: remove, whiten, normalise, add.
        removal = removal_module(model)
        expected = 0
        for name, vectors in view_vectors(model, sentences).items():
            cleaned = remove_components(vectors, removal.components(name)) @ removal.whitening_matrix(name)
            expected = expected + torch.nn.functional.normalize(cleaned, dim=1)
        encoded = model.encode(sentences)
        np.testing.assert_allclose(encoded, expected.numpy(), atol=1e-5)
        assert not np.allclose(encoded, plain, atol=1e-2)
        model.save_pretrained(str(tmp_path / "model"))
        loaded = SentenceTransformer(str(tmp_path / "model"))
        np.testing.assert_array_equal(loaded.encode(sentences), encoded)
        static = export_static(loaded, tmp_path / "static")
        np.testing.assert_allclose(static.encode(sentences), loaded.encode(sentences, view="linear"), atol=1e-5)
        fit_components(loaded, sentences)  # left out: stays as it is
        np.testing.assert_allclose(loaded.encode(sentences), encoded, atol=1e-5)
        fit_components(loaded, sentences, whitening=0)
        np.testing.assert_allclose(loaded.encode(sentences), plain, atol=1e-5)

    def test_wrong_power_is_refused(self) -> None:
        model = build_model((["a", "b"], np.eye(2)), hidden_size=2, seed=0)
        with pytest.raises(UserError, match=r"between 0 and 0\.5"):
            fit_components(model, ["a b"], whitening=1.0)


class TestAdaptation:
    @pytest.mark.parametrize("whitening", [0.0, 0.5])
    def test_scales_by_the_variance_of_what_is_stored(self, whitening: float) -> None:
        model, sentences = fitted_model(whitening)
        removal = removal_module(model)
        expected = 0.0
        for name, vectors in view_vectors(model, sentences).items():
            cleaned = removal.clean(vectors, name).double().numpy()
            unit = cleaned / np.linalg.norm(cleaned, axis=1, keepdims=True)
            counts = [1 / sum(one @ other > 0.65 for other in unit) for one in unit]
            products = [count * np.outer(row, row) for count, row in zip(counts, cleaned, strict=True)]
            covariance = sum(products) / sum(counts)
            variances, directions = np.linalg.eigh(covariance)
            # A tenth as many components as there are different sentences are told apart.
            smallest = max(np.sort(variances)[-max(round(sum(counts)) // 10, 1) :][0], 1e-3 * variances.mean())
            scales = np.maximum(variances, smallest) ** -0.3
            adapted = cleaned @ directions @ np.diag(scales) @ directions.T
            expected = expected + adapted / np.linalg.norm(adapted, axis=1, keepdims=True)
        np.testing.assert_allclose(encode_adapted(model, sentences), expected, atol=1e-4)
        np.testing.assert_allclose(adapt_components(model, sentences).encode(sentences), expected, atol=1e-4)
        assert removal.whitening == (whitening or 0.3)

    def test_sentences_that_are_nearly_the_same_count_as_one(self) -> None:
        vectors = torch.randn(200, 12, generator=torch.Generator().manual_seed(0))
        vectors = vectors[sentences_alike(vectors) == 1]
        with_copies = torch.cat([vectors, vectors[:1].expand(500, -1)])
        torch.testing.assert_close(adaptation_matrix(with_copies), adaptation_matrix(vectors), atol=1e-5, rtol=0)
        without_counts = whitening_matrix(with_copies, 0.3)
        assert not torch.allclose(without_counts, whitening_matrix(vectors, 0.3), atol=0.05)

    def test_few_different_sentences_scale_few_components(self) -> None:
        directions = torch.eye(6).repeat(50, 1)  # six sentences, fifty times each
        assert sentences_alike(directions).tolist() == [50.0] * 300
        scaled = adaptation_matrix(directions * torch.tensor([4.0, 3.0, 2.0, 1.0, 1.0, 1.0]))
        # One component is trusted, and the others are scaled like it.
        torch.testing.assert_close(scaled, torch.eye(6), atol=1e-5, rtol=0)

    def test_a_handful_of_sentences_is_not_enough_and_said_to_be(self, caplog: pytest.LogCaptureFixture) -> None:
        model, sentences = fitted_model(0.5)
        before = model.encode(sentences)
        np.testing.assert_allclose(adapt_components(model, sentences[:9]).encode(sentences), before, atol=1e-6)
        assert "9 sentences change nothing" in caplog.text
        caplog.clear()
        adapt_components(model, sentences)
        assert not caplog.text

    def test_zero_vectors(self) -> None:
        assert sentences_alike(torch.zeros(3, 4)).tolist() == [1.0] * 3
        assert torch.isfinite(adaptation_matrix(torch.zeros(3, 4))).all()

    def test_transfer_features_stay(self) -> None:
        model, sentences = fitted_model(0.5)
        before = model.encode(sentences, representation="transfer")
        np.testing.assert_allclose(encode_adapted(model, sentences, "transfer"), before, atol=1e-5)
        after = adapt_components(model, sentences).encode(sentences, representation="transfer")
        np.testing.assert_array_equal(after, before)

    def test_strength_zero_changes_nothing(self) -> None:
        model, sentences = fitted_model(0.5)
        before = model.encode(sentences)
        np.testing.assert_allclose(adapt_components(model, sentences, strength=0).encode(sentences), before, atol=1e-6)

    def test_saved_and_loaded(self, tmp_path: Path) -> None:
        model, sentences = fitted_model(0.5)
        adapted = adapt_components(model, sentences)
        adapted.save_pretrained(str(tmp_path))
        loaded = SentenceTransformer(str(tmp_path))
        np.testing.assert_allclose(loaded.encode(sentences), adapted.encode(sentences), atol=1e-6)

    def test_bad_strength(self) -> None:
        model, sentences = fitted_model(0.5)
        with pytest.raises(UserError, match=r"strength must be between 0 and 0.5, not 0.7"):
            adapt_components(model, sentences, strength=0.7)


def fitted_model(whitening: float) -> tuple[SentenceTransformer, list[str]]:
    """A model with components of some sentences, and other sentences, of fewer words."""
    chance = np.random.default_rng(0)
    words = [f"w{i}" for i in range(30)]
    vectors = WordVectors(words, (chance.normal(size=(30, 8)) + 0.5).astype(np.float32))
    model = build_model(vectors, hidden_size=3, seed=0)
    texts = [[" ".join(chance.choice(words[:k], 5)) for _ in range(200)] for k in (30, 12)]
    return fit_components(model, texts[0], whitening=whitening), texts[1]
