"""The command line: results on standard output, messages on standard error, one line and an exit code for mistakes."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from toy_corpus import (  # noqa: F401 - fixtures
    TINY_OPTIONS,
    WORDS,
    quick_and_alone,
    run_command,
    start_process,
    toy_documents,
    toy_files,
    toy_vectors,
    wait_for,
    write_toy_files,
)

from mv_st import adapt_components, build_model, fit_components
from mv_st.cli import build_parser, main

SENTENCES = [sentence for document in toy_documents() for sentence in document]


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "model"
    fit_components(build_model(toy_vectors(), hidden_size=4, seed=0), SENTENCES).save_pretrained(str(folder))
    return folder


@pytest.fixture(scope="module")
def model(model_folder: Path) -> SentenceTransformer:
    return SentenceTransformer(str(model_folder))


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    """The only line on standard error, with nothing on standard output."""
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("mv-st: ")
    assert len(shown.err.splitlines()) == 1, shown.err
    return shown.err


# --- help and usage ---


def test_help_is_quick_and_imports_nothing_heavy() -> None:
    heavy = ["torch", "transformers", "sentence_transformers", "datasets", "numpy", "matplotlib", "accelerate"]
    code = f"""
import sys
from mv_st.cli import main
try:
    main(["train", "--help"])
finally:
    print([name for name in {heavy} if name in sys.modules], file=sys.stderr)
