from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mteb
import numpy as np
import pytest
from mteb.cache import ResultCache
from sentence_transformers import SentenceTransformer
from toy_tasks import WORDS

from mv_st.components import encode_adapted, encode_transductive
from mv_st.errors import UserError
from mv_st.evaluation.encoder import EvaluationEncoder, as_mteb_model, fingerprint
from mv_st.evaluation.sts import STS13

LEFT = ["the film was good", "a dull plot", "the film was good", "music"]
RIGHT = ["a great story", "the actor was poor", "scene", "a dull plot"]


def counted(model: SentenceTransformer, calls: list[str]) -> SentenceTransformer:
    encode = model.encode

    def counting(sentences: list[str], **options: Any) -> np.ndarray:
        calls.extend(sentences)
        return encode(sentences, **options)

    model.encode = counting  # type: ignore[method-assign]
    return model


def test_every_distinct_sentence_is_encoded_once(static: SentenceTransformer) -> None:
    expected = [static.encode(LEFT), static.encode(RIGHT)]
    calls: list[str] = []
    encoder = EvaluationEncoder(counted(static, calls), "static")
    for _ in range(2):
        for vectors, wanted in zip(encoder.encode_groups([LEFT, RIGHT], "similarity"), expected, strict=True):
            np.testing.assert_array_equal(vectors, wanted)
    assert sorted(calls) == sorted({*LEFT, *RIGHT})


def test_the_memory_for_vectors_is_bounded_and_results_do_not_depend_on_it(static: SentenceTransformer) -> None:
    expected = static.encode(LEFT + RIGHT)
    room_for_three = 3 * 16 * 4
    encoder = EvaluationEncoder(static, "static", cache_bytes=room_for_three)
    for _ in range(2):
        np.testing.assert_array_equal(encoder.encode_groups([LEFT + RIGHT], "similarity")[0], expected)
    assert encoder._cache.bytes == 0
    for start in range(0, 8, 2):
        part = encoder.encode_groups([(LEFT + RIGHT)[start : start + 2]], "similarity")[0]
        np.testing.assert_array_equal(part, expected[start : start + 2])
    assert encoder._cache.bytes == room_for_three


def test_our_models_give_each_task_its_representation(multi_view: SentenceTransformer) -> None:
    encoder = EvaluationEncoder(multi_view, "ours")
    assert encoder.component_mode == "stored"
    (similarity,), (transfer,) = (encoder.encode_groups([LEFT], kind) for kind in ("similarity", "transfer"))
    np.testing.assert_allclose(similarity, multi_view.encode(LEFT), atol=1e-6)
    np.testing.assert_allclose(transfer, multi_view.encode(LEFT, representation="transfer"), atol=1e-6)
    assert similarity.shape[1] == 12
    assert transfer.shape[1] == 84
    linear = EvaluationEncoder(multi_view, "ours", view="linear").encode_groups([LEFT], "similarity")[0]
    np.testing.assert_allclose(linear, multi_view.encode(LEFT, view="linear"), atol=1e-6)


def test_adapted_components_are_fitted_on_each_side(multi_view: SentenceTransformer) -> None:
    encoder = EvaluationEncoder(multi_view, "ours", "adapted")
    assert encoder.component_mode == "adapted"
    # It takes ten sentences that differ to trust one component.
    rng = np.random.default_rng(2)
    lists = [[" ".join(rng.choice(WORDS, count)) for _ in range(500)] for count in (2, 3)]
    left, right = encoder.encode_groups(lists, "similarity")
    np.testing.assert_allclose(left, encode_adapted(multi_view, lists[0]), atol=1e-6)
    np.testing.assert_allclose(right, encode_adapted(multi_view, lists[1]), atol=1e-6)
    assert not np.allclose(left, multi_view.encode(lists[0]), atol=1e-3)


