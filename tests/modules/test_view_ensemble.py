"""The ensemble by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from mv_st.errors import UserError
from mv_st.modules import ViewEnsemble

VIEWS = {"a": [[3.0, 4.0], [0.0, 0.0]], "b": [[0.0, -2.0], [1.0, 1.0]], "c": [[5.0, 0.0], [0.0, 0.1]]}


def ensemble(names: str) -> ViewEnsemble:
    return ViewEnsemble(list(names), 2).eval()


def features(names: str) -> dict[str, Any]:
    return {"views": {name: torch.tensor(VIEWS[name]) for name in names}}


def unit(vector: list[float]) -> list[float]:
    length = math.sqrt(sum(x * x for x in vector))
    return [x / length for x in vector] if length else vector


@pytest.mark.parametrize("names", ["a", "ab", "ba", "abc"])
def test_similarity_adds_and_transfer_concatenates(names: str) -> None:
    units = {name: [unit(vector) for vector in VIEWS[name]] for name in names}
    added = [[sum(units[name][i][k] for name in names) for k in range(2)] for i in range(2)]
    result = ensemble(names)(features(names))
    torch.testing.assert_close(result["sentence_embedding"], torch.tensor(added))
    by_view = [[units[name][i] for name in names] for i in range(2)]
    torch.testing.assert_close(result["view_embeddings"], torch.tensor(by_view))

    side_by_side = [[x for name in names for x in units[name][i]] for i in range(2)]
    result = ensemble(names)(features(names), representation="transfer")
    torch.testing.assert_close(result["sentence_embedding"], torch.tensor(side_by_side))


def test_order_is_that_of_the_model_not_of_the_computation() -> None:
    result = ensemble("ab")(features("ba"), representation="transfer")["sentence_embedding"]
    assert torch.equal(result, ensemble("ab")(features("ab"), representation="transfer")["sentence_embedding"])


def test_one_view_alone() -> None:
    result = ensemble("ab")(features("b"), view="b")
    torch.testing.assert_close(result["sentence_embedding"], torch.tensor([unit(v) for v in VIEWS["b"]]))
    assert "view_embeddings" not in result


def test_transfer_views_may_differ_in_width() -> None:
    views = {"views": {"a": torch.ones(2, 6), "b": torch.ones(2, 8)}}
    assert ensemble("ab")(views, representation="transfer")["sentence_embedding"].shape == (2, 14)


def test_zero_vectors_stay_zero_in_half_precision() -> None:
    views = {"views": {"a": torch.tensor([[0.0, 0.0], [3.0, 4.0]]).half()}}
    result = ensemble("a")(views)["sentence_embedding"]
    torch.testing.assert_close(result.float(), torch.tensor([[0.0, 0.0], [0.6, 0.8]]), atol=1e-3, rtol=0)


def test_unknown_view_is_named() -> None:
    with pytest.raises(UserError, match="no view 'x'; its views are a, b"):
        ensemble("ab")({"views": {}}, view="x")


class TestTemperature:
    def test_is_a_feature_with_a_gradient_to_the_parameter(self) -> None:
        module = ViewEnsemble(["a"], 2, temperature=0.7).train()
        feature = module(features("a"))["temperature"]
        assert feature.tolist() == pytest.approx([0.7, 0.7])
        feature.sum().backward()
        assert module.temperature.grad == 2
        assert feature.data_ptr() != module.temperature.data_ptr()

    def test_stays_positive(self) -> None:
        module = ViewEnsemble(["a"], 2, temperature=-3.0)
        assert (module(features("a"))["temperature"] > 0).all()

    def test_is_saved(self, tmp_path: Path) -> None:
        module = ViewEnsemble(["a"], 2)
        module.temperature.data.fill_(0.123)
        module.save(str(tmp_path))
        loaded = ViewEnsemble.load(str(tmp_path))
        assert torch.equal(loaded.temperature, module.temperature)
        assert isinstance(loaded.temperature, torch.nn.Parameter)
