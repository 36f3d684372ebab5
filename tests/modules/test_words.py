"""Word vectors of a batch without padding, against loops over sentences and words."""

from __future__ import annotations

import pytest
import torch

from mv_st.modules.words import Words, extreme_per_sentence, join_batches, mean_per_sentence

LENGTHS = torch.tensor([3, 1, 5, 2])


@pytest.fixture
def table() -> torch.Tensor:
    table = torch.randn(7, 4, generator=torch.Generator().manual_seed(0))
    table[0] = 0.0
    return table


def split(rows: torch.Tensor) -> list[list[list[float]]]:
    """Rows as Python lists, sentence by sentence."""
    return [part.tolist() for part in rows.split(LENGTHS.tolist())]


def test_mean_max_and_min_per_sentence() -> None:
    rows = torch.randn(11, 4, generator=torch.Generator().manual_seed(1))
    for sentence, mean, most, least in zip(
        split(rows),
        mean_per_sentence(rows, LENGTHS).tolist(),
        extreme_per_sentence(rows, LENGTHS, "max").tolist(),
        extreme_per_sentence(rows, LENGTHS, "min").tolist(),
        strict=True,
    ):
        columns = list(zip(*sentence, strict=True))
        assert mean == pytest.approx([sum(column) / len(column) for column in columns], abs=1e-6)
        assert most == [max(column) for column in columns]
        assert least == [min(column) for column in columns]


@pytest.mark.parametrize("stored", [torch.float32, torch.float16])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("with_extra", [False, True])
def test_vectors_and_their_mean(table: torch.Tensor, stored: torch.dtype, weighted: bool, with_extra: bool) -> None:
    table = table.to(stored)
    extra = torch.tensor([[1.0, 2.0, 3.0, 4.0], [-1.0, 0.5, 0.0, 9.0]], dtype=stored) if with_extra else None
    ids = [1, 2, 0, 6, 3, 3, 4, 0, 5, 1, 1]
    if with_extra:
        ids[2], ids[4], ids[10] = -2, -1, -2
    weights = torch.linspace(0.1, 1.0, 11) if weighted else None
    words = Words(torch.tensor(ids), LENGTHS, table, extra, torch.float32)

    expected = [(table[i] if i >= 0 else extra[-1 - i]).float().tolist() for i in ids]  # type: ignore[index]
    assert words.vectors.tolist() == expected
    rows, index = words.distinct()
    assert rows[index].tolist() == expected
    assert len(rows) == len(set(ids))
    of_rows = torch.linspace(0.1, 1.0, len(table))  # unknown words count as the first row
    rows, index = words.distinct(of_rows)
    weighed = [[x * of_rows[max(i, 0)].item() for x in row] for i, row in zip(ids, expected, strict=True)]
    torch.testing.assert_close(rows[index], torch.tensor(weighed))
    scale = [1.0] * 11 if weights is None else weights.tolist()
    scaled = torch.tensor([[x * w for x in row] for row, w in zip(expected, scale, strict=True)])
    means = [[sum(column) / len(sentence) for column in zip(*sentence, strict=True)] for sentence in split(scaled)]
    torch.testing.assert_close(words.mean(weights), torch.tensor(means))


def test_computes_in_the_type_that_is_asked_for(table: torch.Tensor) -> None:
    words = Words(torch.tensor([1, 2]), torch.tensor([2]), table.half(), dtype=torch.float32)
    assert words.vectors.dtype == words.mean().dtype == torch.float32
    words.dtype = torch.float64  # another view, after the first has looked
    assert words.vectors.dtype == words.mean().dtype == torch.float64


def test_words_outside_the_table_count_as_unknown_where_only_the_table_helps(table: torch.Tensor) -> None:
    words = Words(torch.tensor([1, -1, 3]), torch.tensor([3]), table, torch.ones(1, 4))
    assert words.known_ids.tolist() == [1, 0, 3]


def test_join_batches_keeps_the_words_of_each(table: torch.Tensor) -> None:
    def batch(ids: list[int], lengths: list[int], subwords: list[list[int]]) -> dict[str, torch.Tensor]:
        features = {"input_ids": torch.tensor(ids), "sentence_lengths": torch.tensor(lengths)}
        if subwords:
            starts = [sum(map(len, subwords[:i])) for i in range(len(subwords))]
            rows = [row for word in subwords for row in word]
            features |= {"subword_rows": torch.tensor(rows), "subword_offsets": torch.tensor(starts)}
        return features

    joined = join_batches(
        [batch([1, -1, -2], [1, 2], [[10, 11], [12]]), batch([2, 2], [2], []), batch([-1, 3], [2], [[13, 14, 15]])]
    )
    assert joined["sentence_lengths"].tolist() == [1, 2, 2, 2]
    bags = joined["subword_rows"].tensor_split(joined["subword_offsets"][1:])
    read = [i if i >= 0 else bags[-1 - i].tolist() for i in joined["input_ids"].tolist()]
    assert read == [1, [10, 11], [12], 2, 2, [13, 14, 15], 3]
