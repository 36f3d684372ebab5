from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from toy_tasks import WORDS, label_rows, pair_rows, sentence, static_model, sts_rows, write_rows

from mv_st import build_model, fit_components


@pytest.fixture(autouse=True)
def _no_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("MTEB_CACHE", str(tmp_path / "mteb-cache"))


@pytest.fixture(scope="session")
def word_vectors() -> np.ndarray:
    """Words of like meaning are near each other."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(len(WORDS), 16)).astype(np.float32) * 0.5
    vectors[:4, 0] += 2.0
    vectors[4:8, 0] -= 2.0
    return vectors


@pytest.fixture
def static(word_vectors: np.ndarray) -> SentenceTransformer:
    return static_model(word_vectors)


@pytest.fixture
def multi_view(word_vectors: np.ndarray) -> SentenceTransformer:
    model = build_model((WORDS, word_vectors), hidden_size=6, seed=0)
    rng = np.random.default_rng(1)
    return fit_components(model, [sentence(rng) for _ in range(40)])


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A small suite: sts12 (two of five datasets), sts13, stsb, sickr, mr, trec, mrpc, sst2."""
    rng = np.random.default_rng(5)
    root = tmp_path / "data"
    write_rows(root / "sts12" / "MSRpar.jsonl", sts_rows(rng, 30))
    write_rows(root / "sts12" / "MSRvid.jsonl.gz", sts_rows(rng, 50))
    for name in ("FNWN", "headlines", "OnWN"):
        write_rows(root / "sts13" / f"{name}.jsonl", sts_rows(rng, 20))
    for split, n in (("train", 60), ("validation", 30), ("test", 40)):
        write_rows(root / "stsbenchmark" / f"{split}.jsonl", sts_rows(rng, n))
        write_rows(root / "sickr" / f"{split}.jsonl", pair_rows(rng, n))
        write_rows(root / "sst2" / f"{split}.jsonl", label_rows(rng, n))
        write_rows(root / "mrpc" / f"{split}.jsonl", pair_rows(rng, n))
        write_rows(root / "trec" / f"{split}.jsonl", label_rows(rng, n))
    write_rows(root / "mr" / "all.jsonl", label_rows(rng, 60))
    return root


@pytest.fixture
def make_static() -> Callable[[int], SentenceTransformer]:
    return lambda seed: static_model(np.random.default_rng(seed).normal(size=(len(WORDS), 16)).astype(np.float32))
