from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from mv_st.errors import UserError
from mv_st.evaluation.data import HubSplit, check_data_dir, find_file, list_stems, load_hub_rows, read_rows

STS = {"sentence1": "text", "sentence2": "text", "score": "number"}
GOOD_LINE = '{"sentence1": "a", "sentence2": "ü 你好", "score": 3, "more": null}\n'


def test_reads_plain_and_gzipped_rows(tmp_path: Path) -> None:
    plain, packed = tmp_path / "x.jsonl", tmp_path / "y.jsonl.gz"
    plain.write_text(GOOD_LINE + "\n" + GOOD_LINE, encoding="utf-8")
    packed.write_bytes(gzip.compress(GOOD_LINE.encode()))
    assert read_rows(plain, STS) == {"sentence1": ["a", "a"], "sentence2": ["ü 你好"] * 2, "score": [3.0, 3.0]}
    assert read_rows(packed, STS)["score"] == [3.0]
    assert find_file(tmp_path, "x") == plain
    assert find_file(tmp_path, "y") == packed
    assert find_file(tmp_path, "z") is None
    assert list_stems(tmp_path) == ["x", "y"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"sentence1": "a", ', "line 2: not valid JSON"),
        ("[1, 2]", "line 2: expected a JSON object, found list"),
        ('{"sentence1": "a", "sentence2": "b"}', "line 2: column 'score' is missing"),
        ('{"sentence1": "a", "sentence2": "b", "score": null}', "line 2: column 'score' is missing"),
        ('{"sentence1": "a", "sentence2": "b", "score": "high"}', "line 2: 'score' must be a finite number"),
        ('{"sentence1": "a", "sentence2": "b", "score": NaN}', "line 2: 'score' must be a finite number"),
        ('{"sentence1": "a", "sentence2": "b", "score": true}', "line 2: 'score' must be a finite number"),
        ('{"sentence1": 7, "sentence2": "b", "score": 1}', "line 2: 'sentence1' must be a string, found 7"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(GOOD_LINE + line + "\n", encoding="utf-8")
    with pytest.raises(UserError) as error:
        read_rows(path, STS)
    assert message in str(error.value)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.jsonl", b"", "no rows"),
        ("blank.jsonl", b"\n\n", "no rows"),
        ("latin.jsonl", GOOD_LINE.encode("utf-8")[:30] + b"\xff\xfe", "not UTF-8"),
        ("fake.jsonl.gz", b"this is not gzip", "cannot be read"),
        ("cut.jsonl.gz", gzip.compress(GOOD_LINE.encode() * 50)[:-12], "cannot be read"),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UserError, match=message) as error:
        read_rows(path, STS)
    assert name in str(error.value)


def test_labels_may_be_numbers_or_strings(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text('{"label": 3}\n{"label": "HUM"}\n')
    assert read_rows(path, {"label": "label"}) == {"label": [3, "HUM"]}
    path.write_text('{"label": 0.5}\n')
    with pytest.raises(UserError, match="a whole number or a string"):
        read_rows(path, {"label": "label"})


def test_a_wrong_folder_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nowhere does not exist"):
        check_data_dir(tmp_path / "nowhere")


def test_hub_splits_are_joined_renamed_and_recoded(tmp_path: Path) -> None:
    # A local folder of JSON Lines is loaded by the same call as a dataset on the hub.
    (tmp_path / "train.jsonl").write_text('{"sentence": "one", "gold": 0}\n')
    (tmp_path / "test.jsonl").write_text('{"sentence": "two", "gold": 1}\n')
    parts = [
        HubSplit(
            str(tmp_path), split, rename={"text": "sentence", "label": "gold"}, values={"label": {0: "no", 1: "yes"}}
        )
        for split in ("test", "train")
    ]
    rows = load_hub_rows(parts, {"text": "text", "label": "label"})
    assert rows == {"text": ["two", "one"], "label": ["yes", "no"]}


def test_an_unreachable_hub_dataset_is_one_clear_line() -> None:
    with pytest.raises(UserError, match="hub dataset nobody/nothing-at-all") as error:
        load_hub_rows([HubSplit("nobody/nothing-at-all", "test")], {"text": "text"})
    assert "\n" not in str(error.value)
