"""Training fastText on a corpus: what goes in, what comes out, and what happens when it goes wrong."""

from __future__ import annotations

import logging
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mv_st.vector_training as training
from mv_st.errors import UserError
from mv_st.vector_training import MemoTokenizer, train_vectors
from mv_st.vectors import load_vectors

pytest.importorskip("fasttext")


TOPICS = [[a + b for a in first for b in second] for first, second in (("кдёбжђ", "отшщњ"), ("bmöuc", "nklzñ"))]


def topic_corpus(n_sentences: int = 3000) -> list[str]:
    """Sentences about one of two topics; words of a topic occur together."""
    chance = random.Random(0)
    return [" ".join(chance.choices(chance.choice(TOPICS), k=10)) for _ in range(n_sentences)]


@pytest.fixture(autouse=True)
def temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Temporary files go here, so that a test can see whether any is left."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


class TestResult:
    @pytest.fixture(scope="class")
    def vectors(self) -> Any:
        return train_vectors(topic_corpus(), dim=16, lr=0.2, min_n=2, max_n=4)

    def test_words_and_counts_are_those_of_the_corpus(self, vectors: Any) -> None:
        counts = Counter(word for sentence in topic_corpus() for word in sentence.split())
        assert dict(zip(vectors.words, vectors.counts.tolist(), strict=True)) == counts
        assert vectors.counts.tolist() == sorted(counts.values(), reverse=True)

    def test_words_that_occur_together_become_neighbours(self, vectors: Any) -> None:
        directions = vectors.matrix / np.linalg.norm(vectors.matrix, axis=1, keepdims=True)
        first, second = (directions[[vectors.words.index(word) for word in topic]] for topic in TOPICS)
        assert (first @ first.T).mean() > (first @ second.T).mean() + 0.2

    def test_every_row_is_trained(self, vectors: Any) -> None:
        for matrix in (vectors.matrix, vectors.subwords.matrix):
            assert np.isfinite(matrix).all()
            assert (np.linalg.norm(matrix, axis=1) > 0).all()
            assert np.abs(matrix).max() < 100

    def test_subword_table_holds_the_ngrams_of_the_vocabulary_and_no_others(self, vectors: Any) -> None:
        table = vectors.subwords
        touched = {row for word in vectors.words for row in table.rows(word)}
        assert touched == set(range(len(table.matrix)))
        for word in vectors.words:  # nothing of a known word was pruned: "<ab>" has 3 + 2 + 1 n-grams
            assert len(table.rows(word)) == 6

    def test_only_new_ngrams_give_no_rows(self, vectors: Any) -> None:
        chance = random.Random(1)
        for _ in range(300):
            assert vectors.subwords.rows("".join(chance.choices("αβγδε", k=6))) == []
        assert len(vectors.subwords.rows("öαβn")) == 2  # <ö and n> are known


