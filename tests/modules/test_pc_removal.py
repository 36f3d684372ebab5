"""Removal of components against the singular value decomposition."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from mv_st.errors import UserError
from mv_st.modules import PCRemoval
from mv_st.modules.pc_removal import top_component

WIDTH = 16


def batch(count: int, seed: int = 0, width: int = WIDTH) -> Tensor:
    """Vectors with a common direction, as sentences have."""
    chance = torch.Generator().manual_seed(seed)
    return torch.randn(count, width, generator=chance) + torch.randn(width, generator=chance)


def removed_by_svd(vectors: Tensor, count: int = 1) -> Tensor:
    top = torch.linalg.svd(vectors, full_matrices=False).Vh[:count]
    return vectors - vectors @ top.T @ top


def removal(n_components: int = 1, iterations: int = 10) -> PCRemoval:
    return PCRemoval({"gru": {"similarity": WIDTH, "transfer": 4 * WIDTH}}, n_components, iterations)


def remove(module: PCRemoval, vectors: Tensor, **options: str) -> Tensor:
    return module({"views": {"gru": vectors.clone()}}, **options)["views"]["gru"]


class TestInTraining:
    @pytest.mark.parametrize("count", [3, 15, 16, 17, 200], ids=lambda count: f"N={count}, 2d={WIDTH}")
    def test_removes_the_first_component_of_the_batch(self, count: int) -> None:
        vectors = batch(count)
        result = remove(removal(iterations=30).train(), vectors)
        torch.testing.assert_close(result, removed_by_svd(vectors), atol=1e-4, rtol=1e-4)

    @pytest.mark.parametrize("count", [8, 100])
    def test_default_number_of_iterations_is_enough(self, count: int) -> None:
        vectors = batch(count)
        angle = torch.linalg.svd(vectors, full_matrices=False).Vh[0] @ top_component(vectors, 10)
        assert angle.abs() > 0.999

    @pytest.mark.parametrize("shape", [(3, 200_000), (200_000, 3)], ids=str)
    def test_uses_the_smaller_gram_matrix(self, shape: tuple[int, int]) -> None:
        """The larger one would need 160 GB."""
        vectors = batch(shape[0], width=shape[1])
        expected = torch.linalg.svd(vectors, full_matrices=False).Vh[0]
        assert (top_component(vectors, 30) @ expected).abs() > 0.999

    def test_each_view_on_its_own(self) -> None:
        widths = {name: {"similarity": WIDTH, "transfer": WIDTH} for name in ("a", "b")}
        views = {"a": batch(30, seed=1), "b": batch(30, seed=2)}
        result = PCRemoval(widths, iterations=30).train()({"views": dict(views)})["views"]
        for name in views:
            torch.testing.assert_close(result[name], removed_by_svd(views[name]), atol=1e-4, rtol=1e-4)

    @pytest.mark.parametrize("count", [5, 40])
    def test_the_component_is_a_constant_for_the_gradient(self, count: int) -> None:
        vectors = batch(count).requires_grad_()
        module = removal().train()
        weights = batch(count, seed=9)
        (module({"views": {"gru": vectors}})["views"]["gru"] * weights).sum().backward()
        u = top_component(vectors.detach(), module.iterations)
        torch.testing.assert_close(vectors.grad, weights - torch.outer(weights @ u, u))

    @pytest.mark.parametrize(
        ("vectors", "expected"),
        [
            pytest.param(batch(1), torch.zeros(1, WIDTH), id="one sentence"),
            pytest.param(batch(1).expand(50, -1), torch.zeros(50, WIDTH), id="identical sentences, N > 2d"),
            pytest.param(batch(1).expand(5, -1), torch.zeros(5, WIDTH), id="identical sentences, N < 2d"),
            pytest.param(torch.zeros(5, WIDTH), torch.zeros(5, WIDTH), id="all zero, N < 2d"),
            pytest.param(torch.zeros(50, WIDTH), torch.zeros(50, WIDTH), id="all zero, N > 2d"),
            pytest.param(torch.cat([batch(1), -batch(1)]), torch.zeros(2, WIDTH), id="z and -z"),
            pytest.param(torch.cat([batch(1), -batch(1)] * 20), torch.zeros(40, WIDTH), id="z and -z, N > 2d"),
            pytest.param(torch.cat([batch(1), torch.zeros(3, WIDTH)]), torch.zeros(4, WIDTH), id="zero rows"),
        ],
    )
    def test_degenerate_batches(self, vectors: Tensor, expected: Tensor) -> None:
        torch.testing.assert_close(remove(removal().train(), vectors), expected, atol=1e-5, rtol=0)

    def test_zero_rows_change_nothing_for_the_others(self) -> None:
        vectors = batch(40)
        padded = torch.cat([vectors, torch.zeros(60, WIDTH)])
        module = removal(iterations=30).train()
        torch.testing.assert_close(remove(module, padded)[:40], remove(module, vectors), atol=1e-4, rtol=1e-4)

    def test_no_iterations_remove_nothing(self) -> None:
        assert torch.equal(remove(removal(iterations=0).train(), batch(9)), batch(9))

    def test_leaves_the_stored_components_alone(self) -> None:
        module = removal().train()
        remove(module, batch(9))
        assert module.components("gru").count_nonzero() == 0


class TestAtInference:
    @pytest.mark.parametrize("n_components", [1, 3])
    def test_removes_stored_components(self, n_components: int) -> None:
        module = removal(n_components).eval()
        sample = batch(300)
        top = torch.linalg.svd(sample, full_matrices=False).Vh[:n_components]
        wide = torch.linalg.qr(torch.randn(4 * WIDTH, n_components)).Q.T
        module.store({"gru": {"similarity": top, "transfer": wide}})
        torch.testing.assert_close(remove(module, sample), removed_by_svd(sample, n_components), atol=1e-5, rtol=1e-5)
        features = batch(20, width=4 * WIDTH)
        expected = features.clone()
        for u in wide:
            expected -= torch.outer(expected @ u, u)
        result = remove(module, features, representation="transfer")
        torch.testing.assert_close(result, expected, atol=1e-5, rtol=1e-5)

    def test_never_looks_at_the_batch(self) -> None:
        module = removal().eval()
        module.store({"gru": {"similarity": torch.eye(WIDTH)[:1]}})
        vectors = batch(30)
        alone = torch.cat([remove(module, row.unsqueeze(0)) for row in vectors])
        torch.testing.assert_close(alone, remove(module, vectors))

    def test_removes_nothing_before_it_is_fitted(self) -> None:
        for n_components in (0, 1, 3):
            assert torch.equal(remove(removal(n_components).eval(), batch(9)), batch(9))


class TestStoring:
    def test_all_or_nothing(self) -> None:
        module = removal()
        with pytest.raises(UserError, match="same number of components"):
            module.store({"gru": {"similarity": torch.ones(3, WIDTH)}})
        with pytest.raises(UserError, match="gru/transfer are 5, not 64 wide"):
            module.store({"gru": {"similarity": torch.ones(1, WIDTH), "transfer": torch.ones(1, 5)}})
        assert module.n_components == 1
        assert module.components("gru").count_nonzero() == 0

    @pytest.mark.parametrize("n_components", [0, 1, 4])
    def test_saves_and_loads_another_number_of_components(self, n_components: int, tmp_path: Path) -> None:
        module = removal()
        rows = {"similarity": batch(n_components), "transfer": batch(n_components, width=4 * WIDTH)}
        module.store({"gru": rows})
        module.save(str(tmp_path))
        loaded = PCRemoval.load(str(tmp_path))
        assert loaded.n_components == n_components
        for representation, expected in rows.items():
            assert torch.equal(loaded.components("gru", representation), expected)
