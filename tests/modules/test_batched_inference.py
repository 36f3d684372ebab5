"""The loop behind `encode` against the host library's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from mv_st import build_model, export_static, fit_components
from mv_st.errors import UserError
from mv_st.modules import LinearMeanView, batched_inference
from mv_st.vectors import WordVectors

HOSTS_LOOP = SentenceTransformer._inference.__wrapped__  # type: ignore[attr-defined]


@pytest.fixture
def texts(vectors: WordVectors) -> list[str]:
    """1,200 texts of 0 to 60 words."""
    random = np.random.default_rng(0)
    lengths = np.clip(random.gamma(1.5, 6.0, 1200), 0, 60).astype(int)
    return [" ".join(random.choice([*vectors.words, "unknown"], length)) for length in lengths]


@pytest.fixture(params=[1, 2, 3])
def threads(request: pytest.FixtureRequest) -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def encode_by_host(
    model: SentenceTransformer, texts: list[str], monkeypatch: pytest.MonkeyPatch, **options: Any
) -> Any:
    with monkeypatch.context() as patch:
        patch.setattr(SentenceTransformer, "_inference", HOSTS_LOOP)
        return model.encode(texts, **options)


def forbid_our_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise AssertionError("our loop ran")

    monkeypatch.setattr(batched_inference, "_encode", fail)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"view": "linear"},
        {"view": "gru"},
        {"representation": "transfer"},
        {"view": "linear", "representation": "transfer"},
        {"normalize_embeddings": True, "truncate_dim": 5},
        {"prompt": "the happy "},
        {"batch_size": 7},
        {"convert_to_tensor": True},
        {"precision": "int8"},
    ],
    ids=str,
)
def test_equals_the_hosts_loop(
    model: SentenceTransformer,
    texts: list[str],
    options: dict[str, Any],
    threads: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = encode_by_host(model, texts, monkeypatch, **options)
    with monkeypatch.context() as patch:
        patch.setattr(batched_inference, "FEW_CHARACTERS", 300)
        result = model.encode(texts, **options)
    assert type(result) is type(expected)
    assert result.dtype == expected.dtype
    np.testing.assert_allclose(np.asarray(result), np.asarray(expected), atol=1 if "precision" in options else 1e-5)
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("whitening", [0.0, 0.5])
@pytest.mark.parametrize("stored", ["float32", "float16"])
@pytest.mark.parametrize("weighting", ["none", "learned"])
@pytest.mark.parametrize("views", [("gru", "linear"), ("linear", "linear")], ids=str)
def test_folded_maps_change_nothing(
    vectors: WordVectors,
    texts: list[str],
    whitening: float,
    stored: Any,
    weighting: Any,
    views: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts = {"the": 9, "cat": 1}
    model = build_model(vectors, 4, views, dtype=stored, weighting=weighting, word_counts=counts, seed=0)
    fit_components(model, texts[:300], 2, whitening=whitening)
    assert len(texts) >= batched_inference.ENOUGH_TO_FOLD
    names = [module.name for module in model if isinstance(module, LinearMeanView)]
    assert sorted(batched_inference.fold_maps(model)) == names
    # Whitening makes rounding errors louder, in the host's loop as in ours.
    tolerance = 1e-3 if whitening else 1e-5
    for options in ({}, {"view": names[0]}, {"representation": "transfer"}):
        expected = encode_by_host(model, texts, monkeypatch, **options)
        np.testing.assert_allclose(model.encode(texts, **options), expected, atol=tolerance)


def test_folding_is_exact_algebra(vectors: WordVectors, texts: list[str]) -> None:
    model = fit_components(build_model(vectors, 4, seed=0), texts[:300], 2, whitening=0.5).double()
    view, removal = model[2], model[3]
    rows = torch.randn(9, 6, dtype=torch.float64)
    expected = removal.clean(rows @ view.linear.weight.t(), "linear")
    torch.testing.assert_close(rows @ batched_inference.fold_maps(model)["linear"], expected, rtol=1e-9, atol=1e-12)


def test_folding_follows_the_weights(model: SentenceTransformer, texts: list[str]) -> None:
    before = model.encode(texts, view="linear")
    torch.nn.init.normal_(model[2].linear.weight)
    assert np.abs(model.encode(texts, view="linear") - before).max() > 0.1


def test_batches_hold_every_text_once_and_stay_small() -> None:
    lengths = np.sort(np.random.default_rng(0).integers(0, 3000, 5000))[::-1]
    parts = list(batched_inference._parts(lengths, 100, threads=2))
    assert [i for part in parts for i in range(part.start, part.stop)] == list(range(5000))
    for part in parts:
        count = part.stop - part.start
        assert count <= 100
        assert count == 1 or lengths[part].sum() <= 100 * batched_inference.CHARACTERS_PER_SENTENCE
    huge = np.array([1_000_000, 5, 5])
    assert [part.stop for part in batched_inference._parts(huge, 100, threads=2)] == [1, 3]


def test_there_is_work_for_all_threads() -> None:
    lengths = np.full(2000, 50)
    assert len(list(batched_inference._parts(lengths, 512, threads=2))) >= 2 * batched_inference.BATCHES_PER_THREAD
    assert len(list(batched_inference._parts(lengths[:20], 512, threads=2))) == 1


def test_other_models_outputs_and_devices_are_left_to_the_host(
    model: SentenceTransformer, texts: list[str], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    static = export_static(model, tmp_path / "static")
    forbid_our_loop(monkeypatch)
    assert len(static.encode(texts)) == len(texts)
    assert len(model.encode(texts[:5], output_value="view_embeddings")) == 5
    assert len(model.encode([])) == 0
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert len(model.encode(texts[:5])) == 5
    with pytest.raises(AssertionError, match="our loop ran"):
        model.encode(texts[:5])
    with pytest.raises(AssertionError, match="our loop ran"):
        model.encode(texts[:5], device="cpu")
    model.to("meta")
    with pytest.raises(Exception, match=r"(?i)meta"):
        model.encode(texts[:5])


def test_mistakes_come_out_of_the_threads(model: SentenceTransformer, texts: list[str], threads: int) -> None:
    with pytest.raises(UserError, match="no view 'cnn'"):
        model.encode(texts, view="cnn")
    assert torch.get_num_threads() == threads
    assert len(model.encode(texts)) == len(texts)


def test_shows_progress(model: SentenceTransformer, texts: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    model.encode(texts, show_progress_bar=True)
    assert "100%" in capfd.readouterr().err
    model.encode(texts)
    assert capfd.readouterr().err == ""


def test_an_unknown_host_keeps_its_own_loop() -> None:
    class OtherHost:
        def _inference(self, inputs: list[str], *, batch_size: int) -> None: ...

    class OlderHost:
        pass

    loop = OtherHost._inference
    for host in (OtherHost, OlderHost):
        batched_inference.install(host, object)
    assert OtherHost._inference is loop
    assert not hasattr(OlderHost, "_inference")
