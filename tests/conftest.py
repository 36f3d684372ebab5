"""Small models and vectors made in memory, and what happens in a Python process that has not imported mv_st."""

from __future__ import annotations

import json
import logging
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Before the libraries are imported: no test may need the network.
os.environ["HF_HUB_OFFLINE"] = "1"

import pytest
from fresh_process import SENTENCES, run_python
from sentence_transformers import SentenceTransformer
from small_vectors import CASED_WORDS, WORDS, word_vectors

from mv_st import build_model, export_static, fit_components
from mv_st.vectors import WordVectors

# A job in the background of a shell starts with Ctrl-C ignored, and so would the processes that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def vectors() -> WordVectors:
    return word_vectors(WORDS)


@pytest.fixture
def cased_vectors() -> WordVectors:
    return word_vectors(CASED_WORDS)


@pytest.fixture
def sentences() -> list[str]:
    return list(SENTENCES)


@pytest.fixture
def model(vectors: WordVectors) -> SentenceTransformer:
    """Both views, 2 x 4 wide, components fitted."""
    return fit_components(build_model(vectors, hidden_size=4, seed=0), SENTENCES)


@pytest.fixture(scope="session")
def fasttext_file(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A real fastText model with subwords, as a file and as fastText's own object."""
    import fasttext

    folder = tmp_path_factory.mktemp("fasttext")
    chance = random.Random(0)
    lines = (" ".join(chance.choices([*WORDS, "Paris"], k=12)) for _ in range(300))
    (folder / "corpus.txt").write_text("\n".join(lines), encoding="utf-8")
    # Eleven threads, because fewer than ten leave part of the matrix uninitialised.
    trained = fasttext.train_unsupervised(
        str(folder / "corpus.txt"), dim=6, minCount=1, minn=2, maxn=4, bucket=500, thread=11, epoch=1, verbose=0
    )
    trained.save_model(str(folder / "model.bin"))
    return folder / "model.bin", trained


WITHOUT_MV_ST = """
import json, sys
from sentence_transformers import SentenceTransformer

full, static, sentences = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
found = {"static": SentenceTransformer(static).encode(sentences).tolist(), "imported": "mv_st" in sys.modules}
try:
    SentenceTransformer(full)
except ValueError as error:
    found["refusal"] = str(error)
found["with_flag"] = SentenceTransformer(full, trust_remote_code=True).encode(sentences).tolist()
# The flag has imported mv_st, after sentence_transformers.
found["after_import"] = SentenceTransformer(full).encode(sentences).tolist()
print(json.dumps(found))
"""


@pytest.fixture(scope="session")
def without_mv_st(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a process that never imports mv_st makes of a model and of its static export.

    One process for several tests, because each costs ten seconds.
    """
    folder = tmp_path_factory.mktemp("models")
    model = fit_components(build_model(word_vectors(WORDS), hidden_size=4, seed=0), SENTENCES, n_components=3)
    model.save_pretrained(str(folder / "full"))
    export_static(model, folder / "static")
    found = run_python(WITHOUT_MV_ST, folder / "full", folder / "static", json.dumps(SENTENCES))
    return found | {"expected": model.encode(SENTENCES), "expected_linear": model.encode(SENTENCES, view="linear")}


@pytest.fixture(autouse=True)
def _same_loggers_after_each_test() -> Iterator[None]:
    """The command line sets the levels of loggers for its process; in tests, other tests come after it."""
    names = (None, "mv_st", "sentence_transformers")
    levels = {name: logging.getLogger(name).level for name in names}
    handlers = list(logging.getLogger().handlers)
    yield
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    logging.getLogger().handlers[:] = handlers
