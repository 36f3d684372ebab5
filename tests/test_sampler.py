from __future__ import annotations

import json
import logging
import os
import pickle
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.base.sampler import DefaultBatchSampler
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from torch import nn
from torch.utils.data import DataLoader

from mv_st.corpus import window_dataset
from mv_st.errors import UserError
from mv_st.sampler import ContiguousBatchSampler


def rows(n: int) -> Dataset:
    """Row i holds the sentence "w<i>"; documents are 10 sentences long."""
    return Dataset.from_dict({"sentence": [f"w{i}" for i in range(n)], "label": [i // 10 for i in range(n)]})


def is_run(numbers: list[int]) -> bool:
    return numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def batches_of_epoch(sampler: ContiguousBatchSampler, epoch: int) -> list[list[int]]:
    sampler.set_epoch(epoch)
    return list(sampler)


@pytest.mark.parametrize("blocks", [1, 2, 4, 8])
@pytest.mark.parametrize("n", [8, 15, 64, 100, 1001])
def test_every_row_is_used_once_in_runs(n: int, blocks: int) -> None:
    sampler = ContiguousBatchSampler(rows(n), batch_size=8, drop_last=False, blocks=blocks)
    for epoch in range(5):
        batches = batches_of_epoch(sampler, epoch)
        assert len(batches) == len(sampler) == n // 8
        used = [row for batch in batches for row in batch]
        assert len(used) == len(set(used)) == n - sampler.remainder
        assert set(used) <= set(range(n))
        for batch in batches:
            assert len(batch) == 8
            length = 8 // blocks
            assert all(is_run(batch[k * length : (k + 1) * length]) for k in range(blocks))


def test_order_depends_on_seed_and_epoch_alone() -> None:
    corpus = rows(1003)
    sampler = ContiguousBatchSampler(corpus, 10, seed=3, generator=torch.Generator())
    first, second = batches_of_epoch(sampler, 0), batches_of_epoch(sampler, 1)
    assert first != second
    torch.manual_seed(99)
    again = ContiguousBatchSampler(corpus, 10, seed=3, generator=torch.Generator().manual_seed(99))
    assert batches_of_epoch(again, 1) == second
    assert batches_of_epoch(again, 0) == first
    assert batches_of_epoch(ContiguousBatchSampler(corpus, 10, seed=4), 0) != first


def test_blocks_of_a_batch_come_from_all_over_the_corpus() -> None:
    batches = list(ContiguousBatchSampler(rows(8000), batch_size=80, blocks=8))
    distances = [max(batch) - min(batch) for batch in batches]
    assert min(distances) > 1000
    partners = [batch[10] - batch[0] for batch in batches]
    assert len(set(partners)) > 90


def test_the_rows_left_out_change_by_epoch() -> None:
    sampler = ContiguousBatchSampler(rows(109), batch_size=10)
    left_out = {frozenset(range(109)).difference(*batches_of_epoch(sampler, epoch)) for epoch in range(20)}
    assert {len(rest) for rest in left_out} == {9} == {sampler.remainder}
    assert len(left_out) > 5


def test_remainder_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "mv_st"):
        ContiguousBatchSampler(rows(109), batch_size=10)
    assert "10 batches of 10 sentences in an epoch; 9 of 109 sentences are left out" in caplog.text


def test_mistakes() -> None:
    with pytest.raises(UserError, match="the corpus has 9 sentences, too few for one batch of 10:"):
        ContiguousBatchSampler(rows(9), batch_size=10)
    with pytest.raises(UserError, match="batch of 10 sentences cannot be divided into 3 blocks"):
        ContiguousBatchSampler(rows(100), batch_size=10, blocks=3)


# --- in the host library ---


class RecordingLoss(nn.Module):
    """Keeps the number in the word of every sentence it sees, one list of columns per batch."""

    def __init__(self, model: SentenceTransformer) -> None:
        super().__init__()
        self.model = model
        self.seen: list[list[list[int]]] = []
        self.labels: list[list[int] | None] = []

    def forward(self, features: list[dict[str, torch.Tensor]], labels: torch.Tensor | None) -> torch.Tensor:
        self.seen.append([column["input_ids"].tolist() for column in features])
        self.labels.append(None if labels is None else labels.tolist())
        return sum(self.model(column)["sentence_embedding"].square().mean() for column in features)


def tiny_model(n_words: int) -> SentenceTransformer:
    tokenizer = Tokenizer(WordLevel({f"w{i}": i for i in range(n_words)}, unk_token="w0"))
    tokenizer.pre_tokenizer = Whitespace()
    return SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=2)], device="cpu")


