"""Batches of consecutive sentences: the order of the corpus is what the model learns from."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator

import numpy as np
import torch
from datasets import Dataset
from sentence_transformers.base.sampler import DefaultBatchSampler

from mv_st.errors import UserError

logger = logging.getLogger(__name__)


class ContiguousBatchSampler(DefaultBatchSampler):
    """Batches of N consecutive rows, or of several shorter runs of such rows, in an order that changes by epoch.

    The corpus is cut into runs of N / `blocks` rows. Each batch joins `blocks` runs drawn from all over the corpus, so
    that its rows k * N / blocks to (k + 1) * N / blocks - 1 are block k. In an epoch every row is used once, except a
    remainder that is smaller than one batch per process (its size is logged, and `remainder` tells it). Which rows are
    left out changes by epoch.

    Every process draws the same batches, and `accelerate` gives each of them its share. Their number is a multiple of
    the number of processes: no batch is lost or seen twice, and no process waits for another at the end.

    Args:
        dataset: Rows in the order of the text, such as `load_corpus` returns.
        batch_size: Number of rows N in a batch. All batches are full.
        drop_last: Taken because the host library passes it. An incomplete batch is always left out.
        valid_label_columns: Taken because the host library passes it.
        generator: Taken because the host library passes it. The order depends on `seed` and the epoch alone, so a
            resumed run goes on where it stopped.
        seed: Seed of the order.
        blocks: Number of runs in a batch. 1 as in the paper; with more, negatives come from more than one text.

    Raises:
        UserError: If `batch_size` is no multiple of `blocks`, or the dataset does not fill one batch per process.

    Examples:
        Pass the class, or `ContiguousBatchSampler.with_blocks(8)`, as `batch_sampler` of the
        `SentenceTransformerTrainingArguments`. By hand:

        >>> rows = Dataset.from_dict({"sentence": list("abcdefghij")})
        >>> sampler = ContiguousBatchSampler(rows.select(range(8)), batch_size=4)
        >>> sorted(sampler)
        [[0, 1, 2, 3], [4, 5, 6, 7]]
        >>> ContiguousBatchSampler(rows, batch_size=4, blocks=2).remainder
        2
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int,
        drop_last: bool = True,
        valid_label_columns: list[str] | None = None,
        generator: torch.Generator | None = None,
        seed: int = 0,
        blocks: int = 1,
    ) -> None:
        super().__init__(
            dataset,
            batch_size=batch_size,
            drop_last=True,
            valid_label_columns=valid_label_columns,
            generator=generator,
            seed=seed,
        )
        if blocks < 1 or batch_size % blocks:
            raise UserError(f"a batch of {batch_size} sentences cannot be divided into {blocks} blocks of equal size")
        self.blocks = blocks
        self.n_rows = len(dataset)
        # Once accelerate has wrapped this object, it passes the epoch on through `batch_sampler.sampler` alone.
        self.sampler = self  # type: ignore[assignment]
        if not len(self):
            processes = _number_of_processes()
            each = f" for each of {processes} processes" if processes > 1 else ""
            raise UserError(
                f"the corpus has {self.n_rows} sentences, too few for one batch of {batch_size}{each}: "
                "give more text, or choose a smaller batch size"
            )
        logger.info(
            "%d batches of %d sentences in an epoch; %d of %d sentences are left out",
            *(len(self), batch_size, self.remainder, self.n_rows),
        )

    @classmethod
    def with_blocks(cls, blocks: int) -> Callable[..., ContiguousBatchSampler]:
        """The same sampler with another number of blocks, in a form that `batch_sampler` takes and pickle can save."""
        return functools.partial(cls, blocks=blocks)

    @property
    def remainder(self) -> int:
        """Number of rows that are left out in an epoch."""
        return self.n_rows - len(self) * self.batch_size

    def __len__(self) -> int:
        batches = self.n_rows // self.batch_size
        return batches - batches % _number_of_processes()

    def __iter__(self) -> Iterator[list[int]]:
        run_length = self.batch_size // self.blocks
        random = np.random.default_rng([self.seed or 0, self.epoch])
        offset = random.integers(self.n_rows % run_length + 1)
        runs = random.permutation(self.n_rows // run_length)[: len(self) * self.blocks]
        for runs_of_batch in runs.reshape(-1, self.blocks):
            first_rows = offset + runs_of_batch * run_length
            yield (first_rows[:, None] + np.arange(run_length)).ravel().tolist()


def _number_of_processes() -> int:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_world_size()
    return 1