"""
    before = os.times().children_user
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert os.times().children_user - before < 1
    assert done.returncode == 0
    assert done.stderr.strip() == "[]"
    assert "--gather-across-devices" in done.stdout


def test_python_m_mv_st() -> None:
    done = subprocess.run([sys.executable, "-m", "mv_st", "--version"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert done.stdout.startswith("mv-st ")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["dance"],
        ["train"],
        ["train", "corpus.txt"],
        ["train", "corpus.txt", "--output", "x", "--views", "gru,tree"],
        ["train", "corpus.txt", "--output", "x", "--agreement", "sideways"],
        ["train", "corpus.txt", "--output", "x", "--preset", "huge"],
        ["train", "corpus.txt", "--output", "x", "--max-steps", "0"],
        ["train", "corpus.txt", "--output", "x", "--max-steps", "many"],
        ["train", "corpus.txt", "--output", "x", "--minutes", "-1"],
        ["train", "corpus.txt", "--output", "x", "--max-steps", "1", "--epochs", "1"],
        ["encode", "model", "text.txt"],
        ["encode", "model", "text.txt", "--output", "x.npy", "--workers", "0"],
        ["similar", "model", "text.txt"],
        ["evaluate", "model"],
        ["push", "model"],
    ],
)
def test_wrong_usage_is_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("usage: mv-st")


def parse(command: str) -> Any:
    return build_parser().parse_args(command.split())


def test_the_contract_is_understood() -> None:
    options = parse(
        "train a.txt b.txt --output DIR --vectors v.bin --preset paper --views gru,linear --agreement all "
        "--batch-size 64 --window 2 --minutes 3 --eval-data E --resume --seed 7"
    )
    assert options.corpus == ["a.txt", "b.txt"]
    assert options.views == ("gru", "linear")
    assert (options.batch_size, options.window, options.minutes, options.seed) == (64, 2, 3.0, 7)
    parse("train - --output DIR --epochs 2")
    parse("train hf:name --output DIR --max-steps 2")
    parse("encode M in.txt --output o.parquet --view gru --representation transfer --workers 2")
    parse("similar M in.txt --query text --top 3")
    evaluate = parse("evaluate M N --data-dir D --tasks sts12,mr --components transductive --output r.json")
    assert (evaluate.models, evaluate.tasks) == (["M", "N"], ["sts12", "mr"])
    parse("export M DIR")
    parse("push M user/name --private")
    parse("demo")


# --- training ---


def train_command(folder: Path, *more: str, corpus: str = "toy.txt", vectors: str = "toy.vec") -> list[str]:
    options = ["--output", str(folder / "model"), "--max-steps", "2", *TINY_OPTIONS]
    return ["train", str(folder / corpus), "--vectors", str(folder / vectors), *options, *more]


@pytest.mark.parametrize(
    ("options", "check"),
    [
        ("--views gru,gru", lambda model: model[-1].views == ["gru_1", "gru_2"]),
        ("--views linear,linear", lambda model: model[-1].views == ["linear_1", "linear_2"]),
        ("--views gru", lambda model: model[-1].views == ["gru"]),
        ("--views linear --self", lambda model: model[-1].views == ["linear"]),
        ("--views linear --no-self", lambda model: model[-1].views == ["linear"]),
        ("--agreement all", lambda model: len(model[-1].views) == 2),
        ("--agreement within", lambda model: len(model[-1].views) == 2),
        ("--weighting fixed", lambda model: not isinstance(model[2].word_weights, torch.nn.Parameter)),
        ("--weighting learned", lambda model: isinstance(model[2].word_weights, torch.nn.Parameter)),
        ("--train-on last", lambda model: model[1].train_on == "last"),
        ("--train-on mean", lambda model: model[1].train_on == "mean"),
        ("--blocks 4", lambda model: True),
        ("--components 3", lambda model: model[-2].components("gru").norm(dim=1).allclose(torch.ones(3))),
        ("--components 0", lambda model: model[-2].components("gru").shape[0] == 0),
        ("--gentle-start", lambda model: model[1].gru.weight_hh_l0.std() < 0.2),
        ("--no-gentle-start", lambda model: model[1].gru.weight_hh_l0.std() > 0.4),
        ("--fade-out", lambda model: model[1].fade_out),
        ("--no-fade-out", lambda model: not model[1].fade_out),
        ("--spelling", lambda model: model[0].oov == "subword" and model[0].unknown_length > 0),
        ("--no-spelling", lambda model: model[0].oov == "zero"),
        ("--spelling-codes 0", lambda model: model[0].embedding_dimension == 8),
        ("--spelling-codes 5", lambda model: model[0].embedding_dimension == 13),
        ("--no-whiten-words", lambda model: len(model[-1].views) == 2),
        ("--linear-first 0", lambda model: len(model[-1].views) == 2),
        ("--whitening 0.4", lambda model: model[-2].whitening == 0.4),
        ("--temperature 0.05 --learning-rate 1e-6", lambda model: abs(model[-1].temperature.item() - 0.05) < 1e-4),
        ("--max-vocab 20", lambda model: model[0].vocab_size == 21),
        ("--preset paper --window 1 --clip-norm 1 --max-train-length 2", lambda model: model[1].train_on == "last"),
    ],
)
def test_every_variant_is_one_command(toy_files: Any, tmp_path: Path, options: str, check: Any) -> None:  # noqa: F811
    corpus, vectors = map(str, toy_files)
    arguments = ["train", corpus, "--vectors", vectors, "--output", str(tmp_path / "m"), "--max-steps", "2"]
    assert main([*arguments, *TINY_OPTIONS, *options.split()]) == 0
    loaded = SentenceTransformer(str(tmp_path / "m"))
    assert check(loaded)
    vector = loaded.encode("bal ban")
    assert np.isfinite(vector).all()
    assert vector.any()
    settings = json.loads((tmp_path / "m" / "training.json").read_text())["settings"]
    for name, value in zip(options.split()[::2], options.split()[1::2], strict=False):
        key = {"components": "n_components"}.get(name[2:], name[2:].replace("-", "_"))
        if key in settings and key != "views":
            assert str(settings[key]) == value or float(settings[key]) == float(value)


def test_weights_of_words_are_sif_and_learnt_from_there(toy_files: Any, tmp_path: Path) -> None:  # noqa: F811
    corpus, vectors = map(str, toy_files)
    for kind in ("fixed", "learned"):
        options = ["--vectors", vectors, "--output", str(tmp_path / kind), "--max-steps", "2", "--weighting", kind]
        options += ["--linear-first", "0"]
        assert main(["train", corpus, *options, *TINY_OPTIONS]) == 0
    words = " ".join(SENTENCES).split()
    expected = [3e-3 / (3e-3 + words.count(word) / len(words)) for word in WORDS]
    fixed, learned = (SentenceTransformer(str(tmp_path / kind))[2].word_weights for kind in ("fixed", "learned"))
    np.testing.assert_allclose(fixed[1:].numpy(), expected, rtol=1e-5)
    difference = (learned - fixed)[1:].abs()
    assert (difference > 0).float().mean() > 0.5
    assert difference.max() <= 2 * 0.05 * 1.01  # two steps of Adam


def test_several_files_and_standard_input_are_corpora(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus, _ = write_toy_files(tmp_path)
    (tmp_path / "more.txt.gz").write_bytes(gzip.compress(corpus.read_bytes()))
    arguments = train_command(tmp_path)
    assert main([*arguments[:2], str(tmp_path / "more.txt.gz"), *arguments[2:]]) == 0
    record = json.loads((tmp_path / "model" / "training.json").read_text())
    assert record["corpus"] == {"sources": ["toy.txt", "more.txt.gz"], "sentences": 400}
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines() == [f"the model is in {tmp_path / 'model'}"]

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(corpus.read_bytes())))
    arguments = train_command(tmp_path, "--overwrite")
    arguments[1] = "-"
    assert main(arguments) == 0
    record = json.loads((tmp_path / "model" / "training.json").read_text())
    assert record["corpus"] == {"sources": ["-"], "sentences": 200}


def damaged(folder: Path) -> None:
    """Everything that can be wrong with what a user gives."""
    (folder / "empty.txt").write_text("\n\n")
    (folder / "one.txt").write_text("bal ban bel\n")
    (folder / "bad.txt").write_bytes(b"bal ban\n\xff\xfe\n" * 40)
    (folder / "wide.vec").write_text("bal 1 2 3\nban 1 2\n")
    (folder / "nan.vec").write_text("bal 1 2 3\nban 1 nan 3\n")
    (folder / "other.vec").write_text("zzz 1 2 3\nyyy 1 2 4\n")
    (folder / "vectors.doc").write_text("bal 1 2 3\n")
    (folder / "full").mkdir()
    (folder / "full" / "letter.txt").write_text("Dear Ada")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"corpus": "missing.txt"}, "missing.txt"),
        ({"corpus": "empty.txt"}, "the corpus is empty"),
        ({"corpus": "one.txt"}, "too few for one batch of 32"),
        ({"corpus": "bad.txt", "more": ["--on-bad-line", "refuse"]}, "bad.txt"),
        ({"corpus": "toy.doc"}, "toy.doc"),
        ({"vectors": "missing.vec"}, "missing.vec: no such file"),
        ({"vectors": "full"}, "a folder, not a file of word vectors"),
        ({"vectors": "wide.vec"}, "wide.vec"),
        ({"vectors": "nan.vec"}, "nan.vec"),
        ({"vectors": "other.vec"}, "none of the words of the corpus"),
        ({"vectors": "vectors.doc"}, "unknown kind of file"),
        ({"output": "toy.txt/model"}, "cannot create"),
        ({"output": "toy.txt"}, "is a file"),
        ({"output": "full"}, "exists and is not empty"),
        ({"more": ["--batch-size", "256"]}, "the corpus has 200 sentences, too few for one batch of 256"),
        ({"more": ["--batch-size", "32", "--blocks", "5"]}, "cannot be divided into 5 blocks"),
        ({"more": ["--window", "-1"]}, "window must be at least 0"),
        ({"more": ["--whitening", "0.7"]}, "whitening must be between 0 and 0.5"),
        ({"more": ["--components", "-1"]}, "n_components must be at least 0"),
        ({"more": ["--resume"]}, "nothing to resume"),
        ({"more": ["--eval-data", "/nowhere"]}, "/nowhere"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: dict[str, Any], message: str
) -> None:
    write_toy_files(tmp_path)
    damaged(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    arguments = train_command(
        tmp_path,
        *options.get("more", []),
        corpus=options.get("corpus", "toy.txt"),
        vectors=options.get("vectors", "toy.vec"),
    )
    if "output" in options:
        arguments[arguments.index("--output") + 1] = str(tmp_path / options["output"])
    assert main(arguments) == 1
    assert message in one_line(capsys)
    assert sorted(tmp_path.rglob("*")) == before


def test_ctrl_c_before_training_begins_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    write_toy_files(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr("mv_st.preparation.load_vectors", interrupt)
    assert main(train_command(tmp_path)) == 1
    assert one_line(capsys) == "mv-st: interrupted\n"
    assert sorted(tmp_path.rglob("*")) == before


# --- the other commands ---


def test_encode(
    model_folder: Path, model: SentenceTransformer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [*SENTENCES[:5], "", *SENTENCES[5:9]]
    (tmp_path / "text.txt").write_text("\n".join(lines) + "\n")
    output = tmp_path / "v.npy"
    options = ["--output", str(output), "--view", "gru", "--representation", "transfer"]
    assert main(["encode", str(model_folder), str(tmp_path / "text.txt"), *options]) == 0
    expected = model.encode(lines, view="gru", representation="transfer")
    np.testing.assert_allclose(np.load(output), expected, atol=1e-6)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == f"10 vectors are in {output}\n"


def test_similar_prints_results_and_nothing_else(
    model_folder: Path, model: SentenceTransformer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(SENTENCES[:30]))
    assert main(["similar", str(model_folder), str(text), "--query", SENTENCES[3], "--top", "3"]) == 0
    shown = capsys.readouterr()
    lines = [line.split("\t") for line in shown.out.splitlines()]
    assert len(lines) == 3
    assert lines[0] == ["1.000", SENTENCES[3]]
    assert shown.err == ""
    several = ["--query", "bal", "--query", "dun", "--view", "linear"]
    assert main(["similar", str(model_folder), str(text), *several]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert (lines[0], lines[6], len(lines)) == ("# bal", "# dun", 12)


def run_without_reader(arguments: list[str], messages: str, environment: dict[str, str]) -> None:
    """`mv-st` with standard output to a pipe that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    os.dup2(writer, 1)
    sys.stdout = open(1, "w")  # noqa: SIM115 - with a buffer, as Python has for a pipe
    run_command(arguments, messages, environment)