def test_transductive_components_are_fitted_on_each_side_or_on_both(multi_view: SentenceTransformer) -> None:
    apart = EvaluationEncoder(multi_view, "ours", "transductive").encode_groups([LEFT, RIGHT], "similarity")
    joint = EvaluationEncoder(multi_view, "ours", "transductive-joint").encode_groups([LEFT, RIGHT], "similarity")
    np.testing.assert_allclose(apart[0], encode_transductive(multi_view, LEFT), atol=1e-6)
    np.testing.assert_allclose(apart[1], encode_transductive(multi_view, RIGHT), atol=1e-6)
    both = encode_transductive(multi_view, LEFT + RIGHT)
    np.testing.assert_allclose(np.concatenate(joint), both, atol=1e-6)
    assert not np.allclose(apart[0], joint[0], atol=1e-3)


def test_what_does_not_apply_to_other_models_is_refused(static: SentenceTransformer) -> None:
    with pytest.raises(UserError, match="transductive components do not apply"):
        EvaluationEncoder(static, "static", "transductive")
    with pytest.raises(UserError, match="view 'linear' does not apply"):
        EvaluationEncoder(static, "static", view="linear")
    with pytest.raises(UserError, match="must be one of stored"):
        EvaluationEncoder(static, "static", "fitted")  # type: ignore[arg-type]
    assert EvaluationEncoder(static, "static").component_mode == "none"


def test_fingerprint_follows_the_weights(make_static: Callable[[int], SentenceTransformer]) -> None:
    assert fingerprint(make_static(1)) == fingerprint(make_static(1))
    assert fingerprint(make_static(1)) != fingerprint(make_static(2))
    assert fingerprint(make_static(1).half()) != fingerprint(make_static(1))


def test_mteb_cache_does_not_mix_up_models(
    make_static: Callable[[int], SentenceTransformer], data_dir: Path, tmp_path: Path
) -> None:
    """Models without a name share one entry in mteb's cache; wrapped ones do not, even if their names are equal."""
    cache = ResultCache(tmp_path / "cache")

    def score(model: Any) -> float:
        result = mteb.evaluate(model, STS13(data_dir), cache=cache, show_progress_bar=False, co2_tracker=False)
        return result.task_results[0].get_score()

    bare = [score(make_static(seed)) for seed in (1, 2)]
    assert bare[0] == pytest.approx(bare[1], abs=1e-5), (
        "mteb no longer mixes up nameless models: the wrapper may not be needed any more"
    )
    first, second, first_again = (score(as_mteb_model(make_static(seed), "same name")) for seed in (1, 2, 1))
    assert first != second
    assert first == pytest.approx(first_again, abs=1e-5)
    assert first == pytest.approx(bare[0], abs=1e-5)


def test_changed_data_is_not_served_from_the_cache(
    static: SentenceTransformer, data_dir: Path, tmp_path: Path
) -> None:
    cache = ResultCache(tmp_path / "cache")
    model = as_mteb_model(static, "static")

    def score() -> float:
        result = mteb.evaluate(model, STS13(data_dir), cache=cache, show_progress_bar=False, co2_tracker=False)
        return result.task_results[0].get_score()

    before = score()
    for path in (data_dir / "sts13").iterdir():
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:9]))
    assert score() != before


def test_runs_a_task_of_mteb_itself(static: SentenceTransformer) -> None:
    from datasets import Dataset
    from mteb.tasks import STSBenchmarkSTS

    class Local(STSBenchmarkSTS):
        metadata = STSBenchmarkSTS.metadata.model_copy(update={"name": "LocalSTS", "superseded_by": None})

        def load_data(self, **kwargs: Any) -> None:
            rows = {"sentence1": LEFT, "sentence2": RIGHT, "score": [3.0, 1.0, 0.5, 4.0]}
            self.dataset = {"test": Dataset.from_dict(rows)}  # type: ignore[dict-item]
            self.data_loaded = True

    model = as_mteb_model(static, "static")
    result = mteb.evaluate(model, Local(), cache=None, show_progress_bar=False, co2_tracker=False)
    assert -1 <= result.task_results[0].get_score() <= 1
