"""With two processes that gather, the gradient is that of one process with the whole batch."""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch.nn.parallel import DistributedDataParallel
from toy_corpus import start_ranks, toy_documents, toy_vectors, wait_for

from mv_st import MultiViewLoss, build_model

SENTENCES = [sentence for document in toy_documents(3) for sentence in document]  # 24, 8 per document
HALF = len(SENTENCES) // 2
# Document 1 lies across the border; in the second list it ends there.
ACROSS = [0] * 8 + [1] * 8 + [2] * 8
ENDS_THERE = [0] * 8 + [1] * 4 + [3] * 4 + [2] * 8

CASES = [
    {"views": views, "agreement": agreement, "blocks": blocks, "include_self": include_self}
    for (views, agreement), (blocks, include_self) in product(
        [(("gru", "linear"), "cross"), (("linear", "linear"), "all"), (("gru",), "within")],
        [(1, True), (2, False)],
    )
]


def build(views: tuple[str, ...]) -> SentenceTransformer:
    model = build_model(toy_vectors(), hidden_size=3, views=views, temperature=0.3, seed=0)
    return model.double().train()


def gradients(model: SentenceTransformer) -> dict[str, torch.Tensor]:
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


def compute(case: dict[str, Any], share: slice, gather: bool, documents: list[int], blocks: int) -> dict[str, Any]:
    """Loss and gradients of a part of the batch, through DDP if there are several processes."""
    model = build(case["views"])
    loss = MultiViewLoss(
        model,
        window=2,
        agreement=case["agreement"],
        include_self=case["include_self"],
        gather_across_devices=gather,
        blocks=blocks,
    )
    if torch.distributed.is_initialized():
        loss.model = DistributedDataParallel(model)
    value = loss([model.preprocess(SENTENCES[share])], torch.tensor(documents[share]))
    value.backward()
    return {"loss": value.item(), "gradients": gradients(model)}


def one_rank(rank: int, environment: dict[str, str], folder: str) -> None:
    os.environ.update(environment)
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    share = slice(rank * HALF, (rank + 1) * HALF)
    results = [
        {gather: compute(case, share, gather, ACROSS, case["blocks"]) for gather in (True, False)} for case in CASES
    ]
    torch.save(results, Path(folder, f"{rank}.pt"))


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[list[dict[bool, dict[str, Any]]]]:
    folder = tmp_path_factory.mktemp("ranks")
    assert wait_for(start_ranks(one_rank, str(folder))) == [0, 0]
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


@pytest.mark.parametrize("number", range(len(CASES)))
def test_gradients_equal_those_of_the_whole_batch(ranks: list, number: int) -> None:
    case = CASES[number]
    # The second process has a run of its own: to the whole batch, its part of document 1 is another document.
    whole = compute(case, slice(None), False, ENDS_THERE, 2 * case["blocks"])
    for rank in range(2):
        shared = ranks[rank][number][True]["gradients"]
        assert shared.keys() == whole["gradients"].keys()
        for name, gradient in whole["gradients"].items():
            assert gradient.abs().max() > 1e-6, f"{name} would pass with any wrong sign"
            torch.testing.assert_close(shared[name], gradient, atol=1e-12, rtol=1e-9)
    mean_loss = sum(ranks[rank][number][True]["loss"] for rank in range(2)) / 2
    assert mean_loss == pytest.approx(whole["loss"], abs=1e-12)


def test_a_document_that_goes_on_in_another_process_is_another_document(ranks: list) -> None:
    case = CASES[0]
    joined = compute(case, slice(None), False, ACROSS, 1)
    gathered = ranks[0][0][True]["gradients"]
    assert not torch.allclose(gathered["4.temperature"], joined["gradients"]["4.temperature"], rtol=1e-4)


def test_without_gathering_each_process_has_its_own_batch(ranks: list) -> None:
    for rank in range(2):
        share = slice(rank * HALF, (rank + 1) * HALF)
        alone = compute(CASES[0], share, False, ACROSS, 1)
        assert ranks[rank][0][False]["loss"] == pytest.approx(alone["loss"], abs=1e-12)
    assert ranks[0][0][False]["loss"] != pytest.approx(ranks[0][0][True]["loss"], abs=1e-3)
