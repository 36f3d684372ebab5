"""The loss: neighbouring sentences agree across views, sentences that are far apart do not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

import torch
from sentence_transformers.util import all_gather, all_gather_with_grad
from torch import Tensor, nn
from transformers import TrainerCallback

from .components import removal_module
from .errors import UserError
from .modules.words import join_batches

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

Agreement = Literal["cross", "all", "within"]


class MultiViewLoss(nn.Module):
    """Cross-view multi-positive loss of Tang and de Sa (2018).

    In a batch of N consecutive sentences every sentence shall find those at most `window` places away among all N. The
    agreement of sentences i and j is compared across the views f and g:

        a_ij = cos(f_i, g_j) + cos(g_i, f_j)
        p_ij = exp(a_ij / tau) / sum over n of exp(a_in / tau)
        loss = - mean of log p_ij over all i, j with |i - j| <= window in one document

    The mean runs over pairs, so that the value does not depend on batch size or window. The temperature tau is trained
    with the model, in whose ViewEnsemble it lives.

    Requirements:
        1. Batches of consecutive sentences: `ContiguousBatchSampler` with one sentence per row, or `window_dataset`
           with one window per row, which may be shuffled.
        2. A model made by `build_model`.

    Inputs:
        +---------------------------------------------+--------------------------------------+
        | Columns                                     | Labels                               |
        +=============================================+======================================+
        | sentence, in corpus order                   | document id, or none (one document)  |
        +---------------------------------------------+--------------------------------------+
        | sentence_00, sentence_01, ... (one window)  | ignored                              |
        +---------------------------------------------+--------------------------------------+

    Relations:
        `MultipleNegativesRankingLoss` has one positive per sentence and one encoder; here a sentence has up to
        2 x window + 1 positives, and each is scored by the other encoder.

    Args:
        model: The model to train.
        window: How far apart neighbours may be, c in the paper.
        agreement: Which pairs of views are compared: `"cross"` (each with every other), `"within"` (each with itself),
            or `"all"`. A model with one view compares it with itself.
        include_self: Whether a sentence is its own neighbour, as in the paper. If not, it is left out altogether: no
            sentence has to find itself, nor to be found less than its neighbours are.
        gather_across_devices: Take the sentences of all processes as candidates; gradients then equal those of one
            process with the whole batch. Neighbours are always sentences of the same process: each has a run of its
            own, as if the sentences of another process were of other documents, even if a document goes on there.
        blocks: Number of runs of consecutive sentences that the sampler puts into a batch.

    Example:
        >>> import numpy as np
        >>> from mv_st import build_model
        >>> words = ["one", "two", "three", "four", "five"]
        >>> model = build_model((words, np.eye(5, dtype=np.float32)), hidden_size=4, seed=0).train()
        >>> loss = MultiViewLoss(model, window=1)
        >>> value = loss([model.preprocess(words)], labels=torch.tensor([0, 0, 0, 1, 1]))
        >>> value.backward()
    """

    def __init__(
        self,
        model: SentenceTransformer,
        window: int = 3,
        agreement: Agreement = "cross",
        include_self: bool = True,
        gather_across_devices: bool = False,
        blocks: int = 1,
    ) -> None:
        super().__init__()
        if window < 0 or (window == 0 and not include_self):
            raise UserError(f"window={window} leaves no neighbours; it must be at least {0 if include_self else 1}")
        if agreement not in ("cross", "all", "within"):
            raise UserError(f"agreement must be cross, all or within, not {agreement!r}")
        self.model = model
        self.window = window
        self.agreement = agreement
        self.include_self = include_self
        self.gather_across_devices = gather_across_devices
        self.blocks = blocks
        self._curves = _RunningMeans()
        removal = removal_module(model)
        removal.across_devices = gather_across_devices
        self.view_names = list(removal.widths)

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        """Compute the loss of a batch."""
        columns = list(sentence_features)
        features = self.model(join_batches(columns))
        views: Tensor = features["view_embeddings"]  # (N, views, width)
        temperature = features["temperature"].mean()
        document, position = self._places(columns, labels, len(views))

        candidates = views
        own_rows = slice(0, len(views))
        if self.gather_across_devices and _world_size() > 1:
            candidates = all_gather_with_grad(views)
            start = torch.distributed.get_rank() * len(views)
            own_rows = slice(start, start + len(views))

        scores = agreement_scores(views, candidates, self.agreement) / temperature  # (N, candidates)
        if not self.include_self:
            itself = torch.arange(len(views), device=scores.device)
            scores = scores.index_put((itself, itself + own_rows.start), scores.new_tensor(float("-inf")))
        positive = neighbours(document, position, self.window, self.include_self)  # (N, N)
        count = positive.sum()
        # -log p_ij = log sum_n exp(s_in) - s_ij, summed over the positive pairs.
        total = (scores.logsumexp(dim=1) * positive.sum(dim=1)).sum() - scores[:, own_rows][positive].sum()
        if self.gather_across_devices and _world_size() > 1:
            # Processes average their gradients, so that each has to contribute its share times their number.
            count = all_gather(count.reshape(1)).sum() / _world_size()
        loss = total / count.clamp(min=1)
        self._record(loss, temperature, views, document, position)
        return loss

    def _places(self, columns: list[dict[str, Tensor]], labels: Tensor | None, count: int) -> tuple[Tensor, Tensor]:
        """For each sentence the document (or block, or window) it belongs to, and its position there, both (N,)."""
        device = columns[0]["sentence_lengths"].device
        if len(columns) > 1:
            # Joined column by column: sentence w * rows + r is the w-th of window r.
            rows = count // len(columns)
            index = torch.arange(count, device=device)
            return index % rows, index // rows
        position = torch.arange(count, device=device)
        if count % self.blocks:
            raise UserError(f"a batch of {count} sentences cannot be divided into {self.blocks} blocks")
        block = position // (count // self.blocks)
        if labels is None:
            return block, position
        # Two runs of one document in different blocks are not neighbours: number the pairs (document, block).
        numbers = torch.unique(torch.stack([labels.to(device).long(), block]), dim=1, return_inverse=True)[1]
        return numbers, position

    @torch.no_grad()
    def _record(self, loss: Tensor, temperature: Tensor, views: Tensor, document: Tensor, position: Tensor) -> None:
        """Keep what the paper's figure shows: mean cosine of adjacent sentences / tau, for each pair of views."""
        values = {"loss": loss.detach(), "temperature": temperature.detach()}
        order = torch.argsort(document * len(position) + position)
        first, second = order[:-1], order[1:]
        adjacent = (document[first] == document[second]) & (position[second] - position[first] == 1)
        first, second = first[adjacent], second[adjacent]
        names = self.view_names
        for u in range(len(names)):
            for v in range(u, len(names)):
                cosine = (views[first, u] * views[second, v]).sum(dim=1).mean()
                if u != v:
                    cosine = (cosine + (views[first, v] * views[second, u]).sum(dim=1).mean()) / 2
                values[f"agreement_{names[u]}_{names[v]}"] = cosine / temperature
        self._curves.add(values)

    def pop_curves(self) -> dict[str, float]:
        """Means since the last call: loss, temperature, and the agreement of adjacent sentences per pair of views."""
        return self._curves.pop()

    def get_config_dict(self) -> dict[str, Any]:
        """The settings, for the model card."""
        return {
            "window": self.window,
            "agreement": self.agreement,
            "include_self": self.include_self,
            "gather_across_devices": self.gather_across_devices,
            "blocks": self.blocks,
        }

    @property
    def citation(self) -> str:
        """How to cite the method."""
        return CITATION