def train(folder: Path, batch_sampler: Any, resume_from: str | None = None) -> RecordingLoss:
    loss = RecordingLoss(model := tiny_model(103))
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(folder),
        num_train_epochs=3,
        per_device_train_batch_size=10,
        batch_sampler=batch_sampler,
        save_steps=5,
        seed=5,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
    )
    trainer = SentenceTransformerTrainer(model, arguments, train_dataset=rows(103), loss=loss)
    trainer.train(resume_from_checkpoint=resume_from)
    return loss


@pytest.mark.parametrize("batch_sampler", [ContiguousBatchSampler, ContiguousBatchSampler.with_blocks(2)])
def test_trainer_gets_the_batches_and_resumes_in_their_order(tmp_path: Path, batch_sampler: Any) -> None:
    blocks = 1 if batch_sampler is ContiguousBatchSampler else 2
    loss = train(tmp_path, batch_sampler)

    expected_sampler = ContiguousBatchSampler(rows(103), 10, seed=5, blocks=blocks)
    expected = [batch for epoch in range(3) for batch in batches_of_epoch(expected_sampler, epoch)]
    assert [columns[0] for columns in loss.seen] == expected
    assert loss.labels == [[row // 10 for row in batch] for batch in expected]

    # Step 15 is in the middle of the second of three epochs.
    resumed = train(tmp_path, batch_sampler, resume_from=str(tmp_path / "checkpoint-15"))
    assert [columns[0] for columns in resumed.seen] == expected[15:]


def test_batch_sampler_can_be_pickled() -> None:
    for choice in (ContiguousBatchSampler, ContiguousBatchSampler.with_blocks(4)):
        sampler = pickle.loads(pickle.dumps(choice))(rows(100), batch_size=8, drop_last=False, seed=1)
        assert isinstance(sampler, DefaultBatchSampler)
        assert list(pickle.loads(pickle.dumps(sampler))) == list(sampler)


@pytest.mark.parametrize("window", [3, 12])
def test_fit_keeps_windows_together(window: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # `fit` writes a folder of checkpoints
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path)
    corpus = Dataset.from_dict({"sentence": [f"w{i}" for i in range(100)], "label": [i // 25 for i in range(100)]})
    loader = DataLoader(window_dataset(corpus, window=window), batch_size=4, shuffle=True)
    loss = RecordingLoss(model := tiny_model(100))
    model.fit(train_objectives=[(loader, loss)], show_progress_bar=False)

    seen = [row for columns in loss.seen for row in zip(*columns, strict=True)]
    assert all(len(row) == window and is_run(list(row)) for row in seen)
    per_document = 25 // window
    assert sorted(row[0] for row in seen) == [25 * d + window * i for d in range(4) for i in range(per_document)]
    assert set(loss.labels) == {None}


# --- several processes ---

CASES = [(n, blocks, even) for n in (64, 79, 100, 1001) for blocks in (1, 4) for even in (True, False)]


def work_of_one_process(rank: int, world_size: int, port: int, folder: str) -> None:
    """Iterate over prepared loaders as the trainer does, and write down the rows this process was given."""
    os.environ.update(
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(world_size),
        ACCELERATE_USE_CPU="true",
        OMP_NUM_THREADS="1",
    )
    from accelerate import Accelerator, DataLoaderConfiguration

    accelerator = Accelerator(cpu=True)
    assert accelerator.num_processes == world_size
    seen: list[list[list[list[int]]]] = []
    for n, blocks, even_batches in CASES:
        accelerator.dataloader_config = DataLoaderConfiguration()
        accelerator.even_batches = even_batches
        sampler = ContiguousBatchSampler(rows(n), batch_size=8, drop_last=False, seed=2, blocks=blocks)
        loader = accelerator.prepare(DataLoader(range(n), batch_sampler=sampler, collate_fn=list))
        epochs = []
        for epoch in range(2):
            loader.set_epoch(epoch)
            epochs.append(list(loader))
        assert [len(batches) for batches in epochs] == [len(loader)] * 2
        seen.append(epochs)
    with pytest.raises(UserError, match="15 sentences, too few for one batch of 8 for each of 2 processes"):
        ContiguousBatchSampler(rows(15), batch_size=8)
    Path(folder, f"{rank}.json").write_text(json.dumps(seen))
    accelerator.end_training()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def interleaved(shares: list[list[list[int]]]) -> Iterator[list[int]]:
    for of_one_step in zip(*shares, strict=True):
        yield from of_one_step


def test_two_processes_share_the_batches_exactly(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(work_of_one_process, args=(2, free_port(), str(tmp_path)), nprocs=2)
    shares = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    for number, (n, blocks, _) in enumerate(CASES):
        alone = ContiguousBatchSampler(rows(n), batch_size=8, seed=2, blocks=blocks)
        for epoch in range(2):
            batches = list(interleaved([shares[rank][number][epoch] for rank in range(2)]))
            assert len(batches) == n // 8 // 2 * 2
            # The same batches as in one process, but for one more that is left out where their number is odd.
            assert batches == batches_of_epoch(alone, epoch)[: len(batches)]