@pytest.mark.parametrize("kind", ["list", "generator", "dataset", "path"])
def test_kinds_of_corpus(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    sentences = ["a b c d", "c d e f"] * 20
    (tmp_path / "corpus.txt").write_text("\n".join(sentences))
    corpus: Any = {
        "list": sentences,
        "generator": (sentence for sentence in sentences),
        "dataset": datasets.Dataset.from_dict({"sentence": sentences, "label": [0] * 40}),
        "path": tmp_path / "corpus.txt",
    }[kind]
    vectors = train_vectors(corpus, dim=4, epochs=1)
    assert sorted(vectors.words) == list("abcdef")
    assert vectors.counts is not None
    assert vectors.counts.tolist() == [40, 40, 20, 20, 20, 20]


def test_own_tokenizer_and_no_subwords() -> None:
    vectors = train_vectors(
        ["A-B-C", "B-C-__label__x"] * 30, dim=4, max_n=0, tokenize=lambda batch: [text.split("-") for text in batch]
    )
    assert sorted(vectors.words) == ["A", "B", "C", "__label__x"]
    assert vectors.subwords is None


def test_threads_never_leave_rows_uninitialised(monkeypatch: pytest.MonkeyPatch) -> None:
    used = []
    run = training._run_fasttext
    monkeypatch.setattr(training, "_run_fasttext", lambda o, n: (used.append(o["thread"]), run(o, n))[1])
    train_vectors(["a b c"] * 30, dim=7, threads=1)
    assert used == [11]


def test_saved_vectors_are_loaded_whole(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "vectors.npz"
    vectors = train_vectors(["über köter", "ködel über"] * 30, dim=4, epochs=1, output=path)
    again = load_vectors(path)
    assert again.words == vectors.words
    assert again.subwords is not None
    assert vectors.subwords is not None
    for ours, theirs in (
        (vectors.matrix, again.matrix),
        (vectors.counts, again.counts),
        (vectors.subwords.matrix, again.subwords.matrix),
        (vectors.subwords.bucket_ids, again.subwords.bucket_ids),
    ):
        np.testing.assert_array_equal(ours, theirs)
    assert again.subwords.rows("überköter") == vectors.subwords.rows("überköter")
    part = load_vectors(path, dtype="float16", max_vocab=2, subwords=False)
    assert part.words == vectors.words[:2]
    assert part.subwords is None
    np.testing.assert_array_equal(part.matrix, vectors.matrix[:2].astype(np.float16))
    path.write_bytes(path.read_bytes()[:-300])
    with pytest.raises(UserError, match="damaged"):
        load_vectors(path)


class TestSmallCorpora:
    def test_min_count_is_lowered_and_said(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        vectors = train_vectors(["one two three", "two three four"], dim=4)
        assert sorted(vectors.words) == ["four", "one", "three", "two"]
        assert "Lowered min_count from 5 to 1" in caplog.text
        assert "words/s" in caplog.text

    @pytest.mark.parametrize(
        ("counts", "wanted", "expected"),
        [
            ({f"w{i}": 9 for i in range(2000)}, 5, 5),
            ({f"w{i}": 9 for i in range(999)} | {f"r{i}": 3 for i in range(50)}, 5, 3),
            ({f"w{i}": 9 for i in range(1000)} | {f"r{i}": 1 for i in range(50)}, 5, 5),
            ({"a": 7, "b": 1}, 5, 1),
        ],
    )
    def test_min_count_is_the_highest_that_leaves_enough(
        self, counts: dict[str, int], wanted: int, expected: int
    ) -> None:
        assert training._min_count_for(Counter(counts), wanted) == expected

    @pytest.mark.parametrize("corpus", [[], ["", "  "], ["same same same"] * 10])
    def test_too_few_words(self, corpus: list[str], temporary_files: Path) -> None:
        with pytest.raises(UserError, match="different words; vectors need at least 2"):
            train_vectors(corpus)
        assert list(temporary_files.iterdir()) == []


class TestFailures:
    def test_divergence_is_retried_then_explained(
        self, caplog: pytest.LogCaptureFixture, temporary_files: Path
    ) -> None:
        with pytest.raises(UserError, match=r"failed with lr 1e\+06 and with half of it .* lower lr") as error:
            train_vectors(topic_corpus(200), dim=4, lr=1e6)
        assert "\n" not in str(error.value)
        assert caplog.text.count("failed") == 2
        assert list(temporary_files.iterdir()) == []

    def test_error_in_the_corpus_leaves_no_files(self, temporary_files: Path) -> None:
        def corpus() -> Any:
            yield from ["a b"] * 5000
            raise OSError("the disk with the corpus is gone")

        with pytest.raises(OSError, match="the disk with the corpus is gone"):
            train_vectors(corpus())
        assert list(temporary_files.iterdir()) == []

    @pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
    @pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
    def test_ends_with_its_parent(self, temporary_files: Path, how: signal.Signals) -> None:
        psutil = pytest.importorskip("psutil")
        script = (
            "from mv_st.vector_training import train_vectors\n"
            "train_vectors(['a b c'] * 30, dim=4, epochs=10**8, tokenize=lambda batch: [s.split() for s in batch])"
        )
        environment = os.environ | {"TMPDIR": str(temporary_files)}
        with subprocess.Popen([sys.executable, "-c", script], env=environment, stderr=subprocess.DEVNULL) as parent:
            deadline = time.monotonic() + 60
            while not (children := psutil.Process(parent.pid).children()) and time.monotonic() < deadline:
                time.sleep(0.05)
            time.sleep(0.5)  # into the training
            assert parent.poll() is None
            parent.send_signal(how)
            assert parent.wait(timeout=30) != 0
        gone, alive = psutil.wait_procs(children, timeout=30)
        assert gone
        assert not alive
        if how == signal.SIGINT:
            assert list(temporary_files.iterdir()) == []

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"dim": 0}, "dim, epochs and min_count"),
            ({"min_n": 4, "max_n": 3}, "min_n <= max_n"),
            ({"output": "x.vec"}, "saved as .npz"),
            ({"dim": 10**12}, "GB of disk space"),
        ],
    )
    def test_wrong_options(self, options: dict[str, Any], message: str) -> None:
        with pytest.raises(UserError, match=message):
            train_vectors(["a b"] * 10, **options)

    @pytest.mark.parametrize("corpus", [[["a", "list"]], [0], [None]])
    def test_corpus_that_is_no_text(self, corpus: Any) -> None:
        with pytest.raises(UserError, match="must consist of sentences"):
            train_vectors(corpus)

    def test_dataset_without_sentences(self) -> None:
        import datasets

        with pytest.raises(UserError, match="no column 'sentence', only text"):
            train_vectors(datasets.Dataset.from_dict({"text": ["a"]}))


def test_tokenizer_memo_starts_afresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "_MEMO_SIZE", 3)
    tokenize = MemoTokenizer()
    for _ in range(3):
        assert tokenize(["Füße, हिन्दी don't", "a b c d"]) == [
            ["füße", ",", "हिन्दी", "don", "'", "t"],
            ["a", "b", "c", "d"],
        ]