def agreement_scores(rows: Tensor, columns: Tensor, agreement: Agreement) -> Tensor:
    """Sum of the cosines between the chosen pairs of views.

    Args:
        rows: Normalised views of N sentences, shape (N, views, width).
        columns: The same of M sentences.
        agreement: Which pairs: `"cross"`, `"within"` or `"all"`.

    Returns:
        Shape (N, M).
    """
    views = rows.shape[1]
    scores = rows.new_zeros(len(rows), len(columns))
    for u in range(views):
        for v in range(views):
            is_wanted = agreement == "all" or (u == v) == (agreement == "within") or views == 1
            if is_wanted:
                scores = torch.addmm(scores, rows[:, u], columns[:, v].T)
    return scores


def neighbours(document: Tensor, position: Tensor, window: int, include_self: bool) -> Tensor:
    """Which pairs of sentences are at most `window` places apart in one document, shape (N, N).

    Example:
        >>> neighbours(torch.tensor([0, 0, 1]), torch.arange(3), window=2, include_self=False).int().tolist()
        [[0, 1, 0], [1, 0, 0], [0, 0, 0]]
    """
    distance = (position.unsqueeze(0) - position.unsqueeze(1)).abs()
    near = (distance <= window) & (document.unsqueeze(0) == document.unsqueeze(1))
    return near if include_self else near & (distance > 0)


class LossCurves(TrainerCallback):
    """Adds the curves of a `MultiViewLoss` to what the trainer logs.

    Args:
        loss: The loss that is being trained with.
    """

    def __init__(self, loss: MultiViewLoss) -> None:
        self.loss = loss

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **kwargs: Any) -> None:
        """Add the means since the last log to the log and to the history."""
        if logs is None or "loss" not in logs:
            return
        curves = self.loss.pop_curves()
        curves.pop("loss", None)  # the trainer has its own
        logs.update(curves)
        if state.log_history:
            state.log_history[-1].update(curves)


class _RunningMeans:
    """Means of named scalars, kept as tensors so that no step waits for them."""

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.count = 0

    def add(self, values: dict[str, Tensor]) -> None:
        for name, value in values.items():
            self.sums[name] = self.sums[name] + value if name in self.sums else value
        self.count += 1

    def pop(self) -> dict[str, float]:
        means = {name: float(total) / self.count for name, total in self.sums.items()}
        self.sums, self.count = {}, 0
        return means


def _world_size() -> int:
    distributed = torch.distributed
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


CITATION = """
@article{tang2018multiview,
    title = {Multi-view Sentence Representation Learning},
    author = {Shuai Tang and Virginia R. de Sa},
    journal = {arXiv preprint arXiv:1805.07443},
    year = {2018},
}
"""
