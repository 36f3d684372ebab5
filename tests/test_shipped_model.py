"""The model that comes with the package."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from mv_st import load_shipped_model
from mv_st.cli import main
from mv_st.shipped_model import SHIPPED_MODEL

FOLDER = Path(str(SHIPPED_MODEL))


@pytest.fixture(scope="module")
def model() -> SentenceTransformer:
    return load_shipped_model()


def test_size() -> None:
    assert sum(file.stat().st_size for file in FOLDER.rglob("*")) < 15.5e6


def test_what_it_says_of_itself() -> None:
    card = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert "license: apache-2.0" in card
    assert "public domain" in card
    assert "mv-st compact" in card
    settings = json.loads((FOLDER / "training.json").read_text(encoding="utf-8"))
    assert settings["preset"] == "small"


@pytest.mark.parametrize(
    ("text", "near", "far"),
    [
        ("The cat sat on the mat.", "A kitten lay on the rug.", "Parliament passed the budget."),
        ("Shares fell sharply on Monday.", "Stock prices dropped.", "She sang a quiet song."),
        ("Where is the railway station?", "How do I get to the train?", "He has two younger brothers."),
    ],
)
def test_it_knows_english(model: SentenceTransformer, text: str, near: str, far: str) -> None:
    vectors = model.encode([text, near, far])
    to_near, to_far = model.similarity(vectors[:1], vectors[1:])[0].tolist()
    assert to_near > to_far + 0.1


def test_unknown_names_are_told_apart(model: SentenceTransformer) -> None:
    one, same, other = model.encode(["Zarniwoop spoke.", "Zarniwoop talked.", "Quintessa talked."])
    assert one @ same > one @ other


def test_similar_without_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "text.txt"
    file.write_text("The parcel came late.\nThe screen is broken.\nI like the colour.\n", encoding="utf-8")
    assert main(["similar", str(file), "--query", "delivery was delayed", "--top", "1"]) == 0
    assert capsys.readouterr().out.endswith("\tThe parcel came late.\n")


def test_encode_without_a_model(tmp_path: Path, model: SentenceTransformer) -> None:
    file = tmp_path / "text.txt"
    file.write_text("One sentence.\nAnother one.\n", encoding="utf-8")
    assert main(["encode", str(file), "--output", str(tmp_path / "vectors.npy")]) == 0
    expected = model.encode(["One sentence.", "Another one."])
    np.testing.assert_allclose(np.load(tmp_path / "vectors.npy"), expected, atol=1e-5)


def test_adapt_without_a_model(tmp_path: Path, model: SentenceTransformer) -> None:
    file, output = tmp_path / "text.txt", tmp_path / "adapted"
    words = sorted(model[0].tokenizer.get_vocab())
    sentences = [f"{one} and {other}" for one, other in zip(words[3_000:3_060], words[9_000:9_060], strict=True)]
    file.write_text("\n".join(sentences), encoding="utf-8")
    assert main(["adapt", str(file), "--output", str(output)]) == 0
    before, after = model.encode(sentences), SentenceTransformer(str(output)).encode(sentences)
    assert not np.allclose(after, before, atol=1e-3)
    record = json.loads((output / "training.json").read_text(encoding="utf-8"))
    assert (record["preset"], record["adapted_to"]) == ("small", len(sentences))


def test_compact_makes_a_smaller_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "smaller"
    arguments = ["compact", str(FOLDER), str(output), "--max-vocab", "100", "--n-buckets", "50"]
    assert main(arguments) == 0
    assert "the small copy is in" in capsys.readouterr().err
    assert SentenceTransformer(str(output))[0].vocab_size == 101
    assert main(arguments) == 1
    assert "exists" in capsys.readouterr().err
    assert main([*arguments, "--overwrite"]) == 0