def test_similar_ends_quietly_when_its_reader_does(model_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("\n".join(SENTENCES))
    arguments = ["similar", str(model_folder), str(tmp_path / "text.txt"), "--query", "bal"]
    environment = {"HF_DATASETS_CACHE": str(tmp_path)}
    process = start_process(run_without_reader, arguments, str(tmp_path / "messages"), environment)
    assert wait_for([process]) == [0]
    assert (tmp_path / "messages").read_text() == ""


def test_export(
    model_folder: Path, model: SentenceTransformer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["export", str(model_folder), str(tmp_path / "static")]
    assert main(arguments) == 0
    assert capsys.readouterr().out == ""
    static = SentenceTransformer(str(tmp_path / "static"))
    np.testing.assert_allclose(static.encode(SENTENCES), model.encode(SENTENCES, view="linear"), atol=1e-5)
    assert main(arguments) == 1
    assert "exists and is not empty" in one_line(capsys)
    assert main([*arguments, "--overwrite"]) == 0


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A Hub where nobody answers, and nobody is logged in."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "token"))
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)


def test_adapt(model_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, output = tmp_path / "text.txt", tmp_path / "adapted"
    text.write_text("\n\n".join(SENTENCES), encoding="utf-8")
    folder = shutil.copytree(model_folder, tmp_path / "model")
    log = [{"step": 3, "eval_stsb-validation_pearson": 0.5, "eval_stsb-validation_spearman": 0.4}]
    (folder / "training.json").write_text(json.dumps({"steps": 3, "history": log}))
    arguments = ["adapt", str(folder), str(text), "--output", str(output)]
    assert main(arguments) == 0
    assert "the adapted model is in" in capsys.readouterr().err
    expected = adapt_components(SentenceTransformer(str(folder)), SENTENCES).encode(SENTENCES)
    np.testing.assert_allclose(SentenceTransformer(str(output)).encode(SENTENCES), expected, atol=1e-6)
    card = (output / "README.md").read_text(encoding="utf-8")
    assert f"| Adapted | to {len(SENTENCES)} sentences |" in card
    assert "No results were recorded" in card  # those of the training are not those of this model
    assert main(arguments) == 1
    assert "exists" in one_line(capsys)
    text.write_text("\n\n")
    assert main([*arguments, "--overwrite"]) == 1
    assert one_line(capsys).endswith("text.txt: no sentences to adapt to\n")
    assert (output / "modules.json").exists()


def test_push_without_token(model_folder: Path, capsys: pytest.CaptureFixture[str], no_network: None) -> None:
    assert main(["push", str(model_folder), "somebody/model"]) == 1
    assert "not logged in" in one_line(capsys)


def test_push_without_network(
    model_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, no_network: None
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    assert main(["push", str(model_folder), "somebody/model"]) == 1
    assert "cannot push to somebody/model: " in one_line(capsys)


@pytest.mark.parametrize(
    "arguments",
    [
        ["encode", "MISSING", "text.txt", "--output", "v.npy"],
        ["encode", "MODEL", "missing.txt", "--output", "v.npy"],
        ["encode", "MODEL", "text.txt", "--output", "v.csv"],
        ["encode", "MODEL", "text.txt", "--output", "v.npy", "--view", "tree"],
        ["encode", "MODEL", "text.txt", "--output", "text.txt/v.npy"],
        ["encode", "DAMAGED", "text.txt", "--output", "v.npy"],
        ["encode", "EMPTY", "text.txt", "--output", "v.npy"],
        ["encode", "somebody/nothing", "text.txt", "--output", "v.npy"],
        ["similar", "MODEL", "missing.txt", "--query", "x"],
        ["similar", "MODEL", "empty.txt", "--query", "x"],
        ["export", "MISSING", "static"],
        ["export", "MODEL", "text.txt/static"],
        ["push", "MISSING", "somebody/model"],
    ],
)
def test_mistakes_of_the_other_commands_are_one_line(
    model_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: Any,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("bal ban\n")
    Path("empty.txt").write_text("\n")
    Path("EMPTY").mkdir()
    if "DAMAGED" in arguments:
        shutil.copytree(model_folder, "DAMAGED")
        weights = Path("DAMAGED/model.safetensors")
        weights.write_bytes(weights.read_bytes()[:100])
    before = sorted(tmp_path.rglob("*"))
    arguments = [str(model_folder) if argument == "MODEL" else argument for argument in arguments]
    assert main(arguments) == 1
    one_line(capsys)
    assert sorted(tmp_path.rglob("*")) == before
